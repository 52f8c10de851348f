"""Parses redirections of input and output, and the here-documents that begin after their line."""

from __future__ import annotations

import re

from opsk_jobcheck.scripts.bash.lexer import PLACEHOLDER, Lexer
from opsk_jobcheck.scripts.bash.source import Source
from opsk_jobcheck.scripts.bash.syntax import Lit, Output, Redirect, Word

_REDIRECT = re.compile(r"([0-9]{1,3}|\{[A-Za-z_]\w*\})?(<<<|<<-?|>>|>\||<>|&>>?|[<>]&|[<>])")

_BEFORE_WORDS = frozenset({"", *" \t\n;&|("})
PROCESS = "process"
"""The operator of ``<(...)`` and ``>(...)``, which become a word."""
REDIRECTION_STARTS = frozenset("<>&{0123456789")


def add_process(words: list[Word], redirect: Redirect, before: str) -> None:
    """Add what ``<(...)`` stands for, the name of a pipe, as a word, or to the one that it ends."""
    if words and before not in _BEFORE_WORDS:
        words[-1] = Word([*words[-1].segments, *redirect.target.segments], words[-1].line)
    else:
        words.append(redirect.target)


class Redirections:
    """Reads redirections; ``waiting`` are those whose body is still to come: (redirection, is quoted, strips tabs)."""

    def __init__(self, lexer: Lexer) -> None:
        self.lexer = lexer
        self.waiting: list[tuple[Redirect, bool, bool]] = []

    def read(self) -> Redirect | None:
        """Parse one redirection; a here-document's body is read at the next newline."""
        self.lexer.skip_blank()
        if self.lexer.text[self.lexer.position : self.lexer.position + 1] not in REDIRECTION_STARTS:
            return None
        match = _REDIRECT.match(self.lexer.text, self.lexer.position)
        if not match or PLACEHOLDER.match(self.lexer.text, self.lexer.position):
            return None
        line = self.lexer.line()
        operator = match.group(2)
        if operator in ("<", ">") and self.lexer.text.startswith("(", match.end()):
            self.lexer.position = match.start(2)
            return Redirect(PROCESS, self._read_process(line))
        self.lexer.position = match.end()
        self.lexer.skip_blank()
        is_process = self.lexer.text.startswith(("<(", ">("), self.lexer.position)
        target = self._read_process(line) if is_process else self.lexer.read_word() or Word([], line)
        redirect = Redirect(operator, target, is_other=match.group(1) not in (None, "1"))
        if operator in ("<<", "<<-"):
            is_quoted = any(isinstance(piece, Lit) and piece.quoted for piece in redirect.target.segments)
            self.waiting.append((redirect, is_quoted, operator == "<<-"))
        return redirect

    def _read_process(self, line: int) -> Word:
        """Read ``<(...)``: the name of a pipe, which only bash knows."""
        start = self.lexer.position + 2
        close = self.lexer.matching(start, "(", ")")
        self.lexer.position = close + 1
        return Word([Output(self.lexer.text[start:close], line, quoted=True)], line)

    def read_bodies(self) -> None:
        """Read the here-documents that begin at this line."""
        if not self.waiting:
            return
        waiting, self.waiting = self.waiting, []
        for redirect, is_quoted, strips_tabs in waiting:
            end_word = "".join(piece.text for piece in redirect.target.segments if isinstance(piece, Lit))
            redirect.body = self._read_body(end_word, is_quoted=is_quoted, strips_tabs=strips_tabs)

    def _read_body(self, end_word: str, *, is_quoted: bool, strips_tabs: bool) -> Word:
        """Read lines up to the one that is ``end_word``."""
        text, start = self.lexer.text, self.lexer.position
        lines: list[tuple[int, str]] = []
        position = start
        while position < self.lexer.end:
            newline = text.find("\n", position)
            stop = self.lexer.end if newline < 0 else newline
            content = text[position:stop].lstrip("\t") if strips_tabs else text[position:stop]
            next_position = stop + 1
            if content == end_word:
                position = next_position
                break
            lines.append((self.lexer.source.line_at(position), content + "\n"))
            position = next_position
        self.lexer.position = min(position, self.lexer.end)
        first = lines[0][0] if lines else self.lexer.line()
        if is_quoted:
            return Word([Lit(content, line, quoted=True) for line, content in lines], first)
        offsets, numbers, offset = [], [], 0
        for line, content in lines:
            offsets.append(offset)
            numbers.append(line)
            offset += len(content)
        inner = Source("".join(c for _, c in lines), offsets or [0], numbers or [first], self.lexer.source.unknown)
        return Lexer(inner).read_body()

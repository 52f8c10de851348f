"""Splits shell text into words and their segments: quotes, ``$`` forms and here-documents, by bash's rules."""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from opsk_jobcheck.scripts.bash.syntax import Arith, Lit, Output, Param, Segment, Word
from opsk_jobcheck.scripts.bash.values import Text, WordPart

MARK_OPEN, MARK_CLOSE = "\ue000", "\ue001"
MARK = re.compile(f"{MARK_OPEN}([0-9]+){MARK_CLOSE}")
"""Stands for an unknown part inside a text that is read as shell once more (``bash -c "$CMD"``)."""
_PLAIN = re.compile(r"[^\s'\"\\$`;&|<>()#]+")
_PLAIN_WORDS = re.compile(r"(?:[ \t]*[^\s'\"\\$`;&|<>()#]+(?=[ \t\n]))+")
"""Words of one line without quotes, expansions or redirections: most words are such."""
_QUOTED_PLAIN = re.compile(r'(?:[^"\\$`]++|\\\n)++')
_TEXT_PLAIN = re.compile(r"[^'\"\\$`]+")
_BODY_PLAIN = re.compile(r"(?:[^\\$`]++|\\\n)++")
"""Quoted text that stands for itself, and lines that are joined."""
_IDLE_LINES = re.compile(r"(?:[ \t]*+(?:#[^\n]*+)?\n)*+[ \t]*+")
"""Empty lines and comments."""
_REGEX_WORD = re.compile(r"(?:\\.|'[^']*'|\"[^\"]*\"|\S)*")
_BLANK = re.compile(r"(?:[ \t]|\\\n)+")
_BLANK_STARTS = frozenset(" \t\\#")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REST = re.compile(r"[A-Za-z0-9_]+")
_SPECIAL = re.compile(r"[0-9@*#?$!\-]")
_BRACED = re.compile(r"([#!]?)([A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!\-])(?:\[([^\]]*)\])?")
_INTEREST = re.compile(r"[\\'\"`$(){}]")
_INTEREST_AND_BODIES = re.compile(r"[\\'\"`$(){}]|(?<!<)<<(-?)[ \t]*[\"'\\]?([A-Za-z_]\w*)[\"']?(?=[^\n]*\n)")
_ANSI = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "v": "\v"}
_OPERATORS = (":-", ":=", ":+", ":?", "##", "%%", "//", "/#", "/%", "^^", ",,")
_PREFIXES = {"": "", "#": "length", "!": "indirect"}
PLACEHOLDER = re.compile(r"<[A-Za-z][\w./-]*(?: [\w./-]+)*>(?=[\s\"'\\]|$)")
"""A placeholder of a template, ``<PATH TO DATA>``, which bash would parse as redirections."""
_MARKS = frozenset("'\"\\$`#")
WORD_ENDS = frozenset(" \t\n;&|<>()")
MAX_DEPTH = 60
MAX_PLAIN_CHARS = 1 << 16
"""A longer run of words may hold one that is too long to be followed: each is looked at by itself."""


class ShellLimitError(Exception):
    """The script is nested deeper, or takes more work, than is followed."""


@dataclass(slots=True)
class Source:
    """A text to be read as shell.

    ``starts`` and ``lines`` map offsets to line numbers; ``unknown`` are the parts that marks in the text stand for.
    ``work`` is the remaining number of characters that may be looked at, so that reading stays linear.
    """

    text: str
    starts: list[int]
    lines: list[int]
    unknown: list[WordPart] = field(default_factory=list)
    work: int = 0

    def __post_init__(self) -> None:
        """Give every text work in proportion to its length."""
        self.work = self.work or 16 * len(self.text) + 200_000

    def line_at(self, offset: int) -> int:
        """Return the line of the character at ``offset``."""
        return self.lines[max(bisect_right(self.starts, offset) - 1, 0)]

    def spend(self, characters: int) -> None:
        """Count work; a text that makes the reader look again and again at the same characters is given up."""
        self.work -= characters + 1
        if self.work < 0:
            raise ShellLimitError("the script takes more work to read than opsk spends on one")


def build_script_source(text: str, *, start: int = 0, number_spans: Sequence[tuple[int, int]] = ()) -> Source:
    """Return the source of a script as submitted.

    Parameters
    ----------
    start
        Added to its line numbers (see `Places`).
    number_spans
        Start and end offsets of numbers that are read as unknown, in order.
    """
    clean = text.replace(MARK_OPEN, "?").replace(MARK_CLOSE, "?")
    unknown = [
        WordPart("", 0, f"number {index} may be any", filled=True, number=True) for index in range(len(number_spans))
    ]
    for index, (begin, end) in reversed(list(enumerate(number_spans))):
        clean = f"{clean[:begin]}{MARK_OPEN}{index}{MARK_CLOSE}{clean[end:]}"
    clean = clean.replace("\r\n", "\n")
    *whole, _ = clean.split("\n")
    starts = [0, *accumulate([len(line) + 1 for line in whole])]
    return Source(clean, starts, list(range(start + 1, start + len(starts) + 1)), unknown)


def build_line_source(text: str, line: int, unknown: list[WordPart]) -> Source:
    """Return the source of a piece of text that stands on one line of the script."""
    return Source(text, [0], [line], unknown)


def build_expanded_source(text: Text) -> Source:
    """Return the source of an expanded text, each character keeping the line that it was written on."""
    pieces: list[str] = []
    starts, lines = [0], [text.parts[0].line if text.parts else 0]
    unknown: list[WordPart] = []
    offset = 0
    for part in text.parts:
        piece = part.text
        if part.why:
            piece = f"{MARK_OPEN}{len(unknown)}{MARK_CLOSE}"
            unknown.append(part)
        starts.append(offset)
        lines.append(part.line)
        pieces.append(piece)
        offset += len(piece)
    return Source("".join(pieces), starts, lines, unknown)


def restore_unknown_parts(source: Source, text: str, line: int) -> list[WordPart]:
    """Return a literal piece of a source as parts, its marks turned back into the unknown parts they stand for."""
    if MARK_OPEN not in text:
        return [WordPart(text, line)]
    parts: list[WordPart] = []
    position = 0
    for match in MARK.finditer(text):
        if match.start() > position:
            parts.append(WordPart(text[position : match.start()], line))
        index = int(match.group(1)[:9])
        parts.append(source.unknown[index] if index < len(source.unknown) else WordPart("", line, "not known"))
        position = match.end()
    if position < len(text):
        parts.append(WordPart(text[position:], line))
    return parts


class Lexer:
    """Cuts one source into words; ``position`` is where the next character is."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.text = source.text
        self.end = len(source.text)
        self.position = 0
        self._starts, self._lines = source.starts, source.lines
        self._line, self._line_start, self._line_end = 0, 0, 0

    def line(self) -> int:
        """Return the line of the next character."""
        if not self._line_start <= self.position < self._line_end:
            self._look_up_line(self.position)
        return self._line

    def _find_line(self, offset: int) -> int:
        """Return the line of a character."""
        if not self._line_start <= offset < self._line_end:
            self._look_up_line(offset)
        return self._line

    def _look_up_line(self, offset: int) -> None:
        """Look a character's line up; most are on the same line as the last one."""
        starts = self._starts
        following = bisect_right(starts, offset) or 1
        self._line, self._line_start = self._lines[following - 1], starts[following - 1]
        self._line_end = starts[following] if following < len(starts) else sys.maxsize

    def skip_blank(self) -> None:
        """Skip blanks, joined lines and a comment, but no newline."""
        text, position = self.text, self.position
        if text[position : position + 1] not in _BLANK_STARTS:
            return
        if match := _BLANK.match(text, position):
            self.position = position = match.end()
        if position < self.end and text[position] == "#":
            newline = text.find("\n", position)
            self.position = self.end if newline < 0 else newline

    def skip_space(self) -> None:
        """Skip blanks, comments and newlines."""
        while True:
            self.skip_blank()
            if self.position >= self.end or self.text[self.position] != "\n":
                return
            self.position += 1

    def skip_idle_lines(self) -> None:
        """Skip empty lines and comments, from the start of a line on, and the blanks after them."""
        if match := _IDLE_LINES.match(self.text, self.position):
            self.position = match.end()

    def read_regex(self) -> Word:
        """Read the regular expression after ``=~``, in which brackets and ``|`` are letters."""
        self.skip_blank()
        line, match = self.line(), _REGEX_WORD.match(self.text, self.position)
        if match is None:
            return Word([], line)
        self.position = match.end()
        self.source.spend(len(match.group()))
        return Lexer(build_line_source(match.group(), line, self.source.unknown)).read_text(quoted=False)

    def starts(self, sign: str) -> bool:
        """Return whether ``sign`` comes next."""
        return self.text.startswith(sign, self.position)

    def take(self, sign: str) -> bool:
        """Consume ``sign`` when it comes next."""
        if not self.starts(sign):
            return False
        self.position += len(sign)
        return True

    def read_word(self, *, is_within: bool = False) -> Word | None:
        """Read one word, or return ``None`` when none starts here; ``is_within`` continues one that has begun."""
        line, text = self.line(), self.text
        segments: list[Segment] = []
        while self.position < self.end:
            sign = text[self.position]
            if sign in WORD_ENDS:
                if sign != "<" or not (match := PLACEHOLDER.match(text, self.position)):
                    break
                segments.append(Lit(match.group(), self.line(), quoted=True))
                self.position = match.end()
            elif sign in _MARKS:
                if sign == "#" and not segments and not is_within:
                    break
                self._read_segment(segments, sign)
            elif match := _PLAIN.match(text, self.position):
                segments.append(Lit(match.group(), self.line()))
                self.position = match.end()
            else:
                self._read_segment(segments, sign)
        return Word(segments, line) if segments else None

    def read_plain_words(self) -> list[Word]:
        """Read the next words that need no expansion, with the blanks between; most words are such.

        They are on one line of this text, which may come from several lines of the script, as a variable's value does.
        """
        match = _PLAIN_WORDS.match(self.text, self.position)
        if match is None:
            return []
        words, start, stop = list[Word](), self.position, match.end()
        self.position = stop
        whole, starts = match.group(), self._starts
        is_plain = "{" not in whole and MARK_OPEN not in whole and len(whole) <= MAX_PLAIN_CHARS
        following = bisect_right(starts, start) or 1
        while start < stop:
            line = self._lines[following - 1]
            end = min(starts[following], stop) if following < len(starts) else stop
            following += 1
            if end <= start:
                continue  # the word before reaches over all of it
            if end < stop and self.text[end - 1] not in " \t" and (rest := _PLAIN.match(self.text, end)):
                end = rest.end()  # a word stands where it begins
            if is_plain:
                words += [Word(None, line, word) for word in self.text[start:end].split()]
            else:
                words += [Word([Lit(word, line)], line) for word in self.text[start:end].split()]
            start = end
        return words

    def read_text(self, *, quoted: bool) -> Word:
        """Read all that is left as one word, blanks included (the argument of ``${x:-...}``)."""
        segments: list[Segment] = []
        line = self.line()
        while self.position < self.end:
            if quoted and self.starts('"'):
                self.position += 1
            elif quoted:
                self._read_quoted_piece(segments, _QUOTED_PLAIN, escapes='$`"\\')
            elif match := _TEXT_PLAIN.match(self.text, self.position):
                segments.append(Lit(match.group(), self.line()))
                self.position = match.end()
            else:
                self._read_segment(segments, self.text[self.position])
        return Word(segments, line)

    def read_body(self) -> Word:
        """Read all that is left as the body of a here-document: only ``$``, backticks and their escapes count."""
        segments: list[Segment] = []
        line = self.line()
        while self.position < self.end:
            self._read_quoted_piece(segments, _BODY_PLAIN, escapes="$`\\")
        return Word(segments, line)

    def matching(self, start: int, opening: str, closing: str, *, in_quotes: bool = False) -> int:
        """Return the offset of the bracket that closes one opened before ``start``; the end of text without one.

        ``in_quotes`` tells that double quotes stand around all of it, in which a single quote is a letter.

        Raises
        ------
        ShellLimitError
            When brackets nest too deeply or the search exceeds the limit on work.
        """
        depth, position = 1, start
        quote = ""
        for match in (_INTEREST_AND_BODIES if opening == "(" else _INTEREST).finditer(self.text, start):
            if match.start() < position:
                continue
            sign, position = match.group(), match.start() + 1
            if sign[0] == "<":
                position = self._skip_body(match, "" if quote else match.group(2))
            elif quote == "'":
                quote = "" if sign == "'" else quote
            elif sign == "\\":
                position += 1
            elif sign == '"' or (sign == "'" and not quote and not in_quotes):
                quote = "" if quote == sign else sign
            elif sign in (opening, closing) and not quote:
                if sign == "{" and self.text[match.start() - 1 : match.start()] != "$":
                    continue  # bash counts those of ``${`` alone
                depth += 1 if sign == opening else -1
                if depth > MAX_DEPTH:
                    raise ShellLimitError("the script is nested too deeply")
                if depth == 0:
                    self.source.spend(position - start)
                    return position - 1
        self.source.spend(self.end - start)
        return self.end

    def _skip_body(self, match: re.Match[str], end_word: str) -> int:
        """Return the offset after a here-document inside ``$(...)``, whose body may hold any quote or bracket."""
        start = self.text.find("\n", match.end())
        if not end_word or start < 0:
            return match.end()
        tabs = "\\t*" if match.group(1) else ""
        body_end = re.compile(f"\\n{tabs}{re.escape(end_word)}(?=[\\n)]|\\Z)").search(self.text, start)
        self.source.spend((body_end.end() if body_end else self.end) - start)
        return body_end.end() if body_end else match.end()

    def _read_segment(self, segments: list[Segment], sign: str) -> None:
        """Read one segment of an unquoted word."""
        if sign == "'":
            self._read_single_quoted(segments)
        elif sign == '"':
            self._read_double_quoted(segments)
        elif sign == "\\":
            self._read_escaped(segments)
        elif sign == "$":
            self._read_dollar(segments, quoted=False)
        elif sign == "`":
            self._read_backticks(segments, quoted=False)
        else:
            segments.append(Lit(sign, self.line()))
            self.position += 1

    def _read_single_quoted(self, segments: list[Segment]) -> None:
        line = self.line()
        close = self.text.find("'", self.position + 1)
        close = self.end if close < 0 else close
        self._add_by_lines(segments, self.position + 1, close, line)
        self.position = close + 1

    def _add_by_lines(self, segments: list[Segment], start: int, stop: int, line: int) -> None:
        """Add quoted text line by line, so that each piece keeps its own line; an empty text still makes a word."""
        if start >= stop:
            segments.append(Lit("", line, quoted=True))
            return
        while start < stop:
            newline = self.text.find("\n", start, stop)
            cut = stop if newline < 0 else newline + 1
            segments.append(Lit(self.text[start:cut], self._find_line(start), quoted=True))
            start = cut

    def _add_joined_lines(self, segments: list[Segment], run: str) -> None:
        """Add the double-quoted text that comes next line by line; a backslash before the end of one joins two."""
        start = self.position
        self.position += len(run)
        lines = run.split("\n")
        last = lines.pop()
        for text in lines:
            piece = text[:-1] if text[-1:] == "\\" else text + "\n"
            if piece:
                segments.append(Lit(piece, self._find_line(start), quoted=True))
            start += len(text) + 1
        if last:
            segments.append(Lit(last, self._find_line(start), quoted=True))

    def _read_double_quoted(self, segments: list[Segment]) -> None:
        before, line = len(segments), self.line()
        self.position += 1
        while self.position < self.end and self.text[self.position] != '"':
            self._read_quoted_piece(segments, _QUOTED_PLAIN, escapes='$`"\\')
        self.position += 1
        if len(segments) == before:  # two quotes with nothing between make a word
            segments.append(Lit("", line, quoted=True))

    def _read_quoted_piece(self, segments: list[Segment], plain: re.Pattern[str], *, escapes: str) -> None:
        """Read the next piece of double-quoted text."""
        sign = self.text[self.position]
        if match := plain.match(self.text, self.position):
            self._add_joined_lines(segments, match.group())
        elif sign == "\\":
            following = self.text[self.position + 1 : self.position + 2]
            escaped = following if following in escapes and following else "\\" + following
            segments.append(Lit(escaped, self.line(), quoted=True))
            self.position += 2
        elif sign == "$":
            self._read_dollar(segments, quoted=True)
        elif sign == "`":
            self._read_backticks(segments, quoted=True)
        else:
            segments.append(Lit(sign, self.line(), quoted=True))
            self.position += 1

    def _read_escaped(self, segments: list[Segment]) -> None:
        following = self.text[self.position + 1 : self.position + 2]
        if following not in ("\n", ""):
            segments.append(Lit(following, self.line(), quoted=True))
        self.position += 2

    def _read_backticks(self, segments: list[Segment], *, quoted: bool) -> None:
        line = self.line()
        close = self.position + 1
        while close < self.end and self.text[close] != "`":
            close += 2 if self.text[close] == "\\" else 1
        self.source.spend(close - self.position)
        segments.append(Output(self.text[self.position + 1 : close], line, quoted))
        self.position = close + 1

    def _read_dollar(self, segments: list[Segment], *, quoted: bool) -> None:
        """Read the expansion that a ``$`` begins."""
        line, start = self.line(), self.position
        following = self.text[start + 1 : start + 2]
        if following == "(":
            self._read_command_or_arithmetic(segments, line, quoted=quoted)
        elif following == "[":
            close = self.text.find("]", start)
            close = self.end if close < 0 else close
            segments.append(Arith(self.text[start + 2 : close], line, quoted))
            self.position = close + 1
        elif following == "{":
            self._read_braced(segments, line, quoted=quoted)
        elif following == "'" and not quoted:
            self._read_ansi_quoted(segments, line)
        elif following == '"' and not quoted:
            self.position += 1
            self._read_double_quoted(segments)
        elif match := _NAME.match(self.text, start + 1) or _SPECIAL.match(self.text, start + 1):
            name, self.position = match.group(), match.end()
            while self.text.startswith("\\\n", self.position) and (rest := _REST.match(self.text, self.position + 2)):
                name, self.position = name + rest.group(), rest.end()
            segments.append(Param(name, line, quoted))
        else:
            segments.append(Lit("$", line, quoted))
            self.position += 1

    def _read_command_or_arithmetic(self, segments: list[Segment], line: int, *, quoted: bool) -> None:
        if self.text.startswith("$((", self.position):
            close = self.matching(self.position + 3, "(", ")")
            if self.text.startswith("))", close):
                segments.append(Arith(self.text[self.position + 3 : close], line, quoted))
                self.position = close + 2
                return
        close = self.matching(self.position + 2, "(", ")")
        segments.append(Output(self.text[self.position + 2 : close], line, quoted))
        self.position = close + 1

    def _read_braced(self, segments: list[Segment], line: int, *, quoted: bool) -> None:
        """Read ``${...}``."""
        start = self.position + 2
        close = self.matching(start, "{", "}", in_quotes=quoted)
        inside = self.text[start:close]
        match = _BRACED.match(self.text, start, close)
        if inside in ("#", "!", "@", "*", "?", "$", "-"):
            segments.append(Param(inside, line, quoted))
        elif not match:
            segments.append(Output(inside, line, quoted))
        else:
            prefix, name, index = match.group(1), match.group(2), match.group(3) or ""
            rest = self.text[match.end() : close]
            operator = _PREFIXES[prefix] or next((sign for sign in _OPERATORS if rest.startswith(sign)), rest[:1])
            argument = rest if prefix else rest[len(operator) :]
            segments.append(Param(name, line, quoted, operator, argument, index))
        self.position = close + 1

    def _read_ansi_quoted(self, segments: list[Segment], line: int) -> None:
        """Read ``$'...'`` with its escapes."""
        out: list[str] = []
        position = self.position + 2
        while position < self.end and self.text[position] != "'":
            if self.text[position] == "\\" and position + 1 < self.end:
                sign = self.text[position + 1]
                out.append(_ANSI.get(sign, sign))
                position += 2
            else:
                out.append(self.text[position])
                position += 1
        segments.append(Lit("".join(out), line, quoted=True))
        self.position = position + 1

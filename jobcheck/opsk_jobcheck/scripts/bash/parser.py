"""Parses shell text into a tree of commands.

The parser is tolerant: it skips what it cannot read, and reports the line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from opsk_jobcheck.scripts.bash.lexer import PLACEHOLDER, WORD_ENDS, Lexer, ShellLimitError, Source
from opsk_jobcheck.scripts.bash.syntax import (
    ArithTest,
    Assignment,
    Case,
    Chain,
    Command,
    Function,
    Group,
    If,
    Lit,
    Loop,
    Output,
    Param,
    Pipeline,
    Redirect,
    Simple,
    Test,
    Word,
)

_REDIRECT = re.compile(r"([0-9]{1,3}|\{[A-Za-z_]\w*\})?(<<<|<<-?|>>|>\||<>|&>>?|[<>]&|[<>])")

_BEFORE_WORDS = frozenset({"", *" \t\n;&|("})
PROCESS = "process"
"""The operator of ``<(...)`` and ``>(...)``, which become a word."""
REDIRECTION_STARTS = frozenset("<>&{0123456789")
MAX_COMMANDS = 12_000
MAX_NESTING = 60
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\[((?:[^\[\]\n]|\[[^\[\]\n]*\])*+)\])?(\+?)=")
_FUNCTION = re.compile(r"([A-Za-z_][\w.:-]*)[ \t]*\([ \t]*\)")
DECLARERS = frozenset({"declare", "export", "local", "readonly", "typeset"})
_BARE = re.compile(r"[^\s'\"\\$`;&|<>()#]+")
_OUTPUTS = frozenset({">", ">|", ">>", "&>", "&>>", ">&", "<>"})
_COMMAND_ENDS = frozenset({"", *"\n;&|)"})
_CLOSERS = frozenset({"then", "do", "done", "fi", "elif", "else", "esac", "}"})


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


class Parser:
    """Parses one source; ``problems`` are (line, what) of what could not be read.

    ``count`` and ``words`` are how many commands and words of them there were.
    """

    def __init__(self, source: Source) -> None:
        self.lexer = Lexer(source)
        self.redirections = Redirections(self.lexer)
        self.problems: list[tuple[int, str]] = []
        self.count = 0
        self.words = 0
        self.depth = 0
        self._keyword_position, self._keyword_text = -1, ""

    def script(self) -> list[Command]:
        """Parse to the end of the source; unexpected text at the top level is skipped."""
        commands: list[Command] = []
        while True:
            commands += self._list(frozenset())
            if self.lexer.position >= self.lexer.end:
                return commands
            line = self.lexer.line()
            self.problems.append((line, f"{self.lexer.text[self.lexer.position]!r} is out of place"))
            if self._keyword() in _CLOSERS:
                self.lexer.read_word()
            else:
                self.lexer.position += 1

    def _list(self, closers: frozenset[str]) -> list[Command]:
        """Parse commands up to one of the closing words, a closing bracket, ``;;`` or the end."""
        commands: list[Command] = []
        while True:
            self._skip_separators()
            if self.lexer.position >= self.lexer.end or self.lexer.text.startswith(
                (")", ";;", ";&"), self.lexer.position
            ):
                return commands
            keyword = self._keyword()
            if keyword in closers or keyword in _CLOSERS:
                return commands
            before = self.lexer.position
            command = self._chain()
            if self.lexer.starts("&"):  # in the background, in a shell of its own
                command = Group([command], subshell=True, line=self.lexer.line())
            commands.append(command)
            if self.lexer.position == before:
                return commands

    def _skip_separators(self) -> None:
        """Skip blanks, comments, newlines (reading here-documents that begin after them), ``;`` and ``&``."""
        lexer = self.lexer
        while lexer.position < lexer.end:
            lexer.skip_blank()
            sign = lexer.text[lexer.position : lexer.position + 1]
            if sign == "\n":
                lexer.position += 1
                if self.redirections.waiting:
                    self.redirections.read_bodies()
                lexer.skip_idle_lines()
            elif sign not in (";", "&") or lexer.text.startswith((";;", ";&"), lexer.position):
                return
            else:
                lexer.position += 1

    def _skip_newlines(self) -> None:
        """Skip blanks and newlines, but no ``;``: the space after ``|``, ``&&`` and ``||``."""
        while True:
            self.lexer.skip_blank()
            if not self.lexer.take("\n"):
                return
            self.redirections.read_bodies()

    def _keyword(self) -> str:
        """Return the bare word that comes next without consuming it, else an empty string."""
        position = self.lexer.position
        if position != self._keyword_position:  # one place is asked about several times
            self._keyword_position, self._keyword_text = position, ""
            if match := _BARE.match(self.lexer.text, position):
                following = self.lexer.text[match.end() : match.end() + 1]
                if not following or following in WORD_ENDS:
                    self._keyword_text = match.group()
        return self._keyword_text

    def _chain(self) -> Command:
        """Parse pipelines joined by ``&&`` and ``||``."""
        links: list[tuple[str, Command]] = [("", self._pipeline())]
        while True:  # blanks have been skipped after each
            sign = self.lexer.text[self.lexer.position : self.lexer.position + 2]
            if sign not in ("&&", "||"):
                return links[0][1] if len(links) == 1 else Chain(links)
            self.lexer.position += 2
            self._skip_newlines()
            links.append((sign, self._pipeline()))

    def _pipeline(self) -> Command:
        """Parse commands joined by ``|``."""
        negated = False
        while self._keyword() in ("!", "time"):
            negated ^= self._keyword() == "!"
            self.lexer.read_word()
            self.lexer.skip_blank()
        commands = [self._command()]
        while True:
            self.lexer.skip_blank()
            if not self.lexer.starts("|") or self.lexer.starts("||"):
                break
            self.lexer.position += 2 if self.lexer.starts("|&") else 1
            self._skip_newlines()
            commands.append(self._command())
        return commands[0] if len(commands) == 1 and not negated else Pipeline(commands, negated)

    def _command(self) -> Command:
        """Parse one command, simple or compound."""
        self.count += 1
        if self.count > MAX_COMMANDS or self.depth >= MAX_NESTING:
            raise ShellLimitError("the script has more or deeper commands than opsk follows")
        if not self._keyword() and not self.lexer.starts("("):  # no compound command begins without either
            return self._simple()
        self.depth += 1
        try:
            return self._compound() or self._simple()
        finally:
            self.depth -= 1

    def _compound(self) -> Command | None:
        """Parse a compound command with its redirections, or return ``None`` when none starts here."""
        if self.lexer.starts("("):
            return self._in_brackets(self.lexer.line())
        if reader := _COMPOUND.get(self._keyword()):
            line = self.lexer.line()
            self.lexer.read_word()
            return self._wrap_redirected(reader(self, line))
        if match := _FUNCTION.match(self.lexer.text, self.lexer.position):
            line, self.lexer.position = self.lexer.line(), match.end()
            return self._function_body(match.group(1), line)
        return None

    def _in_brackets(self, line: int) -> Command:
        """Parse ``(( expression ))``, or the commands of a subshell."""
        if self.lexer.starts("(("):
            close = self.lexer.matching(self.lexer.position + 2, "(", ")")
            if self.lexer.text.startswith("))", close):
                expression = self.lexer.text[self.lexer.position + 2 : close]
                self.lexer.position = close + 2
                return ArithTest(expression, line)
        self.lexer.position += 1
        body = self._list(frozenset())
        self.lexer.take(")")
        return self._wrap_redirected(Group(body, subshell=True, line=line))

    def _wrap_redirected(self, command: Command) -> Command:
        """Read the redirections after a compound command; its input is unknown."""
        redirects: list[Redirect] = []
        while redirect := self.redirections.read():
            redirects.append(redirect)
        outputs = [entry for entry in redirects if entry.op in _OUTPUTS]
        return Group([command], subshell=False, line=outputs[0].target.line, redirects=outputs) if outputs else command

    def _expect(self, keyword: str) -> None:
        """Consume a closing word; note it when it is missing."""
        self._skip_separators()
        if self._keyword() == keyword:
            self.lexer.read_word()
        else:
            self.problems.append((self.lexer.line(), f"{keyword!r} is missing"))

    def _if(self, line: int) -> Command:
        branches: list[tuple[list[Command] | None, list[Command]]] = []
        condition: list[Command] | None = self._list(frozenset({"then"}))
        self._expect("then")
        while True:
            branches.append((condition, self._list(frozenset({"elif", "else", "fi"}))))
            keyword = self._keyword()
            if keyword not in ("elif", "else"):
                break
            self.lexer.read_word()
            condition = None
            if keyword == "elif":
                condition = self._list(frozenset({"then"}))
                self._expect("then")
        self._expect("fi")
        return If(branches, line)

    def _case(self, line: int) -> Command:
        self.lexer.skip_blank()
        word = self.lexer.read_word() or Word([], line)
        self._expect("in")
        branches: list[tuple[list[Word], list[Command]]] = []
        ends: list[str] = []
        while True:
            self._skip_separators()
            if self.lexer.position >= self.lexer.end or self._keyword() == "esac":
                break
            patterns = self._patterns()
            if not self.lexer.take(")"):
                break
            branches.append((patterns, self._list(frozenset({"esac"}))))
            ends.append(next((sign for sign in (";;&", ";;", ";&") if self.lexer.take(sign)), ";;"))
        self._expect("esac")
        return Case(word, branches, line, ends)

    def _patterns(self) -> list[Word]:
        """Parse the patterns of one ``case`` branch."""
        self.lexer.take("(")
        patterns: list[Word] = []
        while True:
            self.lexer.skip_blank()
            if pattern := self.lexer.read_word():
                patterns.append(pattern)
            self.lexer.skip_blank()
            if not self.lexer.take("|"):
                return patterns

    def _for(self, line: int) -> Command:
        self.lexer.skip_blank()
        variable = counting = ""
        words: list[Word] | None = None
        if self.lexer.starts("(("):
            start = self.lexer.position + 2
            close = self.lexer.matching(start, "(", ")")
            counting, self.lexer.position = self.lexer.text[start:close], close + 2
        elif name := self.lexer.read_word():
            variable = name.bare or ""
            self._skip_newlines()
            if self._keyword() == "in":
                self.lexer.read_word()
                words = self._words_of_line()
            else:
                words = [Word([Param("@", line, quoted=True)], line)]
        return Loop(variable, [], self._do(), line, words, counting)

    def _words_of_line(self) -> list[Word]:
        """Parse the words up to the end of the line."""
        words: list[Word] = []
        while True:
            self.lexer.skip_blank()
            word = self.lexer.read_word()
            if word is None:
                return words
            words.append(word)

    def _while(self, line: int, *, is_until: bool = False) -> Command:
        condition = self._list(frozenset({"do"}))
        return Loop("", condition, self._do(), line, is_until=is_until)

    def _do(self) -> list[Command]:
        self._expect("do")
        body = self._list(frozenset({"done"}))
        self._expect("done")
        return body

    def _function(self, line: int) -> Command:
        self.lexer.skip_blank()
        word = self.lexer.read_word()
        self.lexer.skip_blank()
        if self.lexer.take("("):
            self.lexer.skip_blank()
            self.lexer.take(")")
        return self._function_body((word.bare if word else None) or "", line)

    def _function_body(self, name: str, line: int) -> Command:
        self.lexer.skip_space()
        return Function(name, [self._command()], line)

    def _braces(self, line: int) -> Command:
        body = self._list(frozenset({"}"}))
        self._expect("}")
        return Group(body, subshell=False, line=line)

    def _test(self, line: int) -> Command:
        """Parse ``[[ ... ]]`` into words; its operators become words of their own."""
        words: list[Word] = []
        while self.lexer.position < self.lexer.end:
            self.lexer.skip_space()
            here = self.lexer.line()
            sign = next((sign for sign in ("&&", "||", "(", ")", "<", ">") if self.lexer.starts(sign)), "")
            if sign:
                self.lexer.position += len(sign)
                words.append(Word([Lit(sign, here)], here))
                continue
            word = self.lexer.read_word()
            if word is None or word.bare == "]]":
                if word is None:
                    self.lexer.position += 1
                    continue
                break
            words.append(word)
            if word.bare == "=~":
                words.append(self.lexer.read_regex())
        return Test(words, line)

    def _simple(self) -> Simple:
        """Parse assignments, words and redirections up to the end of the command."""
        command = Simple(self.lexer.line())
        lexer, words = self.lexer, command.words
        declares = False
        while lexer.position < lexer.end:
            if words and not declares and (plain := lexer.read_plain_words()):
                words += plain
                continue
            lexer.skip_blank()
            start = lexer.position
            sign = lexer.text[start : start + 1]
            if sign in REDIRECTION_STARTS and (redirect := self.redirections.read()):
                if redirect.op == PROCESS:
                    add_process(words, redirect, lexer.text[start - 1 : start])
                else:
                    command.redirects.append(redirect)
            elif sign in _COMMAND_ENDS:
                break
            elif (not words or declares) and (assignment := self._assignment()):
                (command.arrays if declares else command.assignments).append(assignment)
            elif word := lexer.read_word():
                words.append(word)
                declares = declares or (len(words) == 1 and word.bare in DECLARERS)
            else:
                break
        self.words += len(words)
        return command

    def _assignment(self) -> Assignment | None:
        """Parse ``name=value`` when one starts here."""
        match = _ASSIGNMENT.match(self.lexer.text, self.lexer.position)
        if not match:
            return None
        line, end = self.lexer.line(), match.end()
        self.lexer.position = end
        name, index, append = match.group(1), match.group(2) or "", bool(match.group(3))
        if self.lexer.text[end : end + 1] != "(":
            return Assignment(name, line, self.lexer.read_word(is_within=True), append, index)
        self.lexer.position += 1
        words: list[Word] = []
        while self.lexer.position < self.lexer.end:
            self.lexer.skip_space()
            if self.lexer.take(")"):
                break
            if plain := self.lexer.read_plain_words():
                words += plain
            elif word := self.lexer.read_word():
                words.append(word)
            else:
                self.lexer.position += 1
        return Assignment(name, line, None, append, index, words)


_COMPOUND: Mapping[str, Callable[[Parser, int], Command]] = MappingProxyType(
    {
        "if": Parser._if,
        "case": Parser._case,
        "for": Parser._for,
        "select": Parser._for,
        "while": Parser._while,
        "until": lambda parser, line: parser._while(line, is_until=True),
        "function": Parser._function,
        "{": Parser._braces,
        "[[": Parser._test,
    }
)

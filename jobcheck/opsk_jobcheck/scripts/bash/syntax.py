"""Defines the syntax tree of a shell script: words as segments, commands as a tree."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Lit:
    """Literal text; ``quoted`` text is never split."""

    text: str
    line: int
    quoted: bool = False


@dataclass(slots=True)
class Param:
    """``$name`` or ``${name op arg}``; ``op`` is ``#`` for a length, ``!`` for indirection, else the operator."""

    name: str
    line: int
    quoted: bool
    op: str = ""
    arg: str = ""
    index: str = ""


@dataclass(slots=True)
class Arith:
    """``$((expression))``."""

    text: str
    line: int
    quoted: bool


@dataclass(slots=True)
class Output:
    """``$(command)`` or backticks; the output of few commands is known."""

    text: str
    line: int
    quoted: bool


Segment = Lit | Param | Arith | Output


class Word:
    """One word of a command before expansion.

    ``plain`` is its text where it needs no expansion, as most words of long commands, and empty for any other:
    segments of such a word are made on first use.
    """

    __slots__ = ("_segments", "line", "plain")

    def __init__(self, segments: list[Segment] | None, line: int, plain: str = "") -> None:
        self._segments = segments
        self.line = line
        self.plain = plain

    @property
    def segments(self) -> list[Segment]:
        """The pieces that are expanded each by itself."""
        if self._segments is None:
            self._segments = [Lit(self.plain, self.line)]
        return self._segments

    @property
    def bare(self) -> str | None:
        """The word when it is one unquoted literal, else ``None``: only such a word can be a keyword."""
        if self.plain:
            return self.plain
        if len(self.segments) == 1 and isinstance(self.segments[0], Lit) and not self.segments[0].quoted:
            return self.segments[0].text
        return None


@dataclass(slots=True)
class Assignment:
    """``name=value``, ``name+=value``, ``name[index]=value`` or ``name=(words)``."""

    name: str
    line: int
    value: Word | None
    append: bool = False
    index: str = ""
    words: list[Word] | None = None


@dataclass(slots=True)
class Redirect:
    """A redirection: ``op`` as written, ``target`` a word; for a here-document ``body`` holds its text.

    ``is_other`` is true for descriptors other than standard input and output (``2>``).
    """

    op: str
    target: Word
    body: Word | None = None
    is_other: bool = False


@dataclass(slots=True)
class Simple:
    """A simple command with its assignments and redirections."""

    line: int
    assignments: list[Assignment] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)
    arrays: list[Assignment] = field(default_factory=list)


@dataclass(slots=True)
class Chain:
    """Commands joined by ``&&`` and ``||``: ``links`` holds the operator before each command, empty for the first."""

    links: list[tuple[str, Command]]


@dataclass(slots=True)
class Pipeline:
    """Commands joined by ``|``; ``negated`` by ``!``."""

    commands: list[Command]
    negated: bool = False


@dataclass(slots=True)
class Test:
    """``[[ ... ]]`` as its words."""

    words: list[Word]
    line: int


@dataclass(slots=True)
class ArithTest:
    """``(( ... ))``."""

    text: str
    line: int


@dataclass(slots=True)
class If:
    """``if``/``elif``/``else``: conditions with their bodies; the last condition is ``None`` for ``else``."""

    branches: list[tuple[list[Command] | None, list[Command]]]
    line: int


@dataclass(slots=True)
class Case:
    """``case word in``: patterns with their bodies; ``ends`` has the ``;;``, ``;&`` or ``;;&`` after each."""

    word: Word
    branches: list[tuple[list[Word], list[Command]]]
    line: int
    ends: list[str]


@dataclass(slots=True)
class Loop:
    """``for``, ``while``, ``until``, ``select``; ``words`` are those of a ``for name in words``.

    ``counting`` are the expressions of a ``for ((...))``; ``is_until``: the condition ends the loop.
    """

    variable: str
    condition: list[Command]
    body: list[Command]
    line: int
    words: list[Word] | None = None
    counting: str = ""
    is_until: bool = False


@dataclass(slots=True)
class Function:
    """A function definition."""

    name: str
    body: list[Command]
    line: int


@dataclass(slots=True)
class Group:
    """``{ ...; }``, or ``( ... )`` with ``subshell``; ``redirects`` are those of its output, and of other compounds."""

    body: list[Command]
    subshell: bool
    line: int
    redirects: list[Redirect] = field(default_factory=list)


Command = Simple | Chain | Pipeline | Test | ArithTest | If | Case | Loop | Function | Group

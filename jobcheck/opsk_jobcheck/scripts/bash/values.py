"""Defines the values of the shell evaluator: strings that may be partly unknown, variables and invocations.

A text is a sequence of parts; each part is a literal with its line, or unknown.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, NamedTuple

MAX_VALUE_CHARS = 1 << 16
"""A value that grows beyond this is no longer followed: ``X=$X$X`` in a hostile script must not fill the memory."""
MAX_VALUE_PARTS = 4096
MAX_ARRAY_WORDS = 4096
MAX_MENTIONS = 256
RUNS_SHELL_TEXT = "hands over"
"""The fact that a command only gives a text to a shell, in which commands were found."""
ONE_ARGUMENT = re.compile(r"\$[1-9]\d? is an argument of the script, not known here")
"""The reason for one argument of the script that is unknown."""
PRINTED = "it is what `"
"""Start of the reason for an unknown output: the same program need not print the same twice."""
CACHED_MODEL = re.compile(r"models--([\w.-]{1,60}?)--([\w.-]{1,96})/snapshots\b")
"""The folder of a model in the cache of HuggingFace's hub, with its organisation and its name."""
_new = tuple.__new__


class WordPart(NamedTuple):
    """A piece of text that was written on ``line``; when ``why`` is given the piece is unknown and ``text`` empty.

    ``filled``: an unknown piece is certainly not the empty string; ``many``: it may be several words, or none;
    ``mentions`` are the flags and overrides that it may hold; ``number``: it is a number, without a sign;
    ``closed``: it holds no others than those, with their values.
    A named tuple, as `Text` is: a script makes thousands of them, and a frozen dataclass takes three times as long to
    make.
    """

    text: str = ""
    line: int = 0
    why: str = ""
    filled: bool = False
    many: bool = False
    mentions: tuple[str, ...] = ()
    number: bool = False
    closed: bool = False


class Text(NamedTuple):
    """A string as far as it is known."""

    parts: tuple[WordPart, ...] = ()

    @property
    def known(self) -> str | None:
        """The whole string, or ``None`` when a part of it is unknown."""
        parts = self.parts
        if len(parts) == 1:  # nearly all texts: this runs thousands of times a script
            only = parts[0]
            return None if only.why else only.text
        for part in parts:
            if part.why:
                return None
        return "".join([part.text for part in parts])

    @property
    def line(self) -> int:
        """Line of the last piece that is not empty, 0 when there is none."""
        if len(self.parts) == 1 and self.parts[0].text:
            return self.parts[0].line
        for part in reversed(self.parts):
            if part.text or part.why:
                return part.line
        return 0

    @property
    def why(self) -> str:
        """Why the string is unknown: the reason of its first unknown part, empty when all is known."""
        return next((part.why for part in self.parts if part.why), "")

    @property
    def is_filled(self) -> bool | None:
        """Whether the string is not empty; ``None`` when that is unknown."""
        if any(part.text or part.filled for part in self.parts):
            return True
        return None if any(part.why for part in self.parts) else False

    @property
    def shown(self) -> str:
        """The string for display, unknown parts as an ellipsis."""
        parts = self.parts
        if len(parts) == 1:
            return "…" if parts[0].why else parts[0].text
        return "".join(["…" if part.why else part.text for part in parts])

    @property
    def key(self) -> str:
        """A string that is equal for texts that are certainly equal."""
        return "".join(_unknown_key(part) if part.why else part.text for part in self.parts)


NOTHING = Text()


@dataclass(frozen=True, slots=True)
class Scalar:
    """A variable that holds a string."""

    text: Text


@dataclass(frozen=True, slots=True)
class Array:
    """A variable that holds an array; ``why`` when its members are not known to be these."""

    words: tuple[Text, ...]
    why: str = ""


Variable = Scalar | Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """A command that the script would run: its words as far as known, in order of the script.

    ``certain`` is False inside a branch or loop of which it is not known whether it runs. ``directory`` is where it
    runs, relative to where the job starts; empty for that directory itself. ``facts`` caches values that many readers
    use (its program, its flags).
    """

    words: tuple[Text, ...]
    line: int
    certain: bool = True
    directory: Text = field(default_factory=Text)
    facts: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def known_words(self) -> tuple[str, ...]:
        """The words as far as they are known, empty strings in the place of others."""
        cached: tuple[str, ...] | None = self.facts.get("known words")
        if cached is None:
            cached = self.facts["known words"] = get_known_words(self.words)
        return cached

    @property
    def shown_words(self) -> tuple[str, ...]:
        """The words for display, unknown parts as an ellipsis."""
        cached: tuple[str, ...] | None = self.facts.get("shown words")
        if cached is None:
            pairs = zip(self.known_words, self.words, strict=True)
            cached = self.facts["shown words"] = tuple([known or word.shown for known, word in pairs])
        return cached


@dataclass(slots=True)
class Places:
    """The files that are read as one sequence of lines: the script first, then what it sources and starts.

    A line of such a file is counted from ``starts[i]`` on, so that one number identifies file and line.
    """

    starts: list[int] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    end: int = 1 << 20

    def add(self, file: str, lines: int) -> int:
        """Add a file of so many lines and return the offset of its line numbers."""
        start = self.end
        self.starts.append(start)
        self.files.append(file)
        self.end += lines + 1
        return start

    def locate(self, line: int) -> tuple[str, int]:
        """Return the file and the line in it; the script itself has no name here."""
        index = bisect_right(self.starts, line) - 1
        return (self.files[index], line - self.starts[index]) if index >= 0 else ("", line)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The result of evaluating a script to its end.

    ``files`` are the texts that the script itself writes (here-documents), by the ``Text.key`` of their path;
    ``sourced`` are the certain paths of files that it sources or starts and that were not given. ``changed`` are files
    that a command of the script changes in a way that is not followed, by path, with that command's name. ``steps`` is
    how much work the evaluation was.
    """

    invocations: tuple[Invocation, ...]
    variables: dict[str, Variable]
    files: dict[str, Text]
    sourced: tuple[str, ...] = ()
    problems: tuple[tuple[int, str], ...] = field(default=())
    changed: dict[str, str] = field(default_factory=dict)
    places: Places = field(default_factory=Places)
    steps: int = 0


def _unknown_key(part: WordPart) -> str:
    """Return a key that differs for unknown pieces that may differ."""
    return f"\0{part.why}\0{part.line}\0" if part.why.startswith(PRINTED) else f"\0{part.why}\0"


def get_known_words(words: Iterable[Text]) -> tuple[str, ...]:
    """Return words as far as they are known, empty strings in the place of others."""
    return tuple([word.known or "" for word in words])


def is_countable(words: Iterable[Text]) -> bool:
    """Return whether a row of words is certainly as long as it looks."""
    return not any(part.many for word in words for part in word.parts)


def may_be_files(words: Iterable[Text]) -> bool:
    """Return whether words may be patterns, which stand for the files that they match."""
    return any("*" in part.text or "?" in part.text for word in words for part in word.parts)


def literal(text: str, line: int) -> Text:
    """Return a wholly known text; made without the detour over defaults, for a script has hundreds of them."""
    if not text:
        return NOTHING
    part = _new(WordPart, (text, line, "", False, False, (), False, False))
    return _new(Text, ((part,),))


def unknown(why: str, line: int, *, filled: bool = False) -> Text:
    """Return a wholly unknown text."""
    return Text((WordPart("", line, why or "not known", filled),))


def join(texts: Sequence[Text]) -> Text:
    """Return the concatenation of texts, neighbouring literals of one line joined, within the size limits."""
    if len(texts) == 1 and len(texts[0].parts) == 1:  # nothing to be joined: most words
        only = texts[0].parts[0]
        if (only.text or only.why) and len(only.text) <= MAX_VALUE_CHARS:
            return texts[0]
    parts: list[WordPart] = []
    chars = 0
    open_line: int | None = None  # of the literal at the end, if there is one
    for text in texts:
        for part in text.parts:
            if part.why:
                parts.append(part)
                open_line = None
            elif piece := part.text:
                chars += len(piece)
                if part.line == open_line:
                    parts[-1] = WordPart(parts[-1].text + piece, open_line)
                else:
                    parts.append(part)
                    open_line = part.line
        if chars > MAX_VALUE_CHARS or len(parts) > MAX_VALUE_PARTS:
            return unknown("the value grows too long to be followed", parts[0].line if parts else 0, filled=True)
    return _new(Text, (tuple(parts),))


def blend(left: Text, right: Text, why: str, line: int) -> Text:
    """Return what two texts share at both ends, with one unknown piece between, cut at blanks.

    ``"a b"`` and ``"a b --more"`` give ``"a b "`` and an unknown rest: whatever is common stays certain, word by word.
    """
    if left.key == right.key:
        return left
    head = _find_shared(list(left.parts), list(right.parts), from_end=False)
    tail = _find_shared(_drop_parts(left.parts, head), _drop_parts(right.parts, head), from_end=True)
    rows = (_drop_parts(left.parts, head), _drop_parts(right.parts, head))
    middle = WordPart("", line, why, mentions=find_mentions((*rows[0], *rows[1])), closed=all(map(are_flags, rows)))
    return join((Text(tuple(head)), Text((middle,)), Text(tuple(tail))))


def are_flags(parts: Sequence[WordPart]) -> bool:
    """Return whether parts certainly are flags and overrides with their values, or nothing."""
    if any(part.why and not part.closed for part in parts):
        return False
    words = [word for part in parts for word in ((*part.mentions, "") if part.why else part.text.split())]
    return len(words) <= MAX_MENTIONS and all(
        word.startswith("-") or "=" in word or not word or before.startswith("-")
        for before, word in zip(["", *words], words, strict=False)
    )


def find_mentions(parts: Iterable[WordPart]) -> tuple[str, ...]:
    """Return the words of some parts that look like flags or overrides, and what unknown ones among them may hold."""
    words = {word for part in parts for word in (*part.mentions, *part.text.split())}
    return tuple(sorted(word for word in words if word.startswith("-") or "=" in word))[:MAX_MENTIONS]


def _find_shared(left: list[WordPart], right: list[WordPart], *, from_end: bool) -> list[WordPart]:
    """Return the parts that two rows share at their start or end, the last one cut at a blank."""
    if from_end:
        left, right = left[::-1], right[::-1]
    shared: list[WordPart] = []
    for left_part, right_part in zip_longest(left, right, fillvalue=WordPart()):
        if (left_part.text, left_part.why) == (right_part.text, right_part.why):
            shared.append(left_part)
            continue
        if piece := _find_common_words(left_part.text, right_part.text, from_end=from_end):
            shared.append(WordPart(piece, left_part.line))
        break
    return shared[::-1] if from_end else shared


def _find_common_words(left: str, right: str, *, from_end: bool) -> str:
    """Return the common start (or end) of two strings up to the last blank, with a blank at the open side."""
    common = _find_common_start(left[::-1], right[::-1]) if from_end else _find_common_start(left, right)
    whole = {len(left), len(right)}
    if len(common) in whole and _next_is_blank(left, right, len(common), from_end=from_end):
        return " " + common[::-1] if from_end else common + " "
    cut = max(common.rfind(sign) for sign in " \t\n") + 1
    return common[:cut][::-1] if from_end else common[:cut]


def _find_common_start(left: str, right: str) -> str:
    """Return the characters that two strings start with."""
    length = next(
        (index for index, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right))
    )
    return left[:length]


def _next_is_blank(left: str, right: str, length: int, *, from_end: bool) -> bool:
    """Return whether the longer of two strings goes on with a blank after ``length`` common characters."""
    longer = max(left, right, key=len)
    following = longer[::-1][length : length + 1] if from_end else longer[length : length + 1]
    return following in (" ", "\t", "\n")


def _drop_parts(parts: tuple[WordPart, ...], head: list[WordPart]) -> list[WordPart]:
    """Return parts without the characters of ``head``, which they start with (but for a blank added to it)."""
    count = sum(len(part.text) for part in head)
    unknown_count = sum(bool(part.why) for part in head)
    rest: list[WordPart] = []
    for part in parts:
        if part.why:
            if unknown_count:
                unknown_count -= 1
            else:
                rest.append(part)
            continue
        cut = min(count, len(part.text))
        count -= cut
        if part.text[cut:]:
            rest.append(WordPart(part.text[cut:], part.line))
    return rest

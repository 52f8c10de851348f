"""Parses the flags of a command, with the line of each value. The last one wins, as in argparse."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from opsk_jobcheck.scripts.bash.values import Invocation, Part, Text, literal, unknown

_FLAG = re.compile(r"--?[A-Za-z][A-Za-z0-9_.-]*")
_OVERRIDE = re.compile(r"\+{0,2}([a-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)+)=")
NO_VALUE = Text()
_new = tuple.__new__
"""Makes a named tuple without the detour over its defaults: a command has fifty flags."""


class Argument(NamedTuple):
    """One flag with its value; ``line`` is where the value was written, or the flag when it takes none.

    ``certain`` is False for a flag of which it is not known whether it is passed; its value is then unknown.
    ``written`` is the flag as the script writes it, with its underscores, for suggestions that users paste.
    ``word_index`` is the index of its word in the command.
    """

    flag: str
    value: Text
    line: int
    certain: bool = True
    written: str = ""
    word_index: int = 0

    @property
    def shown(self) -> str:
        """The flag and its value as a person would type them."""
        return f"{self.written or self.flag} {self.value.shown}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The flags and overrides of one command by name, and the wholly unknown words."""

    flags: dict[str, Argument]
    overrides: dict[str, Argument]
    opaque: tuple[Text, ...] = ()


def arguments_of(invocation: Invocation) -> Arguments:
    """Return the flags and overrides of a command, as `parse_arguments` does; computed once."""
    cached: Arguments | None = invocation.facts.get("arguments")
    if cached is None:
        cached = invocation.facts["arguments"] = parse_arguments(invocation.words)
    return cached


def parse_arguments(words: Iterable[Text], *, valueless: frozenset[str] = frozenset()) -> Arguments:
    """Return the flags (``--flag value``, ``--flag=value``) and overrides (``key.name=value``) among ``words``.

    ``valueless`` names flags that never take the next word.
    """
    flags: dict[str, Argument] = {}
    overrides: dict[str, Argument] = {}
    opaque: list[Text] = []
    row = tuple(words)
    heads = [parts[0].text if (parts := word.parts) and not parts[0].why else "" for word in row]
    marks = [_FLAG.match(head) if head[:1] == "-" else None for head in heads]
    for index, (word, head, mark) in enumerate(zip(row, heads, marks, strict=True)):
        if head[:1] == "-":
            if mark is None:
                continue
            written = mark.group()
            name, size = _flag_name(written), len(written)
            if head[size : size + 1] == "=":
                value = drop_prefix(word, size + 1)
            elif size == len(head) and len(word.parts) == 1:
                takes_next = index + 1 < len(row) and marks[index + 1] is None and name not in valueless
                value = row[index + 1] if takes_next else NO_VALUE
            else:
                continue
            flags[name] = _new(Argument, (name, value, value.line or word.line, True, written, index))
        elif "=" in head and (match := _OVERRIDE.match(head)):
            value = drop_prefix(word, match.end())
            line = value.line or word.line
            overrides[match.group(1)] = Argument(flag=match.group(1), value=value, line=line, word_index=index)
        elif not head and word.known is None and not word.parts[0].number:
            opaque.append(word)
            for part in word.parts:
                _doubt(part, flags, overrides, index)
    return Arguments(flags=flags, overrides=overrides, opaque=tuple(opaque))


@lru_cache(maxsize=4096)
def _flag_name(written: str) -> str:
    """Return the name of a flag; scripts have the same ones."""
    return "--" + written.lstrip("-").replace("_", "-")


def select_arguments_from(arguments: Arguments, words: Sequence[Text], start: int) -> Arguments:
    """Return the result of `parse_arguments` for the words from ``start`` on, from that for all words.

    The last of equal flags counts; one before those words is left out only where it is the last.
    """
    selected_ids = {id(word) for word in words[start:]} if arguments.opaque else set()
    return Arguments(
        flags={name: argument for name, argument in arguments.flags.items() if argument.word_index >= start},
        overrides={name: argument for name, argument in arguments.overrides.items() if argument.word_index >= start},
        opaque=tuple(word for word in arguments.opaque if id(word) in selected_ids),
    )


def _doubt(part: Part, flags: dict[str, Argument], overrides: dict[str, Argument], index: int) -> None:
    """Mark the settings that an unknown part of the command may hold as unknown."""
    value = unknown(part.why, part.line)
    for mention in part.mentions:
        if match := _FLAG.match(mention):
            name = _flag_name(match.group())
            flags[name] = Argument(flag=name, value=value, line=part.line, certain=False, word_index=index)
        elif match := _OVERRIDE.match(mention):
            name = match.group(1)
            overrides[name] = Argument(flag=name, value=value, line=part.line, certain=False, word_index=index)


def drop_prefix(text: Text, count: int) -> Text:
    """Return a text without its first ``count`` characters, which are known."""
    first = text.parts[0]
    rest = literal(first.text[count:], first.line)
    return Text((*rest.parts, *text.parts[1:]))

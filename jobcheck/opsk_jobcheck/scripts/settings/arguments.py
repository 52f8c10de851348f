"""Parses the settings of a command, with the line of each value; the last of equal flags wins, as in argparse."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from opsk_jobcheck.scripts.bash.values import ONE_ARGUMENT, Invocation, Text, WordPart, literal, unknown
from opsk_jobcheck.scripts.settings.config_file import ConfigFile

_FLAG = re.compile(r"--?[A-Za-z][A-Za-z0-9_.-]*")
_OVERRIDE = re.compile(r"\+{0,2}([a-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)+)=")
NO_VALUE = Text()
_new = tuple.__new__
"""Makes a named tuple without the detour over its defaults: a command has fifty flags."""
MAX_SETTINGS = 2000
MAX_DEPTH = 6
_HOLDS_FLAGS = re.compile(
    r"\w*(args?|argv|flags?|opts?|options?|extras?|params?|overrides?|cmd|command)(\W|_|$)|the script's arguments",
    re.IGNORECASE,
)
"""Start of the reason for an unknown variable that is named after flags."""
_HOLDS_ONE_FLAG = re.compile(
    r"\w*(args?|argv|flags?|opts?|options?|extras?)(\W|_|$)|the script's arguments", re.IGNORECASE
)
"""The same of one that is quoted, and so one word: ``"$overrides"`` is a value then."""
_OFF = frozenset({"", "0", "0.0", "false", "no", "off", "none", "null", "~", "full", "[]", "{}", "disabled"})


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


def get_arguments(invocation: Invocation) -> Arguments:
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
    taken: set[int] = set()
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
                if takes_next and _is_one_argument(value, row[index + 2 : index + 3]):
                    taken.add(index + 1)
            else:
                continue
            flags[name] = _new(Argument, (name, value, value.line or word.line, True, written, index))
        elif "=" in head and (match := _OVERRIDE.match(head)):
            value = drop_prefix(word, match.end())
            line = value.line or word.line
            overrides[match.group(1)] = Argument(flag=match.group(1), value=value, line=line, word_index=index)
        elif not head and word.known is None and not word.parts[0].number and index not in taken:
            if not all(part.closed for part in word.parts):
                opaque.append(word)
            for part in word.parts:
                _doubt(part, flags, overrides, index)
    return Arguments(flags=flags, overrides=overrides, opaque=tuple(opaque))


def _is_one_argument(word: Text, rest: tuple[Text, ...]) -> bool:
    """Return whether an unknown word is the value of the flag before it, and no more: ``--seed $1``, ``--lr $LR``.

    Unquoted, a variable may be several words or none; people give a flag one word. Variables that are named after
    flags, and those that may hold some, are not taken for a value.
    """
    if len(word.parts) == 1 and ONE_ARGUMENT.fullmatch(word.parts[0].why) is not None:
        return True
    is_quoted = not any(part.many for part in word.parts)
    named = _HOLDS_ONE_FLAG if is_quoted else _HOLDS_FLAGS
    if any(part.mentions or (part.why and named.match(part.why)) for part in word.parts):
        return False
    return not rest or not rest[0].parts or rest[0].parts[0].text[:1] == "-"


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


def _doubt(part: WordPart, flags: dict[str, Argument], overrides: dict[str, Argument], index: int) -> None:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting of a training program, from its command line or a file; ``value`` is ``None`` where unknown."""

    name: str
    value: str | None
    line: int = 0
    file: str = ""


def iterate_settings(config: ConfigFile) -> Iterator[Setting]:
    """Yield the settings of a configuration file."""
    waiting: list[tuple[str, ...]] = [(key,) for key in config.names()]
    for _ in range(MAX_SETTINGS):
        if not waiting:
            return
        path = waiting.pop(0)
        below = config.names(*path) if len(path) < MAX_DEPTH else ()
        entry = config.entry(*path)
        if below:
            waiting.extend((*path, key) for key in below)
        elif entry is not None:
            value = None if entry.why else "null" if entry.value is None else str(entry.value)
            yield Setting(name=".".join(path), value=value, line=entry.line, file=entry.file)


def iterate_command_settings(
    invocation: Invocation, *, is_relevant: Callable[[str], bool] = lambda _: True
) -> Iterator[Setting]:
    """Yield the flags and overrides of a command whose names are relevant, and its ``key=value`` words.

    The value of those that may be given or not is not known.
    """
    parsed = get_arguments(invocation)
    for argument in (*parsed.flags.values(), *parsed.overrides.values()):
        if is_relevant(argument.written or argument.flag):
            # a flag that takes no value is on
            value = argument.value.known if argument.value.parts else "true"
            yield Setting(name=argument.written or argument.flag, value=value, line=argument.line)
    for word, known in zip(invocation.words, invocation.known_words, strict=True):
        if "=" not in known:
            continue
        name, _, value = known.partition("=")
        if re.fullmatch(r"\+{0,2}[A-Za-z_][\w.]*", name):
            yield Setting(name=name.lstrip("+"), value=value, line=word.line)


def normalise_name(name: str) -> str:
    """Return the last part of a dotted name in the format that the rules use."""
    return name.lstrip("-").rpartition(".")[2].replace("-", "_").lower()


def is_off(value: str | None) -> bool:
    """Return whether a setting is switched off; an unknown one counts as on."""
    return value is not None and value.strip().lower() in _OFF

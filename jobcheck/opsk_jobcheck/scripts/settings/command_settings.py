"""Yields the settings of a training program, from its command line and its configuration files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from opsk_jobcheck.scripts.bash.values import Invocation
from opsk_jobcheck.scripts.settings.arguments import arguments_of
from opsk_jobcheck.scripts.settings.config_file import ConfigFile

MAX_SETTINGS = 2000
MAX_DEPTH = 6
_OFF = frozenset({"", "0", "0.0", "false", "no", "off", "none", "null", "~", "full", "[]", "{}", "disabled"})


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
    """Yield the flags and overrides of a command whose names are relevant, and its ``key=value`` words."""
    parsed = arguments_of(invocation)
    for argument in (*parsed.flags.values(), *parsed.overrides.values()):
        if argument.certain and is_relevant(argument.written or argument.flag):
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

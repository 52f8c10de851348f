"""Finds the values with which a program is started, for whoever follows its text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from opsk_jobcheck.scripts.bash.values import Text
from opsk_jobcheck.scripts.frameworks.own_models.arguments import Arguments, Flag
from opsk_jobcheck.scripts.frameworks.own_models.values import ABSENT, DATA
from opsk_jobcheck.scripts.frameworks.python.settings import ProgramSettings, get_last_name
from opsk_jobcheck.scripts.settings.config_file import ConfigFile, Entry
from opsk_jobcheck.scripts.settings.findings import parse_boolean

_WHOLE = re.compile(r"[+-]?\d{1,15}")
_NUMBER = re.compile(r"[+-]?(\d{1,15}(\.\d{0,15})?|\.\d{1,15})(e[+-]?\d{1,2})?", re.IGNORECASE)
MAX_ROW = 512
MAX_ENTRIES = 2000
MAX_DEPTH = 8
_FLAG = re.compile(r"--?[A-Za-z]")
_CONFIG = re.compile(r"\.(ya?ml|json|toml)$", re.IGNORECASE)


class StartedWith:
    """The settings of one program: its command line, the defaults of its parser, files of settings, variables."""

    def __init__(
        self,
        settings: ProgramSettings,
        arguments: Arguments,
        read_config: Callable[[str], ConfigFile | None],
        words: Sequence[Text] = (),
    ) -> None:
        self._settings = settings
        self._arguments = arguments
        self._read_config = read_config
        self._given = {get_last_name(name): entry for name, entry in settings.given if "." not in name}
        self._dotted = {name.lstrip("+"): entry for name, entry in settings.given if "." in name}
        self._of_files: dict[str, list[Entry]] = {}
        for name, entry in settings.of_files:
            self._of_files.setdefault(name, []).append(entry)
        self._words = _list_words(words)
        self._places = _find_places(words, arguments)
        self._last_names = {get_last_name(name) for name, _ in settings.of_files}

    def find(self, path: tuple[str, ...], *, of_file: bool) -> Any:
        """Return the value of a setting by its dotted name; ``DATA`` where it is not known, ``ABSENT`` for none."""
        if of_file or len(path) > 1:
            return self._find_in_files(".".join(path))
        name = path[0]
        if name in self._arguments.changed or "?" in self._arguments.changed:
            return DATA
        flags = self._arguments.flags.get(name, ())
        values = [self._find_flag(flag) for flag in flags]
        if not values:
            return self.find_given(name) if name in self._given else DATA
        if any(value is DATA or value != values[0] for value in values) or name.lower() in self._last_names:
            return DATA
        return values[0]

    def find_given(self, name: str) -> Any:
        """Return a value of the command line; ``ABSENT`` where none is given, ``DATA`` where it is not known."""
        entry = self._given.get(get_last_name(name))
        if entry is None:
            return DATA if self._settings.closed else ABSENT
        return DATA if entry.why else parse_text(entry.value)

    def list_names(self, path: tuple[str, ...]) -> list[str]:
        """Return the names of the settings of files below a dotted name."""
        start = "".join(f"{part}." for part in path)
        names = (name.removeprefix(start) for name in (*self._of_files, *self._dotted) if name.startswith(start))
        return list(dict.fromkeys(name.partition(".")[0] for name in names))[:MAX_ROW]

    def find_words(self) -> list[Any] | None:
        """Return the words of the command after the program; ``None`` where their number is not known."""
        return list(self._words) if self._words is not None else None

    def find_variable(self, name: str) -> Any:
        """Return a variable of the environment; ``ABSENT`` where the script does not set it."""
        if name not in self._settings.environment:
            return ABSENT
        value = self._settings.environment[name]
        return DATA if value is None else value

    def find_file(self, path: str) -> Any:
        """Return the settings of a file as a table; ``DATA`` where it is not at hand."""
        config = self._read_config(path) if _CONFIG.search(path) else None
        return DATA if config is None or config.why or self._dotted else _read_table(config, (), [MAX_ENTRIES])

    def _find_flag(self, flag: Flag) -> Any:
        """Return the value of a flag of the parser."""
        if flag.place is not None:
            return self._find_word(flag)
        if any(f"no_{name.lower()}" in self._given for name in flag.names):
            return DATA
        given = [self._given[name.lower()] for name in flag.names if name.lower() in self._given]
        if not given:
            return DATA if self._settings.closed else flag.default
        entry = given[-1]
        if any(other is not entry for other in given) or entry.why or flag.kind == "other":
            return DATA
        if flag.kind in ("store_true", "store_false"):
            return flag.kind == "store_true"
        if flag.kind == "text":
            return str(entry.value)
        if flag.kind == "truth":
            known = parse_boolean(entry.value)
            return DATA if known is None else known
        value = parse_text(entry.value)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return (float(value) if flag.kind == "float" else value) if is_number else DATA

    def _find_word(self, flag: Flag) -> Any:
        """Return the value of an argument of the parser that is no flag."""
        place = flag.place or 0
        if self._places is None or flag.kind == "other":
            return DATA
        if place >= len(self._places):
            return flag.default
        known = self._places[place]
        if known is None or flag.kind == "text":
            return DATA if known is None else known
        value = parse_text(known)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else DATA

    def _find_in_files(self, name: str) -> Any:
        """Return a value of a file of settings, or of the command line, by its whole name."""
        if name in self._dotted:
            entry = self._dotted[name]
            return DATA if entry.why else parse_text(entry.value)
        rows = self._of_files.get(name, [])
        values = [_as_value(entry) for entry in rows]
        if values:
            is_one = all(value is not DATA and value == values[0] for value in values)
            return values[0] if is_one and not self._settings.closed and name not in self._given else DATA
        return ABSENT if any(key.startswith(f"{name}.") for key in self._of_files) else DATA


def _list_words(words: Sequence[Text]) -> list[Any] | None:
    """Return the words of a command, ``DATA`` for one that is not known; ``None`` where one may be several."""
    if any(part.many for word in words for part in word.parts):
        return None
    return [DATA if word.known is None else word.known for word in words[:MAX_ROW]]


def _find_places(words: Sequence[Text], arguments: Arguments) -> list[str | None] | None:
    """Return the words that are neither flags nor their values; ``None`` where that is not known."""
    takes: dict[str, int | None] = {}
    for flag in (flag for flags in arguments.flags.values() for flag in flags):
        for name in flag.names:
            takes[name] = flag.takes if takes.get(name, flag.takes) == flag.takes else None
    places: list[str | None] = []
    left = 0
    for word in words[:MAX_ROW]:
        head = word.parts[0].text if word.parts and not word.parts[0].why else ""
        if any(part.many for part in word.parts):
            return None
        if head.startswith("-") and _FLAG.match(head):
            name, is_whole, _ = head.lstrip("-").partition("=")
            known = takes.get(name.replace("-", "_"))
            if known is None:
                return None
            left = 0 if is_whole else known
        elif left:
            left -= 1
        else:
            places.append(word.known)
    return places


def _read_table(config: ConfigFile, path: tuple[str, ...], room: list[int]) -> Any:
    """Return what a file has below a path as a table; ``room`` is how many values may still be read."""
    return {name: _read_value(config, (*path, name), room) for name in config.names(*path)}


def _read_value(config: ConfigFile, path: tuple[str, ...], room: list[int]) -> Any:
    """Return what a file has at a path: a value, a table, or a list of them."""
    room[0] -= 1
    if room[0] < 0 or len(path) > MAX_DEPTH:
        return DATA
    if config.names(*path):
        return _read_table(config, path, room)
    entry = config.entry(*path)
    count = config.count(*path)
    if count and (entry is None or entry.why) and count <= MAX_ROW:
        return [_read_value(config, (*path, str(place)), room) for place in range(count)]
    return {} if entry is None else _as_value(entry)


def _as_value(entry: Entry) -> Any:
    """Return a value of a file."""
    if entry.why:
        return DATA
    if isinstance(entry.value, tuple | list):
        is_plain = len(entry.value) <= MAX_ROW and all(isinstance(x, str | int | float) for x in entry.value)
        return list(entry.value) if is_plain else DATA
    return entry.value if entry.value is None or isinstance(entry.value, str | int | float) else DATA


def parse_text(value: object) -> Any:
    """Return a word of the command line as the value that it means."""
    text = str(value)
    if _WHOLE.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text):
        return float(text)
    return {"true": True, "false": False, "none": None, "null": None}.get(text.lower(), text)

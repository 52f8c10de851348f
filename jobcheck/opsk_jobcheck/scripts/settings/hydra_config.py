"""Composes the settings of a program that Hydra starts: its configuration, the groups of its defaults, and overrides.

Source: "The Defaults List", "Packages" and "Override syntax" in the documentation of Hydra 1.1 to 1.3. Groups that say
nothing about a training (loggers, evaluation, Hydra's own) are left out.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from opsk_jobcheck.scripts.settings.config_file import ConfigFile, Entry, Node

_DECORATOR = re.compile(r"@(?:hydra\.main|hydra_runner)\(((?:[^()]|\([^()]*\)){0,600})\)")
_PATH = re.compile(r"""\bconfig_path\s*=\s*["']([^"'{}]{1,200})["']""")
_NAME = re.compile(r"""\bconfig_name\s*=\s*["']([^"'{}]{1,200})["']""")
_PACKAGE = re.compile(r"#\s*@package\s+(\S{1,100})")
_LEFT_OUT = re.compile(
    r"hydra|.*logg(er|ers|ing)|callbacks?|paths?|extras?|debug|local|hparams_search|wandb|sweeper|launcher|help|log"
    r"|eval(uation|uator)?|generation|inference|prompts?|metrics?|visuali[sz]ation|plotting"
)
"""Groups that say nothing about what a training takes."""
_ADDED = re.compile(r"exp|experiments?|recipes?|hparams|overrides?|presets?|settings?")
"""Words that add a group for sure."""
_OPTION = re.compile(r"[A-Za-z_][\w.-]*(/[\w.-]+)*")
_SELF = "_self_"
MAX_FILES = 12
MAX_DEPTH = 4
MAX_PASSES = 3
MAX_OPTIONS = 32
MAX_LINES = 20_000
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where Hydra finds a program's configuration: a folder relative to the program's file, and a name in it.

    ``has_store`` tells that configurations may be classes of the program (``ConfigStore``), and have no file.
    """

    folder: str
    name: str
    has_store: bool = False


@dataclass(slots=True)
class Composed:
    """The composed settings, and the words of the command line that chose a group's option, and are no settings."""

    config: ConfigFile
    choices: frozenset[str] = frozenset()


def find_hydra(text: str) -> Start | None:
    """Return where the program of this text has its configuration; ``None`` where Hydra does not start it."""
    match = _DECORATOR.search(text) if "hydra" in text else None
    if match is None:
        return None
    path, name = _PATH.search(match[1]), _NAME.search(match[1])
    if path is None and "config_path" in match[1]:
        return None  # it is computed
    return Start(folder=path[1] if path else "", name=name[1] if name else "", has_store="ConfigStore" in text)


def compose(
    start: Start, folder: str, given: Mapping[str, Entry], read: Callable[[str], ConfigFile]
) -> Composed | None:
    """Return what the program is started with; ``None`` where the configuration has no name.

    Parameters
    ----------
    folder
        That of the program's file.
    given
        The words ``key=value`` and the flags of the command line.
    read
        Returns a file of settings by its path; one that is not at hand has a reason, and is asked for.
    """
    name = _get_text(given.get("config_name")) or start.name
    if not name:
        return None
    place = _get_text(given.get("config_path")) or start.folder
    root = posixpath.normpath(posixpath.join(folder, place)) if folder or place else ""
    return _Composer(root, given, read, start.has_store).compose(name.removesuffix(".yaml"))


def _get_text(entry: Entry | None) -> str:
    """Return a word of the command line, empty where none is given or known."""
    return str(entry.value) if entry is not None and not entry.why and entry.value is not None else ""


@dataclass(slots=True)
class _Composer:
    """Reads the files of one configuration, and merges them."""

    root: str
    given: Mapping[str, Entry]
    read: Callable[[str], ConfigFile]
    has_store: bool
    chosen: dict[str, object] = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)
    files: int = 0
    why: str = ""
    values: Node = field(default_factory=lambda: Node({}, 0))
    lines: list[str] = field(default_factory=list)
    sources: list[tuple[int, str]] = field(default_factory=list)

    def compose(self, name: str) -> Composed:
        """Return the composed settings; where a file is not at hand, they have the reason."""
        path = posixpath.join(self.root, f"{name}.yaml")
        for _ in range(MAX_PASSES):
            before = dict(self.chosen)
            self.files, self.why, self.values = 0, "", Node({}, 0)
            self.lines, self.sources, self.groups = [], [], set()
            self._add(name, group="", package="", depth=0)
            for key in self._list_added():
                place = posixpath.join(self.root, key, f"{self.given[key].value}.yaml")
                if _ADDED.fullmatch(key) or not self.read(place).why:
                    self._add_option(key, self.given[key].value, package=key, depth=0)
            if self.chosen == before:
                break
        choices = frozenset(key for key in self.given if key in self.groups)
        overrides = {key: entry for key, entry in self.given.items() if key not in choices}
        config = ConfigFile(
            path=path,
            root=self.values,
            lines=tuple(self.lines),
            why=self.why,
            overrides={key: entry for key, entry in overrides.items() if "." in key},
            sources=tuple(self.sources),
        )
        return Composed(config=config, choices=choices)

    def _list_added(self) -> list[str]:
        """Return the words that may add a group that the defaults do not have: ``+experiment=large``."""
        return [
            key
            for key, entry in self.given.items()
            if entry.text.startswith("+")
            and "." not in key
            and key not in self.groups
            and _OPTION.fullmatch(_get_text(entry))
            and _get_text(entry).lower() not in _WORDS
        ][:MAX_OPTIONS]

    def _add(self, name: str, *, group: str, package: str, depth: int) -> None:
        """Add a file, and those that its defaults name, in their order; its own values come last unless it says so.

        Source: ``_validate_self`` in ``hydra/_internal/defaults_list.py`` of Hydra 1.1 to 1.3.
        """
        if self.files >= MAX_FILES or depth > MAX_DEPTH:
            self.why = self.why or "its configuration has more groups than opsk reads"
            return
        self.files += 1
        path = posixpath.join(self.root, group, f"{name}.yaml")
        config = self.read(path)
        if config.why and self.has_store and depth:
            return
        if config.why or config.reasons or not isinstance(config.root.value, dict):
            # the others are asked for at the same time
            self.why = self.why or config.why or f"the settings are in {path[:120]}, which opsk cannot read"
            return
        if (header := next(filter(None, map(_PACKAGE.match, config.lines[:5])), None)) is not None:
            package = "" if header[1] == "_global_" else package if header[1] == "_group_" else header[1]
        own = {key: node for key, node in config.root.value.items() if key != "defaults"}
        defaults = config.root.value.get("defaults")
        entries = defaults.value if defaults is not None and isinstance(defaults.value, list) else []
        shift = len(self.lines)
        self.lines += config.lines[: max(0, MAX_LINES - shift)]
        self.sources.append((shift, config.path))
        for entry in entries[:MAX_OPTIONS]:
            if entry.value == _SELF:
                self._merge(own, package, shift)
            else:
                self._add_default(entry, group=group, package=package, depth=depth)
        if all(entry.value != _SELF for entry in entries):
            self._merge(own, package, shift)

    def _add_default(self, entry: Node, *, group: str, package: str, depth: int) -> None:
        """Add what one entry of a list of defaults names."""
        if isinstance(entry.value, str):
            name = entry.value.partition("@")[0]
            inside = "" if name.startswith("/") else group
            self._add(name.removeprefix("/"), group=inside, package=package, depth=depth + 1)
            return
        if not isinstance(entry.value, dict):
            return
        for written, option in entry.value.items():
            words = written.split()
            key, _, where = (words[-1] if words else "").partition("@")
            place = key.removeprefix("/") if key.startswith("/") or not group else f"{group}/{key}"
            if (
                not place
                or _LEFT_OUT.fullmatch(place.partition("/")[0])
                or _LEFT_OUT.fullmatch(place.rpartition("/")[2])
            ):
                self.groups.add(place)
                continue
            if "override" in words[:-1]:
                if place not in self.given:
                    self.chosen[place] = option.value
                continue
            below = key.replace("/", ".").removeprefix(".")
            below = where.removeprefix("_global_.").removeprefix("_here_.") if where else below
            inner = f"{package}.{below}" if package else below
            inner = "" if where == "_global_" else package if where == "_here_" else inner
            self._add_option(place, option.value, package=inner, depth=depth)

    def _add_option(self, group: str, option: object, *, package: str, depth: int) -> None:
        """Add the chosen options of a group: that of the command line, of an override, or of the defaults."""
        given = self.given.get(group)
        if given is not None and given.why:
            self.why = self.why or given.why
            return
        chosen = given.value if given is not None else self.chosen.get(group, option)
        if given is not None or group in self.chosen:
            self.groups.add(group)
        rows = [row.value for row in chosen if isinstance(row, Node)] if isinstance(chosen, list) else [chosen]
        for row in rows[:MAX_OPTIONS]:
            if row is None or row == "null":
                continue
            if _OPTION.fullmatch(str(row).removesuffix(".yaml")) is None:
                self.why = self.why or f"the option of {group[:60]} is not known"
                return
            self._add(str(row).removesuffix(".yaml"), group=group, package=package, depth=depth + 1)
        self.groups.add(group)

    def _merge(self, own: Mapping[str, Node], package: str, shift: int) -> None:
        """Merge a file's own values below its package."""
        target = self.values.value
        for key in package.split(".") if package else ():
            node = target.get(key)
            if node is None or not isinstance(node.value, dict):
                node = target[key] = Node({}, 0)
            target = node.value
        _merge_into(target, own, shift)


def _merge_into(target: dict[str, Node], own: Mapping[str, Node], shift: int) -> None:
    """Merge values into others, which they replace, with the lines that they have behind other files."""
    for key, node in own.items():
        held = target.get(key)
        if not isinstance(node.value, dict):
            target[key] = Node(node.value, node.line + shift)
            continue
        if held is None or not isinstance(held.value, dict):
            held = target[key] = Node({}, node.line + shift)
        _merge_into(held.value, node.value, shift)

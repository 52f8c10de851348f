"""Parses ``topology.yaml``: several named topologies, each a tree, blocks, rings, toruses or flat.

Slurm reads it from 25.05 on, instead of ``topology.conf`` (topology.yaml(5); the words are those of Slurm's data_parser
v0.0.43 to v0.0.46). The model files of topograph, which describe a whole fabric, are read as a tree and blocks; see
`opsk.slurm.topology.model_file`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import yaml

from opsk.errors import InputError
from opsk.hostlist import expand
from opsk.slurm.topology.conf import SwitchLine, TopologyConf, is_topology_conf, read_topology_conf
from opsk.slurm.topology.model_file import is_model, read_model

MAX_CHARACTERS = 4_000_000
"""A topology of 10,000 nodes takes about 100 kB."""
MAX_DEPTH = 20
"""Slurm's deepest topology (a placement of a torus) nests 8 deep."""
MAX_DAMAGED_LINES = 20
"""Lines that do not fit are left out one by one; a file with more of them is no YAML."""


class _PlainLoader(yaml.BaseLoader):
    """Builds texts, lists and maps: ``007`` stays a name, and ``yes`` a word. Aliases are refused: they multiply."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._nested = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Compose one node, refusing aliases and what is nested too deep."""
        if self.check_event(yaml.AliasEvent):
            raise _build_refusal(self, "uses an alias (*name), which no topology needs")
        if self._nested >= MAX_DEPTH:
            raise _build_refusal(self, f"is nested more than {MAX_DEPTH} deep")
        self._nested += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._nested -= 1


class _RefusedError(yaml.YAMLError):
    """What may be YAML, but is not read."""


def load_yaml(text: str, *, source: str) -> tuple[Any, tuple[str, ...]]:
    """Return the first document of a YAML text with every scalar as text, and which lines had to be left out.

    Raises
    ------
    InputError
        When it is not YAML, too large, nested too deep, or uses aliases.
    """
    if len(text) > MAX_CHARACTERS:
        raise InputError(
            f"{source}: larger than {MAX_CHARACTERS} characters, no topology is", hint="is it the right file?"
        )
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    problems: list[str] = []
    while True:
        try:
            return _first_document("\n".join(lines)), tuple(problems)
        except _RefusedError as error:
            raise InputError(f"{source}: {error}", hint="write it out, as Slurm's topology.yaml(5) shows") from error
        except (yaml.YAMLError, ValueError) as error:
            number, what = _locate_error(error)
            if number is None or len(problems) >= MAX_DAMAGED_LINES or not lines[number].strip():
                where = f"{source}:{number + 1}" if number is not None else source
                raise InputError(f"{where}: no YAML: {what}", hint="give a topology.conf or topology.yaml") from error
            problems.append(f"{source}:{number + 1}: left out: {what}: {lines[number].strip()[:80]!r}")
            lines[number] = ""


def _first_document(text: str) -> Any:
    """Return the first document; what follows after ``---`` is another matter."""
    loader = _PlainLoader(text)
    try:
        return loader.get_data() if loader.check_data() else None  # type: ignore[no-untyped-call]
    finally:
        with contextlib.suppress(AttributeError):
            loader.dispose()


def _build_refusal(loader: Any, why: str) -> _RefusedError:
    """Return the refusal of what comes next."""
    mark = loader.peek_event().start_mark
    return _RefusedError(f"line {mark.line + 1} {why}")


def _locate_error(error: Exception) -> tuple[int | None, str]:
    """Return the line (from 0) that an error is about, and what is wrong there."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return error.problem_mark.line, str(error.problem or error.context or "cannot be read")[:120]
    return None, str(error).split("\n", 1)[0][:120]


KINDS = ("tree", "block", "flat", "ring", "torus3d")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTopology:
    """One topology of a file. ``kind`` is a word of ``KINDS``; the one with ``is_default`` is the cluster's default."""

    name: str
    kind: str
    conf: TopologyConf
    is_default: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyFile:
    """The topologies of a file, in the order written, and the parts without effect."""

    topologies: tuple[NamedTopology, ...]
    problems: tuple[str, ...] = ()

    @property
    def default(self) -> NamedTopology:
        """The topology of partitions that name none: the first marked as default, else the first."""
        return next((topology for topology in self.topologies if topology.is_default), self.topologies[0])

    def of_kind(self, kind: str) -> NamedTopology | None:
        """Return the first topology of a kind."""
        return next((topology for topology in self.topologies if topology.kind == kind), None)


def read_topology(text: str, *, source: str) -> TopologyFile:
    """Return the topologies of a ``topology.conf``, a ``topology.yaml``, or a model file of topograph.

    Raises
    ------
    InputError
        When it defines no topology.
    """
    if is_topology_conf(text):
        conf = read_topology_conf(text, source=source)
        kind = "tree" if conf.switches else "block" if conf.blocks else "ring"
        named = NamedTopology(name="default", kind=kind, conf=conf, is_default=True)
        return TopologyFile(topologies=(named,), problems=conf.problems)
    loaded, problems = load_yaml(text, source=source)
    if is_model(loaded):
        conf = read_model(loaded, source=source)
        named = NamedTopology(name="model", kind="tree" if conf.switches else "block", conf=conf, is_default=True)
        return TopologyFile(topologies=(named,), problems=(*problems, *conf.problems))
    return _topologies(loaded, problems, source)


def is_topology(text: str) -> bool:
    """Return whether a text looks like one of those that `read_topology` reads, without reading all of it."""
    start = text[:200_000]
    lines = [line.strip() for line in start.split("\n")]
    return is_topology_conf(start) or any(
        line.startswith(("- topology:", "topology:", "switches:", "blocks:", "capacity_blocks:")) for line in lines
    )


def _topologies(loaded: Any, problems: tuple[str, ...], source: str) -> TopologyFile:
    """Return Slurm's topologies: a list of maps, or one map."""
    entries = [loaded] if isinstance(loaded, dict) else loaded if isinstance(loaded, list) else []
    topologies: list[NamedTopology] = []
    wrong = list(problems)
    for number, entry in enumerate(entries):
        where = f"{source}: topology {number}"
        kinds = [kind for kind in KINDS if isinstance(entry, dict) and kind in entry]
        if len(kinds) != 1:
            wrong.append(f"{where}: needs exactly one of {', '.join(KINDS)}, has {', '.join(kinds) or 'none'}")
            continue
        name = _text(entry.get("topology"))
        if not name:
            wrong.append(f"{where}: has no name (topology:)")
        elif any(name == topology.name for topology in topologies):
            wrong.append(f"{where}: the name {name[:80]!r} is taken already")
        default = _text(entry.get("cluster_default")).lower() in ("true", "yes", "on", "1")
        conf = _READERS[kinds[0]](entry[kinds[0]], where)
        topologies.append(NamedTopology(name=name or f"topology{number}", kind=kinds[0], conf=conf, is_default=default))
        wrong += conf.problems
    if not topologies:
        raise InputError(
            "; ".join(wrong) or f"{source}: defines no topology", hint="give a topology.conf or topology.yaml"
        )
    return TopologyFile(topologies=tuple(topologies), problems=tuple(wrong))


def _tree(value: Any, where: str) -> TopologyConf:
    """Read ``switches:``."""
    switches: dict[str, SwitchLine] = {}
    problems: list[str] = []
    for entry, name in _list_named(value, "switches", "switch", where, problems, switches):
        line = SwitchLine(
            name=name,
            nodes=_hosts(entry.get("nodes"), where, problems),
            switches=_hosts(entry.get("children"), where, problems),
        )
        if bool(line.nodes) == bool(line.switches):
            problems.append(f"{where}: switch {name[:80]} needs either nodes or children")
        switches[name] = line
    return TopologyConf(switches=switches, problems=tuple(problems))


def _blocks(value: Any, where: str) -> TopologyConf:
    """Read ``block_sizes:`` and ``blocks:``."""
    groups, problems = _groups(value, "blocks", "block", where)
    sizes = value.get("block_sizes") if isinstance(value, dict) else None
    listed = [_text(size) for size in sizes] if isinstance(sizes, list) else [_text(sizes)] if sizes else []
    problems += [f"{where}: block size {size[:20]!r} is no number" for size in listed if not size.isdecimal()]
    return TopologyConf(blocks=groups, block_sizes=",".join(listed) or None, problems=tuple(problems))


def _rings(value: Any, where: str) -> TopologyConf:
    """Read ``rings:``."""
    groups, problems = _groups(value, "rings", "ring", where)
    return TopologyConf(rings=groups, problems=tuple(problems))


def _toruses(value: Any, where: str) -> TopologyConf:
    """Read ``toruses:``; a torus holds its nodes, or regions that do."""
    problems: list[str] = []
    toruses: dict[str, tuple[str, ...]] = {}
    for entry, name in _list_named(value, "toruses", "name", where, problems, toruses):
        regions = entry.get("regions")
        parts = [region.get("nodes") for region in _maps(regions)] if regions else [entry.get("nodes")]
        toruses[name] = tuple(dict.fromkeys(node for part in parts for node in _hosts(part, where, problems)))
        dims = entry.get("dims")
        sizes = [_text(size) for size in dims.values()] if isinstance(dims, dict) else []
        cells = math.prod(int(size) for size in sizes if size.isdecimal() and len(size) < 10)
        if not sizes or cells < len(toruses[name]):
            problems.append(f"{where}: torus {name[:80]} has {len(toruses[name])} nodes in {cells} cells")
    return TopologyConf(toruses=toruses, problems=tuple(problems))


def _flat(value: Any, where: str) -> TopologyConf:
    """Read ``flat:``, which names no nodes."""
    known = isinstance(value, dict) or _text(value).lower() in ("true", "yes", "on", "1")
    return TopologyConf(problems=() if known else (f"{where}: flat is neither true nor a map of options",))


_READERS: Mapping[str, Callable[[Any, str], TopologyConf]] = {
    "tree": _tree, "block": _blocks, "flat": _flat, "ring": _rings, "torus3d": _toruses,
}  # fmt: skip


def _groups(value: Any, key: str, word: str, where: str) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """Return groups of nodes by name: blocks or rings."""
    problems: list[str] = []
    groups: dict[str, tuple[str, ...]] = {}
    for entry, name in _list_named(value, key, word, where, problems, groups):
        groups[name] = _hosts(entry.get("nodes"), where, problems)
    return groups, problems


def _list_named(
    value: Any, key: str, word: str, where: str, problems: list[str], taken: Mapping[str, object]
) -> list[tuple[Mapping[str, Any], str]]:
    """Return the maps of a list with their names; what is no map, or has no name of its own, is a problem."""
    entries = value.get(key) if isinstance(value, dict) else None
    if not isinstance(entries, list):
        problems.append(f"{where}: has no list of {key}")
        return []
    entry_by_name: dict[str, Mapping[str, Any]] = {}
    for number, entry in enumerate(entries):
        name = _text(entry.get(word)) if isinstance(entry, dict) else ""
        if not name:
            problems.append(f"{where}: entry {number} of {key} has no name ({word}:)")
        elif name in entry_by_name or name in taken:
            problems.append(f"{where}: {word} {name[:80]} is defined already")
        else:
            entry_by_name[name] = entry
    return [(entry, name) for name, entry in entry_by_name.items()]


def _maps(value: Any) -> list[Mapping[str, Any]]:
    """Return the maps of a list."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _hosts(value: Any, where: str, problems: list[str]) -> tuple[str, ...]:
    """Return the names of a host list, or of a list of host lists."""
    names: dict[str, None] = {}
    for text in value if isinstance(value, list) else [value]:
        try:
            names.update(dict.fromkeys(expand(_text(text))))
        except InputError as error:
            problems.append(f"{where}: {error.message}")
    return tuple(names)


def _text(value: Any) -> str:
    """Return a scalar's text; lists, maps and nothing have none."""
    return value.strip() if isinstance(value, str) else ""


def merge_topologies(file: TopologyFile) -> TopologyConf:
    """Return the topologies of a file as one, for a look at all that it names: the tree of the first, all blocks."""
    whole = TopologyConf(problems=file.problems)
    for topology in file.topologies:
        whole = replace(
            whole,
            switches=whole.switches or topology.conf.switches,
            blocks=whole.blocks or topology.conf.blocks,
            block_sizes=whole.block_sizes or topology.conf.block_sizes,
            rings=whole.rings or topology.conf.rings,
            toruses=whole.toruses or topology.conf.toruses,
        )
    return whole

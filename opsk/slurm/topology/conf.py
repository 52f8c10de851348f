"""Parses ``topology.conf`` as Slurm reads it, and renders a topology as that or as an entry of ``topology.yaml``.

The parser reads trees, blocks and rings, with the lines that have no effect, and the output of ``scontrol show
topology`` as well: the same words, with levels and indexes that Slurm computed. What is rendered depends only on the
topology, not on time or host, and follows the order of the cabling's own names.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from opsk.errors import InputError
from opsk.hostlist import expand, fold

_PAIR = re.compile(r"(\w+)\s*=\s*(\"[^\"]*\"|\S+)")
_SAFE_NAME = re.compile(r"[A-Za-z0-9._\-]{1,255}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchLine:
    """One switch, host lists expanded; ``line`` is where it is defined, 0 when that is not known."""

    name: str
    nodes: tuple[str, ...]
    switches: tuple[str, ...]
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyConf:
    """One topology: switches by name, blocks, rings and toruses with their nodes, in the order written.

    ``block_sizes`` is the text of ``BlockSizes``; ``problems`` names lines without effect.
    """

    switches: Mapping[str, SwitchLine] = field(default_factory=dict)
    blocks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    block_sizes: str | None = None
    rings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    toruses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """Nodes by the leaf switch, block, ring or torus that they are in."""
        leaves = {name: switch.nodes for name, switch in self.switches.items() if switch.nodes}
        return {**leaves, **self.blocks, **self.rings, **self.toruses}

    @property
    def nodes(self) -> tuple[str, ...]:
        """All nodes, each once, in the order written."""
        return tuple(dict.fromkeys(node for lists in self._node_lists() for nodes in lists for node in nodes))

    @property
    def nodes_listed_twice(self) -> tuple[str, ...]:
        """Nodes under two leaf switches, or in two blocks, rings or toruses; sorted."""
        twice: set[str] = set()
        for lists in self._node_lists():
            counts = Counter(node for nodes in lists for node in set(nodes))
            twice.update(node for node, count in counts.items() if count > 1)
        return tuple(sorted(twice))

    @property
    def leaf_switches(self) -> tuple[str, ...]:
        """Switches with nodes."""
        return tuple(name for name, switch in self.switches.items() if switch.nodes)

    @property
    def undefined(self) -> tuple[str, ...]:
        """Switches that a ``Switches=`` names, but no line defines."""
        named = {child for switch in self.switches.values() for child in switch.switches}
        return tuple(sorted(named - self.switches.keys()))

    @property
    def roots(self) -> tuple[str, ...]:
        """Switches that are under no other, sorted."""
        below = {child for switch in self.switches.values() for child in switch.switches}
        return tuple(sorted(self.switches.keys() - below))

    @property
    def levels(self) -> int:
        """Levels of switches on the longest way down from a root; a loop counts once."""
        return max(self._depths().values(), default=0)

    def nodes_below(self, name: str) -> frozenset[str]:
        """Return all nodes under a switch, however deep; a loop is walked once."""
        seen: set[str] = set()
        nodes: set[str] = set()
        waiting = [name]
        while waiting:
            current = waiting.pop()
            if current in seen or current not in self.switches:
                continue
            seen.add(current)
            nodes.update(self.switches[current].nodes)
            waiting += self.switches[current].switches
        return frozenset(nodes)

    def _node_lists(self) -> list[list[tuple[str, ...]]]:
        """Return the nodes of each leaf switch, of each block, of each ring, of each torus."""
        leaves = [switch.nodes for switch in self.switches.values()]
        return [leaves, list(self.blocks.values()), list(self.rings.values()), list(self.toruses.values())]

    def _depths(self) -> dict[str, int]:
        """Return the levels below and with each switch, without recursion: a chain may be as long as the file."""
        depth: dict[str, int] = {}
        opened: set[str] = set()
        for start in self.switches:
            waiting = [start]
            while waiting:
                name = waiting[-1]
                children = self.switches[name].switches
                if name not in opened:
                    opened.add(name)
                    waiting += [child for child in children if child in self.switches and child not in opened]
                else:
                    waiting.pop()
                    if name not in depth:
                        depth[name] = 1 + max((depth.get(child, 0) for child in children), default=0)
        return depth


def summarise_topology(conf: TopologyConf) -> dict[str, object]:
    """Return the numbers and names that a topology is known by."""
    return {
        "switches": len(conf.switches),
        "leaf_switches": len(conf.leaf_switches),
        "levels": conf.levels,
        "roots": list(conf.roots),
        "switches_named_but_not_defined": list(conf.undefined),
        "block_count": len(conf.blocks),
        "block_sizes": conf.block_sizes,
        "blocks": {block: len(nodes) for block, nodes in conf.blocks.items()},
        "nodes": len(conf.nodes),
        "nodes_listed_twice": list(conf.nodes_listed_twice),
    }


def is_topology_conf(text: str) -> bool:
    """Return whether a line of the text defines a switch, a block or a ring as ``topology.conf`` does."""
    return re.search(r"^[ \t]*(?:SwitchName|BlockName|BlockSizes|RingName)[ \t]*=", text, re.M | re.I) is not None


def read_topology_conf(text: str, *, source: str = "topology.conf") -> TopologyConf:
    """Return the topology of a ``topology.conf`` (tree, block or ring), or of ``scontrol show topology``.

    Raises
    ------
    InputError
        When it defines neither a switch nor a block nor a ring.
    """
    reader = _Reader(source)
    for number, line in _join_lines(text.removeprefix("\ufeff")):
        keys = {key.lower(): value.strip('"') for key, value in _PAIR.findall(line)}
        try:
            reader.take(keys, number, line)
        except InputError as error:
            reader.problems.append(f"{source}:{number}: {error.message}")
    if not reader.switches and not reader.blocks and not reader.rings:
        raise InputError(f"{source}: defines no switch and no block", hint="give a topology.conf or topology.yaml")
    return TopologyConf(
        switches=reader.switches,
        blocks=reader.blocks,
        block_sizes=reader.sizes,
        rings=reader.rings,
        problems=tuple(reader.problems),
    )


class _Reader:
    """Collects the content of the lines."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.switches: dict[str, SwitchLine] = {}
        self.blocks: dict[str, tuple[str, ...]] = {}
        self.rings: dict[str, tuple[str, ...]] = {}
        self.sizes: str | None = None
        self.problems: list[str] = []

    def take(self, keys: Mapping[str, str], number: int, line: str) -> None:
        """Take one line."""
        if "switchname" in keys:
            self._take_switches(keys, number)
        elif "blockname" in keys:
            self._take_group(self.blocks, keys["blockname"], keys, number)
        elif "ringname" in keys:
            self._take_group(self.rings, keys["ringname"], keys, number)
        elif "blocksizes" not in keys and "aggregatedblock" not in keys:
            self._complain(number, f"neither SwitchName, BlockName nor BlockSizes: {line[:80]!r}")
        self.sizes = keys.get("blocksizes", self.sizes)

    def _take_group(self, groups: dict[str, tuple[str, ...]], name: str, keys: Mapping[str, str], number: int) -> None:
        """Take one block or ring."""
        if name in groups:
            self._complain(number, f"{name[:80]} is defined already")
        groups[name] = expand(keys.get("nodes", ""))

    def _take_switches(self, keys: Mapping[str, str], number: int) -> None:
        """Take one ``SwitchName`` line, which may name several switches."""
        nodes, children = expand(keys.get("nodes", "")), expand(keys.get("switches", ""))
        if "level" in keys and children:
            nodes = ()  # Slurm shows all nodes below a switch as its nodes, too
        if bool(nodes) == bool(children):
            self._complain(number, f"{keys['switchname'][:80]} needs either Nodes or Switches")
        line = SwitchLine(name="", nodes=nodes, switches=children, line=number)
        for name in expand(keys["switchname"]):
            if name in self.switches:
                self._complain(number, f"{name} is defined in line {self.switches[name].line} already")
            self.switches[name] = replace(line, name=name)

    def _complain(self, number: int, what: str) -> None:
        self.problems.append(f"{self.source}:{number}: {what}")


def _join_lines(text: str) -> list[tuple[int, str]]:
    """Return numbered lines without comments, those ended by a backslash joined with the next."""
    lines: list[tuple[int, str]] = []
    pending, start = "", 0
    for number, raw in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        line = raw.split("#", 1)[0].strip()
        start = start if pending else number
        pending += line.removesuffix("\\")
        if line.endswith("\\"):
            pending += " "
            continue
        if pending.strip():
            lines.append((start, pending.strip()))
        pending = ""
    if pending.strip():
        lines.append((start, pending.strip()))
    return lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A switch or a block to write: it has ``nodes`` or ``children``, and maybe a ``comment``."""

    name: str
    nodes: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    comment: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmTopology:
    """A topology to write: ``kind`` is ``tree`` or ``block``; ``notes`` are comments on the whole.

    ``segment`` is the ``--segment`` to recommend: the nodes of a block that jobs should count on; 0 for trees.
    """

    kind: str
    entries: tuple[Entry, ...]
    block_sizes: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    segment: int = 0
    left_out: tuple[str, ...] = ()

    @property
    def conf(self) -> TopologyConf:
        """The same as a reader would find it."""
        if self.kind == "block":
            blocks = {entry.name: entry.nodes for entry in self.entries}
            return TopologyConf(blocks=blocks, block_sizes=",".join(map(str, self.block_sizes)))
        switches = {
            entry.name: SwitchLine(name=entry.name, nodes=entry.nodes, switches=entry.children)
            for entry in self.entries
        }
        return TopologyConf(switches=switches)


def render_conf(written: SlurmTopology, *, heading: Iterable[str] = ()) -> str:
    """Return a ``topology.conf``."""
    lines = [f"# {sanitise_comment(note)}" for note in (*heading, *written.notes)]
    word = "BlockName" if written.kind == "block" else "SwitchName"
    for entry in written.entries:
        if entry.comment:
            lines.append(f"# {entry.name}: {sanitise_comment(entry.comment)}")
        below = f" Switches={fold(entry.children)}" if entry.children else ""
        below += f" Nodes={fold(entry.nodes)}" if entry.nodes else ""
        lines.append(f"{word}={entry.name}{below}")
    if written.block_sizes:
        lines.append(f"BlockSizes={','.join(map(str, written.block_sizes))}")
    return "\n".join(lines) + "\n"


def render_yaml(topologies: Sequence[tuple[str, SlurmTopology]], *, heading: Iterable[str] = ()) -> str:
    """Return a ``topology.yaml`` with named topologies, the first as the cluster's default."""
    lines = [*(f"# {sanitise_comment(line)}" for line in heading), "---"]
    for number, (name, written) in enumerate(topologies):
        lines += [f"# {name}: {sanitise_comment(note)}" for note in written.notes]
        lines += [f"- topology: {_quote(name)}", f"  cluster_default: {'false' if number else 'true'}"]
        lines.append(f"  {written.kind}:")
        if written.kind == "block":
            lines += ["    block_sizes:", *(f"      - {size}" for size in written.block_sizes), "    blocks:"]
        else:
            lines.append("    switches:")
        word = "block" if written.kind == "block" else "switch"
        for entry in written.entries:
            if entry.comment:
                lines.append(f"      # {entry.name}: {sanitise_comment(entry.comment)}")
            lines.append(f"      - {word}: {_quote(entry.name)}")
            if entry.children:
                lines.append(f"        children: {_quote(fold(entry.children))}")
            if entry.nodes:
                lines.append(f"        nodes: {_quote(fold(entry.nodes))}")
    return "\n".join(lines) + "\n"


def match_slurm_names(nodes: Iterable[str], node_names: Collection[str] | None) -> tuple[str, ...]:
    """Return the names that Slurm has for hosts of the fabric, in their order, each once.

    Hosts are matched by full name, then by the name before the first dot; those that Slurm does not know, and names
    with signs that no node name has, are left out. Without ``node_names`` all hosts are taken as they are called.
    """
    if node_names is None:
        return tuple(dict.fromkeys(node for node in nodes if _SAFE_NAME.fullmatch(node)))
    known = set(node_names)
    short = {name.split(".")[0]: name for name in sorted(known)}
    names = (node if node in known else short.get(node.split(".")[0], "") for node in nodes)
    return tuple(dict.fromkeys(name for name in names if _SAFE_NAME.fullmatch(name)))


def sanitise_comment(text: str) -> str:
    """Return text from a dump so that it cannot leave its comment line."""
    return re.sub(r"[^\x20-\x7e]", "?", text)


def _quote(text: str) -> str:
    """Return a YAML string that no reader takes for a number, a list or a truth value."""
    return json.dumps(text)

"""How is a fabric told to Slurm, and what does a ``topology.conf`` say? Trees and blocks, as text.

In a tree that opsk writes, a leaf switch of Slurm is a scalable unit: the nodes that share one leaf a rail. A rail leaf
is no switch of its own there, since Slurm wants each node under one leaf switch only.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations

from opsk.errors import InputError
from opsk.hostlist import expand
from opsk.topology.cabling import short_name
from opsk.topology.hosts import natural
from opsk.topology.rails import Rails

_PAIR = re.compile(r"(\w+)\s*=\s*(\"[^\"]*\"|\S+)")
_LAST_NUMBER = re.compile(r"(.*?)(\d+)")
_SAFE_NAME = re.compile(r"[A-Za-z0-9._\-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchLine:
    """One ``SwitchName`` line, host lists expanded."""

    name: str
    nodes: tuple[str, ...]
    switches: tuple[str, ...]
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyConf:
    """A ``topology.conf``: switches by name, blocks with their nodes; ``problems`` names lines that say nothing."""

    switches: Mapping[str, SwitchLine]
    blocks: Mapping[str, tuple[str, ...]]
    block_sizes: str | None
    problems: tuple[str, ...] = ()

    @property
    def nodes(self) -> tuple[str, ...]:
        """All nodes, each once, in the order written."""
        listed = [node for switch in self.switches.values() for node in switch.nodes]
        listed += [node for nodes in self.blocks.values() for node in nodes]
        return tuple(dict.fromkeys(listed))

    @property
    def nodes_listed_twice(self) -> tuple[str, ...]:
        """Nodes under two leaf switches, or in two blocks."""
        counts = Counter(node for switch in self.switches.values() for node in switch.nodes)
        counts.update(node for nodes in self.blocks.values() for node in nodes)
        return tuple(sorted(node for node, count in counts.items() if count > 1))

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
        """Switches that hang under no other, sorted."""
        below = {child for switch in self.switches.values() for child in switch.switches}
        return tuple(sorted(self.switches.keys() - below))

    @property
    def levels(self) -> int:
        """Levels of switches on the longest way down from a root; a loop counts once."""
        depth: dict[str, int] = {}

        def measure(name: str, above: frozenset[str]) -> int:
            if name in depth:
                return depth[name]
            if name in above or name not in self.switches:
                return 0
            below = (measure(child, above | {name}) for child in self.switches[name].switches)
            depth[name] = 1 + max(below, default=0)
            return depth[name]

        return max((measure(name, frozenset()) for name in self.switches), default=0)


def read_topology_conf(text: str, *, source: str = "topology.conf") -> TopologyConf:
    """Return what a ``topology.conf`` (tree or block) says.

    Raises
    ------
    InputError
        When it defines neither a switch nor a block.
    """
    switches: dict[str, SwitchLine] = {}
    blocks: dict[str, tuple[str, ...]] = {}
    problems: list[str] = []
    sizes: str | None = None
    for number, line in _logical_lines(text):
        keys = {key.lower(): value.strip('"') for key, value in _PAIR.findall(line)}
        try:
            if "switchname" in keys:
                _add_switches(keys, number, switches, problems, source)
            elif "blockname" in keys:
                blocks[keys["blockname"]] = expand(keys.get("nodes", ""))
            elif "blocksizes" not in keys:
                problems.append(f"{source}:{number}: neither SwitchName, BlockName nor BlockSizes: {line[:80]!r}")
            sizes = keys.get("blocksizes", sizes)
        except InputError as error:
            problems.append(f"{source}:{number}: {error.message}")
    if not switches and not blocks:
        raise InputError(f"{source}: defines no switch and no block", hint="give a topology.conf of tree or block")
    return TopologyConf(switches=switches, blocks=blocks, block_sizes=sizes, problems=tuple(problems))


def write_tree(rails: Rails, *, node_names: Collection[str] | None = None) -> str:
    """Return a ``topology.conf`` for ``topology/tree``, the same for the same cabling.

    Units are switches with nodes, switches above them stand for the spines that units share; parts of the fabric that
    no cable joins stay separate trees. Valid from Slurm 22.05 on.

    Parameters
    ----------
    node_names
        Names that Slurm knows; hosts of the fabric are matched by full name, then by the name before the first dot,
        and left out when Slurm does not know them. Without it all compute nodes of the fabric are written.

    Raises
    ------
    InputError
        When no node is left to write.
    """
    units = {index: _known(nodes, node_names) for index, nodes in enumerate(rails.units)}
    units = {index: nodes for index, nodes in units.items() if nodes}
    if not units:
        raise InputError(
            "the fabric names no compute node that Slurm knows" if node_names is not None
            else "the fabric names no compute node",
            hint="node descriptions of HCAs must start with the host name (rdma-ndd sets them)",
        )  # fmt: skip
    lines = ["# topology/tree, written by opsk from the cabling of the fabric"]
    for index, nodes in units.items():
        leaves = [short_name(leaf.description) or leaf.guid for leaf in rails.leaves.values() if leaf.unit == index]
        leaves.sort(key=natural)
        lines.append(f"# unit{index}: {', '.join(_comment(leaf) for leaf in leaves)}")
        lines.append(f"SwitchName=unit{index} Nodes={fold(nodes)}")
    lines += _upper_levels(rails, list(units))
    return "\n".join(lines) + "\n"


def fold(names: Iterable[str]) -> str:
    """Return a host list with ranges in the last number of a name only, as Slurm of any release reads it.

    Examples
    --------
    >>> fold(["r1n08", "r1n09", "r1n10", "login"])
    'login,r1n[08-10]'
    """
    split = [match.groups() if (match := _LAST_NUMBER.fullmatch(name)) else (name, "") for name in dict.fromkeys(names)]
    padded = {(prefix, len(digits)) for prefix, digits in split if len(digits) > 1 and digits.startswith("0")}
    numbers: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    parts = []
    for prefix, digits in split:
        if digits:
            numbers[prefix, len(digits) if (prefix, len(digits)) in padded else 0].append(int(digits))
        else:
            parts.append(prefix)
    for (prefix, width), values in numbers.items():
        ranges = _ranges(sorted(values), width)
        single = len(ranges) == 1 and len(values) == 1
        parts.append(f"{prefix}{ranges[0]}" if single else f"{prefix}[{','.join(ranges)}]")
    return ",".join(sorted(parts))


def _ranges(values: list[int], width: int) -> list[str]:
    """Return ascending numbers as ``7`` and ``0-3``."""
    ranges: list[list[int]] = []
    for value in values:
        if ranges and value == ranges[-1][1] + 1:
            ranges[-1][1] = value
        else:
            ranges.append([value, value])
    return [f"{low:0{width}d}" if low == high else f"{low:0{width}d}-{high:0{width}d}" for low, high in ranges]


def _known(nodes: Iterable[str], node_names: Collection[str] | None) -> list[str]:
    """Return the Slurm names of hosts; names with signs that no node name has are left out."""
    if node_names is None:
        return [node for node in nodes if _SAFE_NAME.fullmatch(node)]
    short = {name.split(".")[0]: name for name in node_names}
    names = [node if node in node_names else short.get(node.split(".")[0], "") for node in nodes]
    return [name for name in names if _SAFE_NAME.fullmatch(name)]


def _comment(text: str) -> str:
    """Return text from a dump so that it cannot leave its comment line."""
    return re.sub(r"[^\x20-\x7e]", "?", text)


def _upper_levels(rails: Rails, units: list[int]) -> list[str]:
    """Return the switches above the units: at each distance, those that it joins hang under one."""
    distance = _unit_distances(rails, units)
    tops = {index: [index] for index in units}
    names = {index: f"unit{index}" for index in units}
    lines: list[str] = []
    for level, reach in enumerate(sorted(set(distance.values())), 1):
        joined = _join(tops, [pair for pair, length in distance.items() if length <= reach])
        for number, (first, parts) in enumerate(joined.items()):
            if len(parts) > 1:
                name = f"spine{level}-{number}"
                children = [names[part] for part in parts]
                lines.append(f"SwitchName={name} Switches={fold(children)}")
                names[first] = name
        tops = {first: [unit for part in parts for unit in tops[part]] for first, parts in joined.items()}
    return lines


def _unit_distances(rails: Rails, units: list[int]) -> dict[tuple[int, int], int]:
    """Return the least leaf distance of each two units that are connected."""
    leaves: dict[int, dict[int | None, str]] = {unit: {} for unit in units}
    for leaf in sorted(rails.leaves.values(), key=lambda leaf: leaf.guid):
        if leaf.unit in leaves:
            leaves[leaf.unit].setdefault(leaf.rail, leaf.guid)
    distances: dict[tuple[int, int], int] = {}
    for one, other in combinations(units, 2):
        rails_of_both = leaves[one].keys() & leaves[other].keys()
        pairs = [(leaves[one][rail], leaves[other][rail]) for rail in rails_of_both]
        lengths = [
            rails.leaf_distance[pair]
            for pair in pairs or [(a, b) for a in leaves[one].values() for b in leaves[other].values()]
            if pair in rails.leaf_distance
        ]
        if lengths:
            distances[one, other] = min(lengths)
    return distances


def _join(tops: Mapping[int, list[int]], pairs: list[tuple[int, int]]) -> dict[int, list[int]]:
    """Return which tops the pairs of units join, by the first of each group."""
    top_of = {unit: top for top, members in tops.items() for unit in members}
    root = {top: top for top in tops}

    def find(top: int) -> int:
        while root[top] != top:
            top = root[top]
        return top

    for one, other in pairs:
        low, high = sorted((find(top_of[one]), find(top_of[other])))
        root[high] = low
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for top in sorted(tops):
        groups[find(top)].append(top)
    return dict(groups)


def _logical_lines(text: str) -> list[tuple[int, str]]:
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


def _add_switches(
    keys: Mapping[str, str], number: int, switches: dict[str, SwitchLine], problems: list[str], source: str
) -> None:
    """Take one ``SwitchName`` line, which may name several switches."""
    line = SwitchLine(
        name="", nodes=expand(keys.get("nodes", "")), switches=expand(keys.get("switches", "")), line=number
    )
    if bool(line.nodes) == bool(line.switches):
        problems.append(f"{source}:{number}: {keys['switchname'][:80]} needs either Nodes or Switches")
    for name in expand(keys["switchname"]):
        if name in switches:
            problems.append(f"{source}:{number}: {name} is defined in line {switches[name].line} already")
        switches[name] = replace(line, name=name)

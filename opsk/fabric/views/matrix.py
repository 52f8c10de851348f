"""Builds the rail × node matrix: which HCA of which node is on which rail, with similar nodes in one row."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from opsk.fabric.fabric import Fabric, Fault
from opsk.fabric.hosts.hosts import COMPUTE
from opsk.fabric.hosts.ports import device_slot, mask_numbers, natural_key
from opsk.fabric.leaves.leaf import Leaf
from opsk.fabric.rails import Attachment, Rails
from opsk.fabric.views.marks import ON_WRONG_LEAF, SLOW, Loads, Marks, build_marks, max_load, scale_step

_USUAL = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class RailPorts:
    """``by_node`` holds the ports of each node by the rail where they belong.

    ``misplaced`` and ``slow`` are the guids that faults name; ``families`` holds what is usual among hosts of one kind
    of name: the rails that half of them have, and the bandwidth of most ports.
    """

    by_node: Mapping[str, Mapping[int, list[Attachment]]]
    misplaced: frozenset[str]
    slow: frozenset[str]
    families: Mapping[str, tuple[frozenset[int], float]]
    best_bytes_per_s: float

    def usual_rails(self, node: str) -> frozenset[int]:
        """Return the rails that nodes of this kind have."""
        return self.families[mask_numbers(node)][0]

    def usual_bytes_per_s(self, node: str) -> float:
        """Return the bandwidth of most ports of nodes of this kind."""
        return self.families[mask_numbers(node)][1]


def build_rail_ports(rails: Rails, marks: Marks) -> RailPorts:
    """Return where the ports of all compute nodes belong."""
    misplaced = frozenset(_find_named(rails, marks, ON_WRONG_LEAF))
    unit_of = {name: index for index, unit in enumerate(rails.units) for name in unit}
    votes = _count_votes(rails, misplaced, unit_of)
    by_node = {
        name: _group_by_rail(ports, misplaced, unit_of.get(name), votes) for name, ports in rails.attachments.items()
    }
    families = _compute_families(rails, by_node)
    return RailPorts(
        by_node=by_node,
        misplaced=misplaced,
        slow=frozenset(_find_named(rails, marks, SLOW)),
        families=families,
        best_bytes_per_s=_most_frequent(port for ports in rails.attachments.values() for port in ports),
    )


def _find_named(rails: Rails, marks: Marks, kinds: frozenset[str]) -> Iterator[str]:
    """Yield the guids of ports that a fault of these kinds concerns, by itself or by its cable."""
    for ports in rails.attachments.values():
        for port in ports:
            low, high = sorted((port.guid, port.leaf))
            faults = (*marks.devices.get(port.guid, ()), *marks.cables.get((low, high), ()))
            if any(fault.kind in kinds for fault in faults):
                yield port.guid


_Votes = Mapping[tuple[int | None, tuple[int, ...]], Counter[int]]


def _count_votes(rails: Rails, misplaced: frozenset[str], unit_of: Mapping[str, int]) -> _Votes:
    """Return for each unit, and for all together, on which rails the ports of each name are."""
    votes: defaultdict[tuple[int | None, tuple[int, ...]], Counter[int]] = defaultdict(Counter)
    if not misplaced:
        return votes
    for name, ports in rails.attachments.items():
        for port in ports:
            if port.rail is not None and port.guid not in misplaced:
                slot = device_slot(port.device)
                votes[unit_of.get(name), slot][port.rail] += 1
                votes[None, slot][port.rail] += 1
    return votes


def _group_by_rail(
    ports: tuple[Attachment, ...], misplaced: frozenset[str], unit: int | None, votes: _Votes
) -> dict[int, list[Attachment]]:
    """Return the ports of one node by rail; those on a leaf of no rail are left out unless they are misplaced."""
    by_rail: defaultdict[int, list[Attachment]] = defaultdict(list)
    for port in ports:
        rail = port.rail
        if port.guid in misplaced:
            slot = device_slot(port.device)
            voted = votes.get((unit, slot)) or votes.get((None, slot))
            rail = _winner(voted) if voted else rail
        if rail is not None:
            by_rail[rail].append(port)
    return dict(by_rail)


def _winner(votes: Counter[int]) -> int:
    return min(votes, key=lambda rail: (-votes[rail], rail))


def _compute_families(
    rails: Rails, by_node: Mapping[str, Mapping[int, list[Attachment]]]
) -> dict[str, tuple[frozenset[int], float]]:
    members: defaultdict[str, list[str]] = defaultdict(list)
    for name in rails.attachments:
        members[mask_numbers(name)].append(name)
    families = {}
    for family, names in members.items():
        has = Counter(rail for name in names for rail in by_node[name])
        usual = frozenset(rail for rail, count in has.items() if count >= _USUAL * len(names))
        families[family] = (usual, _most_frequent(port for name in names for port in rails.attachments[name]))
    return families


def _most_frequent(ports: Iterator[Attachment]) -> float:
    """Return the bandwidth that most ports have."""
    counts = Counter(port.bytes_per_s for port in ports if port.bytes_per_s)
    return max(counts, key=lambda rate: (counts[rate], rate), default=0.0)


class State(Enum):
    """How a port is: ``none`` where no HCA belongs, ``missing`` where one is lacking, ``wrong`` on another's leaf."""

    OK = "ok"
    WRONG = "wrong"
    SLOW = "slow"
    MISSING = "missing"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The ports of a node, or of similar ones, that belong on a rail; ``load`` is the highest of all their links.

    ``leaves`` are the guids they are really cabled to, ``devices`` those of the first node.
    """

    state: State
    leaves: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    bytes_per_s: float = 0.0
    usual_bytes_per_s: float = 0.0
    load: float | None = None
    faults: tuple[Fault, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Nodes with the same cells; ``faults`` are those of the node as such, not of a port."""

    nodes: tuple[str, ...]
    cells: tuple[Cell, ...]
    faults: tuple[Fault, ...] = ()

    @property
    def regular(self) -> bool:
        """Whether nothing is to be reported of these nodes."""
        return not self.faults and all(cell.state in (State.OK, State.NONE) for cell in self.cells)


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The leaves of a unit that carry a rail; links are those of one unit, ``load`` the heaviest of their uplinks."""

    leaves: tuple[str, ...]
    hca_links: int
    uplinks: int
    load: float | None = None
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A scalable unit, or several that are similar, with their leaves by rail and their rows, the usual one first."""

    units: tuple[int, ...]
    nodes: tuple[str, ...]
    heads: tuple[Head, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """The matrix: ``devices`` names each rail's HCAs, the most frequent first; ``apart`` are hosts left out."""

    devices: tuple[tuple[str, ...], ...]
    blocks: tuple[Block, ...]
    apart: tuple[str, ...]
    loaded: bool


UNFOLDED_NODES = 24
"""Up to so many nodes each may have a row of its own."""
UNFOLDED_UNITS = 12
"""Units beyond this number are merged where they are equal."""
_SELDOM = 0.1


def build_matrix(fabric: Fabric, rails: Rails, loads: Loads | None = None, *, fold: bool = True) -> Matrix:
    """Return the rail × node matrix.

    Parameters
    ----------
    loads
        Utilisation of links, when known: nodes and units are merged only when theirs are on one step of the scale.
    fold
        Merge similar nodes into one row, however few they are.
    """
    read = _BlockBuilder(fabric, rails, loads, fold=fold or len(rails.attachments) > UNFOLDED_NODES)
    blocks = [read.block(index, nodes) for index, nodes in enumerate(rails.units)]
    if len(blocks) > UNFOLDED_UNITS:
        blocks = _fold_blocks(blocks)
    named: list[Counter[str]] = [Counter() for _ in range(rails.rail_count)]
    for port in (port for ports in rails.attachments.values() for port in ports):
        if port.rail is not None:
            named[port.rail][port.device] += 1
    compute = [name for name, role in rails.host_roles.items() if role == COMPUTE and name not in rails.attachments]
    return Matrix(
        devices=tuple(_find_usual_names(names) for names in named),
        blocks=tuple(blocks),
        apart=tuple(sorted(compute, key=natural_key)),
        loaded=bool(loads),
    )


def _find_usual_names(names: Counter[str]) -> tuple[str, ...]:
    """Return what the HCAs of a rail are called, the most frequent first; a rare name is a fault, not a name."""
    ordered = sorted(names, key=lambda name: (-names[name], natural_key(name)))
    return tuple(name for name in ordered if names[name] >= _SELDOM * names.total()) or tuple(ordered[:1])


class _BlockBuilder:
    """Builds blocks from data of the whole fabric."""

    def __init__(self, fabric: Fabric, rails: Rails, loads: Loads | None, *, fold: bool) -> None:
        self._rails = rails
        self._loads = loads
        self._fold = fold
        self._marks: Marks = build_marks((*fabric.faults, *rails.faults))
        self._rail_ports: RailPorts = build_rail_ports(rails, self._marks)
        self._up_pairs = _find_pairs_above(fabric, rails.leaves, loads)
        self._carriers: defaultdict[tuple[int | None, int], list[Leaf]] = defaultdict(list)
        for leaf in sorted(rails.leaves.values(), key=lambda leaf: (natural_key(leaf.description), leaf.guid)):
            for rail in leaf.carries:
                self._carriers[leaf.unit, rail].append(leaf)

    def block(self, unit: int, nodes: Sequence[str]) -> Block:
        """Return one unit."""
        rails = range(self._rails.rail_count)
        rows: dict[object, Row] = {}
        for name in nodes:
            row = self._row(unit, name)
            key = _row_key(row) if self._fold else name
            rows[key] = _join_rows(rows[key], row) if key in rows else row
        ordered = sorted(rows.values(), key=lambda row: (not row.regular, -len(row.nodes), natural_key(row.nodes[0])))
        return Block(
            units=(unit,),
            nodes=tuple(nodes),
            heads=tuple(self._head(unit, rail) for rail in rails),
            rows=tuple(ordered if self._fold else rows.values()),
        )

    def _head(self, unit: int, rail: int) -> Head:
        leaves = self._carriers.get((unit, rail), [])
        return Head(
            leaves=tuple(leaf.guid for leaf in leaves),
            hca_links=sum(leaf.hca_links for leaf in leaves),
            uplinks=sum(leaf.uplinks for leaf in leaves),
            load=max_load(self._loads, (pair for leaf in leaves for pair in self._up_pairs[leaf.guid])),
            faults=tuple(fault for leaf in leaves for fault in self._marks.switches.get(leaf.guid, ())),
        )

    def _row(self, unit: int, name: str) -> Row:
        placed = self._rail_ports.by_node[name]
        cells = tuple(self._cell(unit, name, rail, placed.get(rail, [])) for rail in range(self._rails.rail_count))
        shown = {id(fault) for cell in cells for fault in cell.faults}
        absent = any(cell.state is State.MISSING for cell in cells)
        faults = tuple(
            fault
            for fault in self._marks.nodes.get(name, ())
            if id(fault) not in shown and not (absent and fault.kind == "missing_rail")
        )
        return Row(nodes=(name,), cells=cells, faults=faults)

    def _cell(self, unit: int, name: str, rail: int, ports: Sequence[Attachment]) -> Cell:
        if not ports:
            lacking = rail in self._rail_ports.usual_rails(name)
            faults = tuple(fault for fault in self._marks.nodes.get(name, ()) if fault.kind == "missing_rail")
            return Cell(state=State.MISSING if lacking else State.NONE, faults=faults if lacking else ())
        usual = self._rail_ports.usual_bytes_per_s(name)
        wrong = any(port.guid in self._rail_ports.misplaced for port in ports)
        slow = any(port.guid in self._rail_ports.slow or 0 < port.bytes_per_s < usual for port in ports)
        unit_leaves = {leaf.guid for leaf in self._carriers.get((unit, rail), [])}
        leaves = tuple(dict.fromkeys(port.leaf for port in ports))
        return Cell(
            state=State.WRONG if wrong else State.SLOW if slow else State.OK,
            leaves=() if unit_leaves.issuperset(leaves) and not wrong else leaves,
            devices=tuple(port.device for port in ports),
            bytes_per_s=min(port.bytes_per_s for port in ports),
            usual_bytes_per_s=max(usual, self._rail_ports.best_bytes_per_s),
            load=max_load(self._loads, (pair for p in ports for pair in ((p.guid, p.leaf), (p.leaf, p.guid)))),
            faults=tuple(fault for port in ports for fault in self._marks.devices.get(port.guid, ())),
        )


def _find_pairs_above(
    fabric: Fabric, leaves: Mapping[str, Leaf], loads: Loads | None
) -> defaultdict[str, list[tuple[str, str]]]:
    """Return for each leaf the directed pairs of it and another switch that a load is known of."""
    pairs: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for pair in loads or ():
        if pair[0] in fabric.switches and pair[1] in fabric.switches:
            for guid in pair:
                if guid in leaves:
                    pairs[guid].append(pair)
    return pairs


def _row_key(row: Row) -> tuple[object, ...]:
    """Return what two nodes of a unit must have in common to share a row."""
    return (
        tuple(
            (
                cell.state,
                cell.leaves,
                len(cell.devices),
                cell.bytes_per_s,
                None if cell.load is None else scale_step(cell.load),
            )
            for cell in row.cells
        ),
        tuple(sorted(fault.kind for fault in row.faults)),
    )


def _join_rows(row: Row, other: Row) -> Row:
    cells = tuple(
        replace(first, load=_max_or_none(first.load, second.load), faults=(*first.faults, *second.faults))
        for first, second in zip(row.cells, other.cells, strict=True)
    )
    return Row(nodes=(*row.nodes, *other.nodes), cells=cells, faults=(*row.faults, *other.faults))


def _max_or_none(first: float | None, second: float | None) -> float | None:
    return max((load for load in (first, second) if load is not None), default=None)


def _fold_blocks(blocks: Sequence[Block]) -> list[Block]:
    """Merge units that are equal; those with any irregularity stay separate."""
    groups: dict[object, list[Block]] = {}
    for block in blocks:
        plain = len(block.rows) == 1 and block.rows[0].regular and not any(head.faults for head in block.heads)
        sizes = tuple(
            (len(head.leaves), head.hca_links, head.uplinks, None if head.load is None else scale_step(head.load))
            for head in block.heads
        )
        key = (len(block.nodes), sizes, _row_key(block.rows[0])) if plain else block.units
        groups.setdefault(key, []).append(block)
    return [_merge_blocks(group) for group in groups.values()]


def _merge_blocks(group: Sequence[Block]) -> Block:
    first = group[0]
    if len(group) == 1:
        return first
    heads = tuple(
        Head(
            leaves=tuple(guid for block in group for guid in block.heads[rail].leaves),
            hca_links=first.heads[rail].hca_links,
            uplinks=first.heads[rail].uplinks,
            load=max((load for block in group if (load := block.heads[rail].load) is not None), default=None),
        )
        for rail in range(len(first.heads))
    )
    row = first.rows[0]
    for block in group[1:]:
        row = replace(_join_rows(row, block.rows[0]), nodes=())
    nodes = tuple(name for block in group for name in block.nodes)
    units = tuple(unit for block in group for unit in block.units)
    return Block(units=units, nodes=nodes, heads=heads, rows=(replace(row, nodes=nodes),))

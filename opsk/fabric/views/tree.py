"""Builds the tree of switch tiers and the cables between them; similar switches of a wide tier are folded."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opsk.fabric.cabling import shorten_name
from opsk.fabric.fabric import Fabric, Fault
from opsk.fabric.graph import build_switch_neighbours, compute_tiers, find_hca_links, find_isl_cables
from opsk.fabric.hosts.ports import natural_key
from opsk.fabric.rails import Rails
from opsk.fabric.views.marks import Loads, Marks, build_marks, max_load

_MIN_SHARED = 0.5
"""Switches are cabled similarly when they share at least this part of all that either is cabled to: a cable or two that
are missing make no kind of their own."""
_MIN_SWITCHES = 3
_MAJORITY_SHARE = 0.5
_SWEEPS = 6
_WORTH_IT = 0.9
"""A new order must leave less than this share of the crossings: else names in their natural order help more."""
_MAX_LINES = 20_000
"""With more lines than this none can be followed: the order is left as it is."""
Edge = tuple[int, int, int]
"""Lower box, upper box, weight."""
Pair = tuple[str, str]
UNNAMED = "unnamed"
"""Stands with the roles of hosts for HCAs whose host is not known."""
__all__ = ["MAX_BOXES", "UNNAMED", "Box", "Tier", "Tree", "TreeEdge", "build_tree"]
MAX_BOXES = 60
"""A tier of more switches than this is folded."""
_NAMES = ("leaf", "spine", "core")


class Folding:
    """The boxes of the tree, tier after tier from below: ``groups`` of guids, ``box_of`` a guid is its index."""

    def __init__(
        self,
        neighbours: Mapping[str, Counter[str]],
        tier: Mapping[str, int],
        rails: Rails,
        max_leaves: int,
        max_above: int,
    ) -> None:
        self._neighbours = neighbours
        self._tier = tier
        self._rails = rails
        self._max_leaves = max_leaves
        self._max_above = max_above
        self._kinds: list[list[str]] = []
        self.groups: list[tuple[str, ...]] = []
        self.box_of: dict[str, int] = {}

    def fold(self, level: int | None, switches: Sequence[str]) -> None:
        """Add the switches of one tier, folded no more than needed to be few enough."""
        if not switches:
            return
        kind_of = self._classify_switches(level, switches)
        max_boxes = self._max_above if level else self._max_leaves
        groups: list[tuple[str, ...]] = [(guid,) for guid in switches]
        if len(groups) > max_boxes and level is not None:
            groups = _group_by(switches, {guid: (kind_of[guid], self._unit(guid)) for guid in switches})
        if len(groups) > max_boxes:
            groups = _group_by(switches, kind_of)
        for group in groups:
            self.box_of |= dict.fromkeys(group, len(self.groups))
            self.groups.append(group)

    def lacking(self, neighbours: Mapping[str, Counter[str]]) -> Iterator[tuple[int, int, int]]:
        """Yield box, box above and usual cables where most of a leaf's like are cabled to a switch and it is not."""
        for kind in self._kinds:
            if len(kind) < _MIN_SWITCHES:
                continue
            votes: defaultdict[str, Counter[int]] = defaultdict(Counter)
            for guid in kind:
                for other, count in neighbours[guid].items():
                    if self._tier.get(other, -1) > self._tier[guid]:
                        votes[other][count] += 1
            for other, counts in votes.items():
                if counts.total() <= _MAJORITY_SHARE * len(kind):
                    continue
                for guid in kind:
                    box, above = self.box_of[guid], self.box_of[other]
                    if not neighbours[guid][other] and len(self.groups[box]) == len(self.groups[above]) == 1:
                        yield box, above, counts.most_common(1)[0][0]

    def _unit(self, guid: str) -> int | None:
        leaf = self._rails.leaves.get(guid)
        return leaf.unit if leaf else None

    def _classify_switches(self, level: int | None, switches: Sequence[str]) -> dict[str, Hashable]:
        """Return the kind of each switch, by similar cabling: leaves by what is above, others by what is below."""
        if level is None:
            return dict.fromkeys(switches, 0)
        sets: dict[str, frozenset[Hashable]] = {}
        for guid in switches:
            if level == 0:
                sets[guid] = frozenset(other for other in self._neighbours[guid] if self._tier.get(other, -1) > 0)
            else:
                below = (other for other in self._neighbours[guid] if self._tier.get(other, level) < level)
                sets[guid] = frozenset(self.box_of[other] for other in below)
        kinds: list[tuple[Hashable, frozenset[Hashable]]] = []
        known: dict[tuple[Hashable, frozenset[Hashable]], int] = {}
        kind_of: dict[str, Hashable] = {}
        for guid in switches:
            leaf = self._rails.leaves.get(guid)
            key = (leaf.role if leaf and level == 0 else None, sets[guid])
            if key not in known:
                similar = (
                    index for index, kind in enumerate(kinds) if kind[0] == key[0] and _are_similar(kind[1], key[1])
                )
                known[key] = next(similar, len(kinds))
                if known[key] == len(kinds):
                    kinds.append(key)
            kind_of[guid] = known[key]
        if level == 0:
            self._kinds += [list(group) for group in _group_by(switches, kind_of)]
        return kind_of


def _are_similar(first: frozenset[Hashable], second: frozenset[Hashable]) -> bool:
    return len(first & second) >= _MIN_SHARED * len(first | second)


def _group_by(switches: Sequence[str], key_of: Mapping[str, Hashable]) -> list[tuple[str, ...]]:
    groups: defaultdict[Hashable, list[str]] = defaultdict(list)
    for guid in switches:
        groups[key_of[guid]].append(guid)
    return [tuple(group) for group in groups.values()]


def arrange_boxes(levels: Sequence[Sequence[int]], edges: Sequence[Edge]) -> list[list[int]]:
    """Return the boxes of each tier, from the top down, in an order in which few lines cross."""
    best = [list(level) for level in levels]
    if len(edges) > _MAX_LINES or len(levels) < 2:
        return best
    level_of = {box: index for index, level in enumerate(levels) for box in level}
    joined: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for low, high, weight in edges:
        if low in level_of and high in level_of and level_of[low] != level_of[high]:
            joined[low].append((high, weight))
            joined[high].append((low, weight))
    fewest = _WORTH_IT * count_crossings(best, edges)
    current = [list(level) for level in best]
    for sweep in range(_SWEEPS):
        downwards = range(1, len(levels))
        for index in downwards if sweep % 2 else reversed(range(len(levels) - 1)):
            fixed = current[index - 1] if sweep % 2 else current[index + 1]
            place = {box: (position + 0.5) / len(fixed) for position, box in enumerate(fixed)}
            current[index] = _sort_boxes(current[index], joined, place)
        crossing_count = count_crossings(current, edges)
        if crossing_count < fewest:
            best, fewest = [list(level) for level in current], crossing_count
    return best


def _sort_boxes(
    boxes: Sequence[int], joined: Mapping[int, Sequence[tuple[int, int]]], place: Mapping[int, float]
) -> list[int]:
    """Return boxes by the mean place of what they are joined to; those joined to nothing keep their place."""
    centre = {}
    for position, box in enumerate(boxes):
        ends = [(place[other], weight) for other, weight in joined.get(box, ()) if other in place]
        total = sum(weight for _, weight in ends)
        mean = sum(where * weight for where, weight in ends) / total if total else (position + 0.5) / len(boxes)
        centre[box] = round(mean, 9)
    return sorted(boxes, key=lambda box: centre[box])


def count_crossings(levels: Sequence[Sequence[int]], edges: Sequence[Edge]) -> int:
    """Return how many pairs of lines between neighbouring tiers cross."""
    level_of = {box: index for index, level in enumerate(levels) for box in level}
    place = {box: position for level in levels for position, box in enumerate(level)}
    between: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for low, high, _ in edges:
        if low in level_of and high in level_of and level_of[low] == level_of[high] + 1:
            between[level_of[high]].append((place[high], place[low]))
    total = 0
    for lines in between.values():
        seen: list[int] = []
        for _, low in sorted(lines):
            total += len(seen) - bisect_right(seen, low)
            insort(seen, low)
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeEdge:
    """All cables between two boxes: ``low`` and ``high`` are indices of boxes, ``up_load`` is from low to high.

    ``pairs`` counts pairs of switches. Where it is one, ``usual`` is how many cables such a pair has elsewhere; a line
    without cables is drawn where switches similar to ``low`` have some.
    """

    low: int
    high: int
    cables: int
    pairs: int
    usual: int
    up_load: float | None = None
    down_load: float | None = None
    faults: tuple[Fault, ...] = ()

    @property
    def odd(self) -> bool:
        """Whether cables are lacking, or too many."""
        return self.pairs == 1 and self.cables != self.usual

    @property
    def load(self) -> float | None:
        """The load of the busier direction."""
        return max((load for load in (self.up_load, self.down_load) if load is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """The lines; ``usual`` is the cables of most pairs of two tiers, ``inside`` counts cables within a box."""

    lines: tuple[TreeEdge, ...]
    usual: Mapping[tuple[int, int], int]
    inside: Counter[int]


def build_lines(
    neighbours: Mapping[str, Counter[str]], tier: Mapping[str, int], folding: Folding, loads: Loads | None, marks: Marks
) -> Lines:
    """Return the lines between the boxes of a folded fabric."""
    usual = _find_usual_counts(neighbours, tier)
    pairs: defaultdict[tuple[int, int], list[Pair]] = defaultdict(list)
    inside: Counter[int] = Counter()
    for guid, cables in neighbours.items():
        for other, count in cables.items():
            low, high = folding.box_of[guid], folding.box_of[other]
            if low == high:
                inside[low] += count if guid < other else 0
            elif (tier.get(guid, -1), low) < (tier.get(other, -1), high):
                pairs[low, high].append((guid, other))
    lines = []
    for (low, high), switch_pairs in pairs.items():
        first, last = switch_pairs[0]
        lines.append(
            TreeEdge(
                low=low,
                high=high,
                cables=sum(neighbours[guid][other] for guid, other in switch_pairs),
                pairs=len(switch_pairs),
                usual=usual[tier.get(first, -1), tier.get(last, -1)],
                up_load=max_load(loads, switch_pairs),
                down_load=max_load(loads, ((other, guid) for guid, other in switch_pairs)),
                faults=_faults(switch_pairs, marks),
            )
        )
    lacking = folding.lacking(neighbours)
    lines += [TreeEdge(low=low, high=high, cables=0, pairs=1, usual=count) for low, high, count in lacking]
    return Lines(lines=tuple(lines), usual=usual, inside=inside)


def _find_usual_counts(neighbours: Mapping[str, Counter[str]], tier: Mapping[str, int]) -> dict[tuple[int, int], int]:
    """Return how many cables most pairs of switches of two tiers have, the lower tier first."""
    counts: defaultdict[tuple[int, int], Counter[int]] = defaultdict(Counter)
    for guid, cables in neighbours.items():
        for other, count in cables.items():
            low, high = tier.get(guid, -1), tier.get(other, -1)
            if low <= high:
                counts[low, high][count] += 1
    return {pair: _most_frequent(votes) for pair, votes in counts.items()}


def _most_frequent(votes: Counter[int]) -> int:
    return max(votes, key=lambda count: (votes[count], count))


def _faults(pairs: Sequence[Pair], marks: Marks) -> tuple[Fault, ...]:
    """Return what is wrong with cables; that they are inside a tier is seen."""
    return tuple(
        fault
        for guid, other in pairs
        for fault in marks.cables.get((min(guid, other), max(guid, other)), ())
        if fault.kind != "cables_inside_a_tier"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """One switch, or several that are cabled similarly.

    ``hosts`` counts hosts by role (HCAs where unnamed); ``ratio`` is the worst oversubscription of its leaves,
    ``host_load`` the heaviest link to an HCA, ``inside`` counts cables among its own switches, loops included;
    ``down_cables`` lead to switches of lower tiers.
    """

    switches: tuple[str, ...]
    tier: int | None
    hosts: Mapping[str, int] = field(default_factory=dict)
    hca_links: int = 0
    up_cables: int = 0
    down_cables: int = 0
    ratio: float | None = None
    unit: int | None = None
    off_tier: bool = False
    inside: int = 0
    host_load: float | None = None
    faults: tuple[Fault, ...] = ()


class Boxes:
    """Builds boxes from data by switch."""

    def __init__(
        self,
        fabric: Fabric,
        rails: Rails,
        loads: Loads | None,
        marks: Marks,
        neighbours: Mapping[str, Counter[str]],
        tier: Mapping[str, int],
    ) -> None:
        self._rails = rails
        self._marks = marks
        self._neighbours = neighbours
        self._tier = tier
        self._loops = Counter(cable.a_guid for cable in find_isl_cables(fabric) if cable.a_guid == cable.b_guid)
        self._host_load = _find_host_load(fabric, loads)
        self._hosts: defaultdict[str, defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        for link in find_hca_links(fabric):
            node = fabric.hcas[link.hca].node
            role = UNNAMED if node is None else rails.host_roles.get(node, UNNAMED)
            self._hosts[link.switch][role].add(link.hca if node is None else node)

    def box(self, group: Sequence[str], inside: int) -> Box:
        """Return the box of one group of switches, with ``inside`` cables among them."""
        leaves = [self._rails.leaves[guid] for guid in group if guid in self._rails.leaves]
        units = {leaf.unit for leaf in leaves}
        off_tier = any(leaf.off_tier for leaf in leaves)
        ratios = [leaf.down_bytes_per_s / leaf.up_bytes_per_s for leaf in leaves if leaf.up_bytes_per_s]
        return Box(
            switches=tuple(group),
            tier=self._tier.get(group[0]),
            hosts=self._count_hosts(group),
            hca_links=sum(leaf.hca_links for leaf in leaves),
            up_cables=sum(self._cables(guid, direction=1) for guid in group),
            down_cables=sum(self._cables(guid, direction=-1) for guid in group),
            ratio=None if off_tier else max(ratios, default=None),
            unit=next(iter(units)) if len(units) == 1 else None,
            off_tier=off_tier,
            inside=inside + sum(self._loops[guid] for guid in group),
            host_load=max((self._host_load[guid] for guid in group if guid in self._host_load), default=None),
            faults=tuple(fault for guid in group for fault in self._marks.switches.get(guid, ())),
        )

    def _count_hosts(self, group: Sequence[str]) -> dict[str, int]:
        names: defaultdict[str, set[str]] = defaultdict(set)
        for guid in group:
            for role, members in self._hosts.get(guid, {}).items():
                names[role] |= members
        return {role: len(members) for role, members in sorted(names.items())}

    def _cables(self, guid: str, *, direction: int) -> int:
        """Return how many cables lead to higher tiers (``direction`` 1) or lower ones (-1)."""
        level = self._tier.get(guid)
        if level is None:
            return 0
        return sum(
            count
            for other, count in self._neighbours[guid].items()
            if direction * (self._tier.get(other, level) - level) > 0
        )


def _find_host_load(fabric: Fabric, loads: Loads | None) -> dict[str, float]:
    """Return the heaviest link between each leaf and an HCA."""
    load_by_leaf: dict[str, float] = {}
    for pair in loads or ():
        for hca, leaf in (pair, pair[::-1]):
            if hca in fabric.hcas and leaf in fabric.switches:
                load = max_load(loads, [pair])
                if load is not None:
                    load_by_leaf[leaf] = max(load, load_by_leaf.get(leaf, 0.0))
    return load_by_leaf


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """One tier: ``boxes`` are indices from left to right; ``level`` is ``None`` for what no leaf is reached from."""

    level: int | None
    name: str
    boxes: tuple[int, ...]
    switches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """The tree, tiers from top to bottom; ``usual`` is the cables of most pairs of switches between two tiers."""

    tiers: tuple[Tier, ...]
    boxes: tuple[Box, ...]
    lines: tuple[TreeEdge, ...]
    usual: Mapping[tuple[int, int], int]
    folded: bool
    loaded: bool


def build_tree(
    fabric: Fabric, rails: Rails, loads: Loads | None = None, *, max_leaves: int = MAX_BOXES, max_above: int = MAX_BOXES
) -> Tree:
    """Return the tree of tiers.

    Parameters
    ----------
    loads
        Utilisation of links, when known.
    max_leaves, max_above
        Leaves, and switches of each higher tier, beyond which they are folded: by unit, else by what they are cabled
        to.
    """
    neighbours = build_switch_neighbours(fabric)
    tier = compute_tiers(neighbours, {guid for guid, leaf in rails.leaves.items() if not leaf.off_tier})
    levels = sorted(set(tier.values()))
    order = _build_order(fabric, rails)
    folding = Folding(neighbours, tier, rails, max_leaves, max_above)
    for level in levels:
        folding.fold(level, sorted((guid for guid in tier if tier[guid] == level), key=order))
    folding.fold(None, sorted(fabric.switches.keys() - tier.keys(), key=order))
    marks = build_marks((*fabric.faults, *rails.faults))
    joined = build_lines(neighbours, tier, folding, loads, marks)
    filled = Boxes(fabric, rails, loads, marks, neighbours, tier)
    boxes = tuple(filled.box(group, joined.inside[index]) for index, group in enumerate(folding.groups))
    rows = [[index for index, box in enumerate(boxes) if box.tier == level] for level in reversed(levels)]
    rows = arrange_boxes(rows, [(line.low, line.high, line.cables) for line in joined.lines if line.cables])
    rows.append([index for index, box in enumerate(boxes) if box.tier is None])
    return Tree(
        tiers=tuple(_build_tier(boxes, row, len(levels)) for row in rows if row),
        boxes=boxes,
        lines=joined.lines,
        usual={pair: count for pair, count in joined.usual.items() if pair[0] < pair[1]},
        folded=any(len(box.switches) > 1 for box in boxes),
        loaded=bool(loads),
    )


def _build_order(fabric: Fabric, rails: Rails) -> Callable[[str], tuple[Any, ...]]:
    """Return the sort key of switches before crossings are reduced: unit, rail, role, name."""

    def key(guid: str) -> tuple[Any, ...]:
        leaf = rails.leaves.get(guid)
        unit, rail, role = (leaf.unit, leaf.rail, leaf.role) if leaf else (None, None, "")
        name = natural_key(shorten_name(fabric.switches[guid].description))
        return unit is None, unit or 0, rail is None, rail or 0, role, name, guid

    return key


def _build_tier(boxes: Sequence[Box], row: Sequence[int], tiers_in_all: int) -> Tier:
    level = boxes[row[0]].tier
    if level is None:
        name = "no path to a leaf"
    elif level < min(tiers_in_all, len(_NAMES)) and (level < 2 or tiers_in_all == len(_NAMES)):
        name = _NAMES[level]
    else:
        name = f"tier {level}"
    return Tier(level=level, name=name, boxes=tuple(row), switches=sum(len(boxes[index].switches) for index in row))

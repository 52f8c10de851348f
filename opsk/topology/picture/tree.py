"""How do the tiers of switches stand above each other, and what joins them? The tree, folded where it is too wide."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from opsk.topology.cabling import short_name
from opsk.topology.fabric import Fabric, Fault
from opsk.topology.graph import hca_links, isl_cables, switch_neighbours, tiers
from opsk.topology.hosts import natural
from opsk.topology.picture.folding import Folding
from opsk.topology.picture.load import Loads, heaviest
from opsk.topology.picture.marks import Marks, read_marks
from opsk.topology.picture.ordering import arranged
from opsk.topology.rails import Rails

UNNAMED = "unnamed"
"""Stands with the roles of hosts for HCAs whose host is not known."""
MOST_BOXES = 60
"""A tier of more switches than this is folded."""
_FAR = 99
"""Above any tier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """One switch, or several that are cabled alike.

    ``hosts`` counts hosts by role (HCAs where unnamed); ``ratio`` is the worst oversubscription of its leaves,
    ``host_load`` the heaviest link to an HCA, ``inside`` counts cables among its own switches, loops included;
    ``down_cables`` lead to lower tiers.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """All cables between two boxes: ``low`` and ``high`` are indices of boxes, ``up_load`` is from low to high.

    ``pairs`` counts pairs of switches. Where it is one, ``usual`` is how many cables such a pair has elsewhere; a line
    without cables stands where the like of ``low`` have some.
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
    lines: tuple[Line, ...]
    usual: Mapping[tuple[int, int], int]
    folded: bool
    loaded: bool


def build_tree(
    fabric: Fabric, rails: Rails, loads: Loads | None = None, *, most: int = MOST_BOXES, most_above: int = MOST_BOXES
) -> Tree:
    """Return the tree of tiers.

    Parameters
    ----------
    loads
        Utilisation of links, when known.
    most, most_above
        Leaves, and switches of each higher tier, beyond which they are folded: by unit, else by what they are cabled
        to.
    """
    neighbours = switch_neighbours(fabric)
    tier = tiers(neighbours, {guid for guid, leaf in rails.leaves.items() if not leaf.off_tier})
    folding = Folding(neighbours, tier, rails, most, most_above)
    for level in sorted(set(tier.values())):
        folding.fold(level, sorted((guid for guid in tier if tier[guid] == level), key=_order(fabric, rails)))
    lost = sorted(fabric.switches.keys() - tier.keys(), key=_order(fabric, rails))
    folding.fold(None, lost)
    marks = read_marks((*fabric.faults, *rails.faults))
    hosts = _hosts(fabric, rails)
    cables = {
        guid: (
            sum(count for other, count in far.items() if tier.get(other, -1) > tier.get(guid, _FAR)),
            sum(count for other, count in far.items() if tier.get(other, _FAR) < tier.get(guid, -1)),
        )
        for guid, far in neighbours.items()
    }
    loops = Counter(cable.a_guid for cable in isl_cables(fabric) if cable.a_guid == cable.b_guid)
    boxes = [
        _box(group, tier.get(group[0]), rails, marks, hosts, cables, loops, _host_load(fabric, loads))
        for group in folding.groups
    ]
    lines, inside = _lines(neighbours, tier, folding, loads, marks)
    boxes = [replace(box, inside=box.inside + inside[index]) for index, box in enumerate(boxes)]
    levels = [
        [index for index, box in enumerate(boxes) if box.tier == level]
        for level in sorted(set(tier.values()), reverse=True)
    ]
    levels = arranged(levels, [(line.low, line.high, line.cables) for line in lines if line.cables])
    usual = {pair: count for pair, count in _usual(neighbours, tier).items() if pair[0] < pair[1]}
    named = [_tier(boxes, order, len(levels)) for order in levels]
    if lost:
        named.append(_tier(boxes, [index for index, box in enumerate(boxes) if box.tier is None], len(levels)))
    return Tree(
        tiers=tuple(named),
        boxes=tuple(boxes),
        lines=tuple(lines),
        usual=usual,
        folded=any(len(box.switches) > 1 for box in boxes),
        loaded=bool(loads),
    )


def _order(fabric: Fabric, rails: Rails):  # type: ignore[no-untyped-def]
    """Return the key by which switches stand before lines are looked at: unit, rail, name."""

    def key(guid: str) -> tuple[object, ...]:
        leaf = rails.leaves.get(guid)
        unit, rail = (leaf.unit, leaf.rail) if leaf else (None, None)
        name = natural(short_name(fabric.switches[guid].description))
        return unit is None, unit or 0, rail is None, rail or 0, leaf.role if leaf else "", name, guid

    return key


def _tier(boxes: Sequence[Box], order: Sequence[int], tiers_in_all: int) -> Tier:
    level = boxes[order[0]].tier if order else None
    if level is None:
        name = "no path to a leaf"
    elif level < 2 or (level == 2 and tiers_in_all == 3):
        name = ("leaf", "spine", "core")[level]
    else:
        name = f"tier {level}"
    return Tier(level=level, name=name, boxes=tuple(order), switches=sum(len(boxes[index].switches) for index in order))


_Cables = Mapping[str, tuple[int, int]]
"""Switch to its cables to higher tiers and to lower ones."""
_Hosts = Mapping[str, tuple[Mapping[str, set[str]], int, list[str]]]
"""Leaf to its hosts by role, how many of its HCAs have no name, and the guids of all."""


def _hosts(fabric: Fabric, rails: Rails) -> _Hosts:
    named: defaultdict[str, defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    unnamed: Counter[str] = Counter()
    guids: defaultdict[str, list[str]] = defaultdict(list)
    for link in hca_links(fabric):
        node = fabric.hcas[link.hca].node
        guids[link.switch].append(link.hca)
        if node is None:
            unnamed[link.switch] += 1
        else:
            named[link.switch][rails.host_roles.get(node, UNNAMED)].add(node)
    return {guid: (named[guid], unnamed[guid], guids[guid]) for guid in guids}


def _host_load(fabric: Fabric, loads: Loads | None) -> dict[str, float]:
    """Return the heaviest link between each leaf and an HCA."""
    found: dict[str, float] = {}
    for a_guid, b_guid in loads or ():
        for hca, leaf in ((a_guid, b_guid), (b_guid, a_guid)):
            if hca in fabric.hcas and leaf in fabric.switches:
                load = heaviest(loads, [(a_guid, b_guid)])
                if load is not None:
                    found[leaf] = max(load, found.get(leaf, 0.0))
    return found


def _box(
    group: Sequence[str], level: int | None, rails: Rails, marks: Marks, hosts: _Hosts, cables: _Cables,
    loops: Mapping[str, int], host_load: Mapping[str, float],
) -> Box:  # fmt: skip
    """Return the box of one group of switches."""
    names: defaultdict[str, set[str]] = defaultdict(set)
    unnamed = 0
    for guid in group:
        if guid in hosts:
            for role, members in hosts[guid][0].items():
                names[role] |= members
            unnamed += hosts[guid][1]
    counts = {role: len(members) for role, members in sorted(names.items())}
    if unnamed:
        counts[UNNAMED] = counts.get(UNNAMED, 0) + unnamed
    leaves = [rails.leaves[guid] for guid in group if guid in rails.leaves]
    units = {leaf.unit for leaf in leaves}
    ratios = [leaf.down_bytes_per_s / leaf.up_bytes_per_s for leaf in leaves if leaf.up_bytes_per_s]
    return Box(
        switches=tuple(group),
        tier=level,
        hosts=counts,
        hca_links=sum(leaf.hca_links for leaf in leaves),
        up_cables=sum(cables[guid][0] for guid in group),
        down_cables=sum(cables[guid][1] for guid in group),
        ratio=max(ratios, default=None) if not any(leaf.off_tier for leaf in leaves) else None,
        unit=next(iter(units)) if len(units) == 1 else None,
        off_tier=any(leaf.off_tier for leaf in leaves),
        inside=sum(loops.get(guid, 0) for guid in group),
        host_load=max((host_load[guid] for guid in group if guid in host_load), default=None),
        faults=tuple(fault for guid in group for fault in marks.switches.get(guid, ())),
    )


def _usual(neighbours: Mapping[str, Counter[str]], tier: Mapping[str, int]) -> dict[tuple[int, int], int]:
    """Return how many cables most pairs of switches of two tiers have."""
    counts: defaultdict[tuple[int, int], Counter[int]] = defaultdict(Counter)
    for guid, cables in neighbours.items():
        for other, count in cables.items():
            low, high = sorted((tier.get(guid, -1), tier.get(other, -1)))
            counts[low, high][count] += 1
    return {pair: max(votes, key=lambda count: (votes[count], count)) for pair, votes in counts.items()}


def _lines(
    neighbours: Mapping[str, Counter[str]], tier: Mapping[str, int], folding: Folding, loads: Loads | None, marks: Marks
) -> tuple[list[Line], Counter[int]]:
    """Return the lines between boxes, and how many cables stay inside each."""
    usual = _usual(neighbours, tier)
    pairs: defaultdict[tuple[int, int], list[tuple[str, str]]] = defaultdict(list)
    inside: Counter[int] = Counter()
    for guid, cables in neighbours.items():
        for other, count in cables.items():
            low, high = folding.box_of[guid], folding.box_of[other]
            if low == high:
                inside[low] += count if guid < other else 0
            elif (tier.get(guid, -1), low) < (tier.get(other, -1), high):
                pairs[low, high].append((guid, other))
    lines = []
    for (low, high), found in pairs.items():
        first, last = found[0]
        level_low, level_high = sorted((tier.get(first, -1), tier.get(last, -1)))
        lines.append(
            Line(
                low=low,
                high=high,
                cables=sum(neighbours[guid][other] for guid, other in found),
                pairs=len(found),
                usual=usual[level_low, level_high],
                up_load=heaviest(loads, found),
                down_load=heaviest(loads, ((other, guid) for guid, other in found)),
                faults=tuple(
                    fault
                    for guid, other in found
                    for fault in marks.cables.get((min(guid, other), max(guid, other)), ())
                    if fault.kind != "cables_inside_a_tier"
                ),
            )
        )
    lines += [
        Line(low=low, high=high, cables=0, pairs=1, usual=count) for low, high, count in folding.lacking(neighbours)
    ]
    return lines, inside

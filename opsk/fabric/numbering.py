"""Numbers the rails: the nodes of a unit vote on the rail of each leaf by the position of their HCAs there."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations

from opsk.fabric.cabling import Cabling
from opsk.fabric.hosts.hosts import Host
from opsk.fabric.hosts.ports import mask_numbers
from opsk.fabric.units import Unit

_BETTER = 2
"""Another count of a node's HCAs must put at least this many more on their rail than their names do; one more will do
where it explains all of them and the names that are missing are the last ones, or no whole node has such names."""


def renumber_hosts(
    hosts: Sequence[Host], carries: Mapping[str, tuple[int, ...]], rails_of: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """Return the rails of the nodes of a unit that have fewer HCAs than similar nodes and number them differently.

    Parameters
    ----------
    carries
        The rails of each leaf of the unit.
    rails_of
        The rail of each port of a host, by name of the device.
    """
    patterns = Counter(rails_of[host.name] for host in hosts)
    usual = max(patterns, key=lambda pattern: (patterns[pattern], len(pattern), pattern), default=())
    slots = {tuple(port.slot for port in host.ports) for host in hosts if rails_of[host.name] == usual}
    rails_by_host = {}
    for host in hosts:
        if not 1 < len(host.ports) < len(usual):
            continue
        seen = [carries.get(port.switch, ()) for port in host.ports]
        by_name = sum(rail in rails for rail, rails in zip(rails_of[host.name], seen, strict=True))
        if by_name < len(seen):
            count, rails = _find_best_fit(seen, usual)
            host_slots = tuple(port.slot for port in host.ports)
            silent = not any(set(host_slots) <= set(other) for other in slots)
            moved_up = silent or any(host_slots == other[: len(host_slots)] for other in slots)
            if (moved_up and count == len(seen)) or count >= by_name + _BETTER:
                rails_by_host[host.name] = rails
    return rails_by_host


def _find_best_fit(seen: Sequence[tuple[int, ...]], usual: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    """Return how many ports agree at most, and their rails: ports keep their order, some rails are left out."""
    best: list[tuple[int, tuple[int, ...]] | None] = [(0, ())] * (len(usual) + 1)
    for rails in seen:
        row: list[tuple[int, tuple[int, ...]] | None] = [None]
        for index, rail in enumerate(usual):
            before, skipped = best[index], row[index]
            taken = (before[0] + (rail in rails), (*before[1], rail)) if before else None
            row.append(max((entry for entry in (taken, skipped) if entry), key=lambda entry: entry[0], default=None))
        best = row
    return best[-1] or (0, ())


Slots = tuple[tuple[int, ...], ...]
Pattern = tuple[str, Slots]
"""The naming style of a host's devices, and their places."""

_NEARLY = 0.75
"""A host with at least this share of the HCAs that most hosts have may be one of them that lacks some."""


def compute_positions(hosts: Sequence[Host]) -> dict[str, tuple[int, ...]]:
    """Return for each host the position of each of its ports, in port order."""
    style = cache(_style)
    shapes = {host.name: (style(host.ports[0].device) if host.ports else "", _slots(host)) for host in hosts}
    sizes = Counter(len(host.ports) for host in hosts if not host.twice)
    usual = max(sizes, key=lambda size: (sizes[size], size), default=0)
    patterns = Counter(shapes[host.name] for host in hosts if not host.twice)
    templates = {pattern: _find_template(pattern, patterns, usual) for pattern in patterns}
    by_shape = {shape: _positions(shape, templates) for shape in set(shapes.values())}
    return {name: by_shape[shape] for name, shape in shapes.items()}


def _slots(host: Host) -> Slots:
    return tuple(port.slot for port in host.ports)


def _style(device: str) -> str:
    """Return what names of one style share; those of ``hosts.device_slot`` that compare with each other are one."""
    family = mask_numbers(device)
    return "#" if family in ("HCA-#", "HCA#", "mlx#_#") else family


def _find_template(pattern: Pattern, patterns: Mapping[Pattern, int], usual: int) -> Slots:
    """Return the slots that those of ``pattern`` are a gappy case of: themselves, or more that are as common.

    Where they are nearly as many as most hosts have, the whole ones may be rare: a unit that names its devices in its
    own style and lacks a leaf has the gap on all of its nodes.
    """
    slots = max(
        (other for other in _find_larger(pattern, patterns) if patterns[other] >= patterns[pattern]),
        key=lambda other: (patterns[other], len(other[1]), other),
        default=pattern,
    )[1]
    if len(slots) >= usual or len(slots) < min(_NEARLY * usual, usual - 1):
        return slots
    whole = [other for other in _find_larger((pattern[0], slots), patterns) if len(other[1]) == usual]
    return max(whole, key=lambda other: (patterns[other], other))[1] if whole else _count_slots(slots, usual)


def _find_larger(pattern: Pattern, patterns: Mapping[Pattern, int]) -> list[Pattern]:
    style, slots = pattern
    slot_set = set(slots)
    return [
        other for other in patterns if other[0] == style and len(other[1]) > len(slots) and slot_set <= set(other[1])
    ]


def _count_slots(slots: Slots, usual: int) -> Slots:
    """Return as many slots as most hosts have, counted from 0 or 1 on, where they hold ``slots``; else these."""
    for first in (0, 1):
        counted = tuple((*slots[0][:-1], number) for number in range(first, first + usual))
        if set(slots) < set(counted):
            return counted
    return slots


def _positions(shape: Pattern, templates: Mapping[Pattern, Slots]) -> tuple[int, ...]:
    """Return the places of a host's ports in its template; ports with one name between them follow each other."""
    style, slots = shape
    template = templates.get(shape)
    if template is None:
        template = max(
            (known for (other, _), known in templates.items() if other == style and set(slots) <= set(known)),
            key=lambda known: (-len(known), known),
            default=tuple(sorted(set(slots))),
        )
    if len(set(template)) < len(template):
        return tuple(range(len(slots)))
    place = {slot: index for index, slot in enumerate(template)}
    return tuple(place[slot] for slot in slots)


_AGREED = 0.6
"""Share of a unit's HCAs that must agree with the vote before a deviation is called a fault."""
_SPREAD = 0.8
"""Share of a unit's leaves that a node of as many HCAs uses on average, where leaves are rails."""
_STRAY = 0.25
"""A leaf with less than this share of the nodes that the unit's best leaf has on a rail does not carry that rail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbering:
    """The rails: ``carries`` by leaf, the main one first; ``rails_of`` by host, one entry a port, by position.

    ``follows_names`` states for each unit whether device names agree with the cabling; where they do not, its leaves
    are numbered in order and no HCA can be called misplaced.
    """

    rail_count: int
    carries: Mapping[str, tuple[int, ...]]
    rails_of: Mapping[str, tuple[int, ...]]
    follows_names: tuple[bool, ...]

    def rails_at(self, host: Host) -> list[int | None]:
        """Return for each port of a host the rail that it really is on, by the leaf it is cabled to."""
        carries, rails = self.carries, []
        for rail, port in zip(self.rails_of[host.name], host.ports, strict=True):
            carried = carries.get(port.switch, ())
            rails.append(rail if rail in carried else carried[0] if carried else None)
        return rails


def number_rails(cabling: Cabling) -> Numbering:
    """Vote on the rail of each leaf; see ``Numbering``."""
    place = compute_positions(cabling.compute)
    by_name = {host.name: host for host in cabling.compute}
    classes = _find_classes(cabling, by_name, place)
    kinds = {entries: tuple(classes[position] for position in entries) for entries in set(place.values())}
    rails_of = {name: kinds[entries] for name, entries in place.items()}
    carries: dict[str, tuple[int, ...]] = {}
    follows = []
    for unit in cabling.units:
        unit_carries, agreed = _vote_on_rails(unit, by_name, rails_of)
        carries |= unit_carries
        follows.append(agreed)
        if agreed:
            rails_of |= renumber_hosts([by_name[name] for name in unit.nodes], unit_carries, rails_of)
    used = {rail for rails in carries.values() for rail in rails}
    return Numbering(
        rail_count=max(used, default=-1) + 1, carries=carries, rails_of=rails_of, follows_names=tuple(follows)
    )


def _find_classes(cabling: Cabling, hosts: Mapping[str, Host], place: Mapping[str, tuple[int, ...]]) -> dict[int, int]:
    """Return the rail of each position: positions that most nodes have on one and the same leaf are one rail."""
    together: Counter[tuple[int, int]] = Counter()
    apart: Counter[tuple[int, int]] = Counter()
    known = {position for entries in set(place.values()) for position in entries}
    patterns: Counter[tuple[tuple[int, int], ...]] = Counter()
    for name, entries in place.items():
        if name in cabling.unit_of:
            first: dict[str, int] = {}
            leaves = [first.setdefault(port.switch, index) for index, port in enumerate(hosts[name].ports)]
            patterns[tuple(sorted(zip(entries, leaves, strict=True)))] += 1
    for pattern, count in patterns.items():
        for (left, leaf), (right, other_leaf) in combinations(pattern, 2):
            (together if leaf == other_leaf else apart)[left, right] += count
    root: dict[int, int] = {}
    for position in sorted(known):
        joined = [low for low in root if together[low, position] > apart[low, position]]
        root[position] = root[joined[0]] if joined else position
    order = {representative: rail for rail, representative in enumerate(sorted(set(root.values())))}
    return {position: order[representative] for position, representative in root.items()}


def _vote_on_rails(
    unit: Unit, hosts: Mapping[str, Host], rails_of: Mapping[str, tuple[int, ...]]
) -> tuple[dict[str, tuple[int, ...]], bool]:
    """Return the rails of each leaf of a unit, and whether device names agree with them."""
    holders: dict[str, defaultdict[int, set[str]]] = {leaf: defaultdict(set) for leaf in unit.leaves}
    spread = 0.0
    ports: list[tuple[str, int]] = []
    for name in unit.nodes:
        used = set()
        for rail, port in zip(rails_of[name], hosts[name].ports, strict=True):
            if port.switch in holders:
                holders[port.switch][rail].add(name)
                used.add(port.switch)
                ports.append((port.switch, rail))
        spread += len(used) / min(len(hosts[name].ports), len(unit.leaves))
    carries = _drop_strays({leaf: _find_carried_rails(votes) for leaf, votes in holders.items()}, holders)
    agreed = sum(rail in carries[leaf] for leaf, rail in ports)
    if agreed >= _AGREED * len(ports) or len(unit.leaves) == 1:
        return carries, True
    if len(unit.leaves) > 1 and spread >= _SPREAD * len(unit.nodes):
        return {leaf: (index,) for index, leaf in enumerate(unit.leaves)}, False
    return dict.fromkeys(unit.leaves, ()), False


def _drop_strays(
    carries: Mapping[str, tuple[int, ...]], holders: Mapping[str, Mapping[int, set[str]]]
) -> dict[str, tuple[int, ...]]:
    """Take a rail from a leaf that far fewer nodes have it on than another leaf of the unit: that is a stray cable."""
    max_holders: Counter[int] = Counter()
    for leaf, rails in carries.items():
        for rail in rails:
            max_holders[rail] = max(max_holders[rail], len(holders[leaf][rail]))
    return {
        leaf: tuple(rail for rail in rails if len(holders[leaf][rail]) >= _STRAY * max_holders[rail])
        for leaf, rails in carries.items()
    }


def _find_carried_rails(votes: Mapping[int, set[str]]) -> tuple[int, ...]:
    """Return the rails of one leaf: the one with most nodes, and those that the same nodes have there too."""
    if not votes:
        return ()
    main = min(votes, key=lambda rail: (-len(votes[rail]), rail))
    also = [
        rail
        for rail, nodes in sorted(votes.items())
        if rail != main and 2 * len(nodes) >= len(votes[main]) and 2 * len(nodes & votes[main]) > len(nodes)
    ]
    return (main, *also)

"""Which leaves carry the same HCAs of compute nodes, and which of these groups are cabled otherwise than most?

A group is a rail, or several where HCAs share leaves; nodes that name or count their devices otherwise may form groups
of their own. Groups are compared for each kind of node: most of its HCAs show what is usual.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from opsk.topology.hosts import COMPUTE, Host
from opsk.topology.units import joined

Slots = tuple[tuple[int, ...], ...]
Key = tuple[Slots, int]
"""The HCA at a place of nodes with such devices."""
Alike = Mapping[tuple[Slots, tuple[str, ...]], int]
"""How many nodes have such devices on such leaves, in the order of the devices."""

_FEWEST_HCAS = 3
"""A node with fewer HCAs has none of which the others are a majority."""
_ON_LEAF = 0.5
"""What fewer nodes have on a leaf than this share of what most have there is a stray, or another kind of node's."""
_OTHER_LINKS = 1.1
_OTHER_UPLINKS = 1.5
_OTHER_COUNT = 1.25
"""Leaves with so many times more or fewer nodes or uplinks, or so many times more leaves, are cabled otherwise."""
_FEW_LEAVES = 3
"""Fewer leaves than this: what one of them lacks may be a fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Leaves that carry the same HCAs, with the median number of these and of cables to other switches.

    ``part`` numbers the part of the fabric that cables join, ``plane`` the leaves with common spines;
    ``part_hcas`` and ``plane_hcas`` are how many HCAs a node has there.
    """

    leaves: frozenset[str]
    hcas: float
    uplinks: float
    part: int
    plane: int
    part_hcas: float
    plane_hcas: float


def typical_nodes(hosts: Mapping[str, Host]) -> list[Host]:
    """Return the compute nodes with more than half as many HCAs as most have."""
    named = [host for host in hosts.values() if host.role == COMPUTE and not host.twice and not host.generic]
    hcas: Counter[int] = Counter()
    for host in named:
        hcas[len(host.ports)] += len(host.ports)
    usual = max(hcas, key=lambda size: (hcas[size], size), default=0)
    return [host for host in named if len(host.ports) >= _FEWEST_HCAS and 2 * len(host.ports) > usual]


def unlike_groups(
    alike: Alike, off_tier: Collection[str], neighbours: Mapping[str, Counter[str]]
) -> tuple[list[Group], list[Group]]:
    """Return the groups that hold a minority of a node's HCAs and are cabled otherwise, and all others."""
    on_leaf = _on_leaf(alike, off_tier)
    number = _group_numbers(on_leaf)
    groups = _groups(alike, on_leaf, number, neighbours)
    unlike = {}
    for own, group in groups.items():
        hcas = Counter[Key]()
        for leaf in group.leaves:
            hcas.update(on_leaf[leaf])
        slots, _ = _main(hcas)
        places = [place for index in range(len(slots)) if (place := number.get((slots, index), -1)) in groups]
        minority = len(places) >= _FEWEST_HCAS and 2 * places.count(own) < len(places)
        if minority and _is_unlike(group, [groups[place] for place in places]):
            unlike[own] = group
    return list(unlike.values()), [group for own, group in groups.items() if own not in unlike]


def _on_leaf(alike: Alike, off_tier: Collection[str]) -> dict[str, Counter[Key]]:
    found: defaultdict[str, Counter[Key]] = defaultdict(Counter)
    for (slots, leaves), count in alike.items():
        for index, leaf in enumerate(leaves):
            if leaf not in off_tier:
                found[leaf][slots, index] += count
    return dict(found)


def _main(hcas: Mapping[Key, int]) -> Key:
    return max(hcas, key=lambda key: (hcas[key], key))


def _group_numbers(on_leaf: Mapping[str, Mapping[Key, int]]) -> dict[Key, int]:
    """Number the HCAs that are of one group, since nodes have them on the same leaf."""
    pairs = []
    for hcas in on_leaf.values():
        main = _main(hcas)
        pairs += [(main, key) for key, count in hcas.items() if count >= _ON_LEAF * hcas[main]]
    roots = joined(pairs)
    order = {root: index for index, root in enumerate(sorted(set(roots.values())))}
    return {key: order[root] for key, root in roots.items()}


def _groups(
    alike: Alike,
    on_leaf: Mapping[str, Mapping[Key, int]],
    number: Mapping[Key, int],
    neighbours: Mapping[str, Counter[str]],
) -> dict[int, Group]:
    """Return the groups by number."""
    members: defaultdict[int, list[str]] = defaultdict(list)
    for leaf, hcas in on_leaf.items():
        members[number[_main(hcas)]].append(leaf)
    above = {leaf: neighbours[leaf].keys() - on_leaf.keys() for leaf in on_leaf}
    below: defaultdict[str, set[str]] = defaultdict(set)
    for leaf, spines in above.items():
        for spine in spines:
            below[spine].add(leaf)
    labels = [_parts(on_leaf, neighbours), _parts(on_leaf, above | below)]
    in_part, in_plane = (_hcas_of_a_node(alike, label) for label in labels)
    found = {}
    for own, leaves in members.items():
        most = [statistics.mode(sorted(label[leaf] for leaf in leaves)) for label in labels]
        found[own] = Group(
            leaves=frozenset(leaves),
            hcas=statistics.median(sum(on_leaf[leaf].values()) for leaf in leaves),
            uplinks=statistics.median(neighbours[leaf].total() for leaf in leaves),
            part=most[0],
            plane=most[1],
            part_hcas=in_part[most[0]],
            plane_hcas=in_plane[most[1]],
        )
    return found


def _parts(leaves: Iterable[str], around: Mapping[str, Iterable[str]]) -> dict[str, int]:
    """Number the parts that cables join, and return that of each leaf."""
    part: dict[str, int] = {}
    for start in leaves:
        if start not in part:
            number, front = len(part), {start}
            while front:
                part |= dict.fromkeys(front, number)
                front = set().union(*(around[guid] for guid in front)) - part.keys()
    return part


def _hcas_of_a_node(alike: Alike, label: Mapping[str, int]) -> dict[int, float]:
    """Return how many HCAs a node has on the leaves with one label, on average over those that have any."""
    hcas: Counter[int] = Counter()
    nodes: Counter[int] = Counter()
    for (_, leaves), count in alike.items():
        for number, times in Counter(label[leaf] for leaf in leaves if leaf in label).items():
            hcas[number] += count * times
            nodes[number] += count
    return {number: hcas[number] / nodes[number] for number in nodes}


def _is_unlike(group: Group, peers: Collection[Group]) -> bool:
    """Return whether a group is cabled otherwise than most of ``peers``, which hold one entry for each HCA."""
    leaves = statistics.median(len(peer.leaves) for peer in peers)
    few = min(len(group.leaves), leaves) < _FEW_LEAVES
    measures: Iterable[tuple[float, float, float]] = (
        (group.hcas, statistics.median(peer.hcas for peer in peers), _OTHER_UPLINKS if few else _OTHER_LINKS),
        (group.uplinks, statistics.median(peer.uplinks for peer in peers), _OTHER_UPLINKS),
        (group.part_hcas, statistics.median(peer.part_hcas for peer in peers), _OTHER_UPLINKS),
        (group.plane_hcas, statistics.median(peer.plane_hcas for peer in peers), _OTHER_UPLINKS),
    )
    return _is_apart(len(group.leaves), leaves, _OTHER_COUNT, 1) or any(_is_apart(*measure) for measure in measures)


def _is_apart(one: float, other: float, factor: float, by_more_than: float = 0) -> bool:
    low, high = sorted((one, other))
    return high > factor * low and high - low > by_more_than

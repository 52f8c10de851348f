"""Finds the leaves of storage and management networks on which compute nodes have HCAs too.

A node with eight HCAs for its GPUs often has one or two more, on separate leaves: in a part that no cable joins to the
rest, under separate spines, or under those of the rails. Such leaves hold a minority of a node's HCAs and mostly are
cabled differently from its other leaves. Their role is derived from the servers on them or reached through them, from
their names, and from nodes that do not match any unit or do not have a power of two of HCAs, since rails never do.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from opsk.fabric.fabric import Fabric, Switch
from opsk.fabric.hosts.hosts import COMPUTE, MANAGEMENT, STORAGE, Host, classify_name
from opsk.fabric.units import group_leaves, join_pairs

Slots = tuple[tuple[int, ...], ...]
Key = tuple[Slots, int]
"""The HCA at a place of nodes with such devices."""
NodePatterns = Mapping[tuple[Slots, tuple[str, ...]], int]
"""How many nodes have such devices on such leaves, in the order of the devices."""

_MIN_HCAS = 3
"""A node with fewer HCAs has none of which the others are a majority."""
_ON_LEAF = 0.5
"""What fewer nodes have on a leaf than this share of what most have there is a stray, or another kind of node's."""
_OTHER_LINKS = 1.1
_OTHER_UPLINKS = 1.5
_OTHER_COUNT = 1.25
"""Leaves with so many times more or fewer nodes or uplinks, or so many times more leaves, are cabled otherwise."""
_MIN_LEAVES = 3
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


def find_typical_nodes(hosts: Mapping[str, Host]) -> list[Host]:
    """Return the compute nodes with more than half as many HCAs as most have."""
    named = [host for host in hosts.values() if host.role == COMPUTE and not host.twice and not host.generic]
    hcas: Counter[int] = Counter()
    for host in named:
        hcas[len(host.ports)] += len(host.ports)
    usual = max(hcas, key=lambda size: (hcas[size], size), default=0)
    return [host for host in named if len(host.ports) >= _MIN_HCAS and 2 * len(host.ports) > usual]


def find_unlike_groups(
    patterns: NodePatterns, off_tier: Collection[str], neighbours: Mapping[str, Counter[str]]
) -> tuple[list[Group], list[Group]]:
    """Return the groups that hold a minority of a node's HCAs and are cabled otherwise, and all others."""
    on_leaf = _count_on_leaf(patterns, off_tier)
    number = _number_groups(on_leaf)
    groups = _build_groups(patterns, on_leaf, number, neighbours)
    unlike = {}
    for group_id, group in groups.items():
        hcas = Counter[Key]()
        for leaf in group.leaves:
            hcas.update(on_leaf[leaf])
        slots, _ = _main_key(hcas)
        places = [place for index in range(len(slots)) if (place := number.get((slots, index), -1)) in groups]
        minority = len(places) >= _MIN_HCAS and 2 * places.count(group_id) < len(places)
        if minority and _is_unlike(group, [groups[place] for place in places]):
            unlike[group_id] = group
    return list(unlike.values()), [group for group_id, group in groups.items() if group_id not in unlike]


def _count_on_leaf(patterns: NodePatterns, off_tier: Collection[str]) -> dict[str, Counter[Key]]:
    counts: defaultdict[str, Counter[Key]] = defaultdict(Counter)
    for (slots, leaves), count in patterns.items():
        for index, leaf in enumerate(leaves):
            if leaf not in off_tier:
                counts[leaf][slots, index] += count
    return dict(counts)


def _main_key(hcas: Mapping[Key, int]) -> Key:
    return max(hcas, key=lambda key: (hcas[key], key))


def _number_groups(on_leaf: Mapping[str, Mapping[Key, int]]) -> dict[Key, int]:
    """Number the HCAs that are of one group, since nodes have them on the same leaf."""
    pairs = []
    for hcas in on_leaf.values():
        main = _main_key(hcas)
        pairs += [(main, key) for key, count in hcas.items() if count >= _ON_LEAF * hcas[main]]
    roots = join_pairs(pairs)
    order = {root: index for index, root in enumerate(sorted(set(roots.values())))}
    return {key: order[root] for key, root in roots.items()}


def _build_groups(
    patterns: NodePatterns,
    on_leaf: Mapping[str, Mapping[Key, int]],
    number: Mapping[Key, int],
    neighbours: Mapping[str, Counter[str]],
) -> dict[int, Group]:
    """Return the groups by number."""
    members: defaultdict[int, list[str]] = defaultdict(list)
    for leaf, hcas in on_leaf.items():
        members[number[_main_key(hcas)]].append(leaf)
    above = {leaf: neighbours[leaf].keys() - on_leaf.keys() for leaf in on_leaf}
    below: defaultdict[str, set[str]] = defaultdict(set)
    for leaf, spines in above.items():
        for spine in spines:
            below[spine].add(leaf)
    labels = [_number_parts(on_leaf, neighbours), _number_parts(on_leaf, above | below)]
    in_part, in_plane = (_count_hcas_per_node(patterns, label) for label in labels)
    groups = {}
    for group_id, leaves in members.items():
        modes = [statistics.mode(sorted(label[leaf] for leaf in leaves)) for label in labels]
        groups[group_id] = Group(
            leaves=frozenset(leaves),
            hcas=statistics.median(sum(on_leaf[leaf].values()) for leaf in leaves),
            uplinks=statistics.median(neighbours[leaf].total() for leaf in leaves),
            part=modes[0],
            plane=modes[1],
            part_hcas=in_part[modes[0]],
            plane_hcas=in_plane[modes[1]],
        )
    return groups


def _number_parts(leaves: Iterable[str], around: Mapping[str, Iterable[str]]) -> dict[str, int]:
    """Number the parts that cables join, and return that of each leaf."""
    part: dict[str, int] = {}
    for start in leaves:
        if start not in part:
            number, front = len(part), {start}
            while front:
                part |= dict.fromkeys(front, number)
                front = set().union(*(around[guid] for guid in front)) - part.keys()
    return part


def _count_hcas_per_node(patterns: NodePatterns, label: Mapping[str, int]) -> dict[int, float]:
    """Return how many HCAs a node has on the leaves with one label, on average over those that have any."""
    hcas: Counter[int] = Counter()
    nodes: Counter[int] = Counter()
    for (_, leaves), count in patterns.items():
        for number, times in Counter(label[leaf] for leaf in leaves if leaf in label).items():
            hcas[number] += count * times
            nodes[number] += count
    return {number: hcas[number] / nodes[number] for number in nodes}


def _is_unlike(group: Group, peers: Collection[Group]) -> bool:
    """Return whether a group is cabled otherwise than most of ``peers``, which hold one entry for each HCA."""
    leaves = statistics.median(len(peer.leaves) for peer in peers)
    few = min(len(group.leaves), leaves) < _MIN_LEAVES
    measures: Iterable[tuple[float, float, float]] = (
        (group.hcas, statistics.median(peer.hcas for peer in peers), _OTHER_UPLINKS if few else _OTHER_LINKS),
        (group.uplinks, statistics.median(peer.uplinks for peer in peers), _OTHER_UPLINKS),
        (group.part_hcas, statistics.median(peer.part_hcas for peer in peers), _OTHER_UPLINKS),
        (group.plane_hcas, statistics.median(peer.plane_hcas for peer in peers), _OTHER_UPLINKS),
    )
    return _is_apart(len(group.leaves), leaves, _OTHER_COUNT, 1) or any(_is_apart(*measure) for measure in measures)


def _is_apart(first: float, second: float, factor: float, by_more_than: float = 0) -> bool:
    low, high = sorted((first, second))
    return high > factor * low and high - low > by_more_than


_WORDS = {
    STORAGE: frozenset({"storage", "stor", "stg", "san", "lustre", "gpfs", "weka", "vast", "ddn", "nas", "nsd"}),
    MANAGEMENT: frozenset({"mgmt", "mgt", "mngt", "management", "admin", "oob", "ipmi", "bmc"}),
    COMPUTE: frozenset({"compute", "comp", "gpu", "train", "rail", "ew"}),
}
"""Words in names of switches that mean a role; ``ew`` is east-west."""

_SERVERS = 0.03
"""Servers decide the role of leaves in a common part with the rails where they have this share of the HCAs."""
_OWN_UNIT = 0.9
"""A leaf with at least this share of its nodes in one unit is of that unit."""


def classify_switch_name(description: str) -> set[str]:
    """Return the roles that the words in a switch's name mean."""
    words = set(re.findall(r"[a-z]+", description.lower()))
    return {role for role, telling in _WORDS.items() if words & telling}


def find_side_leaves(
    fabric: Fabric,
    hosts: Mapping[str, Host],
    leaves: Collection[str],
    off_tier: Collection[str],
    neighbours: Mapping[str, Counter[str]],
) -> dict[str, str]:
    """Return the leaves of storage and management networks with their role, those of servers alone among them.

    Parameters
    ----------
    leaves
        All switches with HCAs; those of ``off_tier`` are spines.
    """
    nodes = find_typical_nodes(hosts)
    patterns: NodePatterns = Counter(
        (tuple(port.slot for port in node.ports), tuple(port.switch for port in node.ports)) for node in nodes
    )
    unlike, usual = find_unlike_groups(patterns, off_tier, neighbours)
    typical = {node.name for node in nodes}
    search = _Search(
        switches=fabric.switches,
        others=[host for host in hosts.values() if host.name not in typical and not host.twice],
        leaves=frozenset(leaves),
        neighbours=neighbours,
        patterns=patterns,
    )
    roles: dict[str, str] = {}
    parts = {group.part for group in usual}
    rails = _collect_leaves(usual)
    for groups in _networks(unlike):
        roles |= _classify_side(search, _collect_leaves(groups), rails, apart=groups[0].part not in parts)
    if not roles:
        roles = _classify_among_rails(search, usual)
    return roles if _is_minority(roles, patterns) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """The input of the search for side networks; ``others`` are the hosts that are no typical compute nodes."""

    switches: Mapping[str, Switch]
    others: Sequence[Host]
    leaves: frozenset[str]
    neighbours: Mapping[str, Counter[str]]
    patterns: NodePatterns


def _collect_leaves(groups: Iterable[Group]) -> frozenset[str]:
    return frozenset[str]().union(*(group.leaves for group in groups))


def _classify_side(search: _Search, side: frozenset[str], rails: frozenset[str], *, apart: bool) -> dict[str, str]:
    """Return the role of leaves that are cabled differently from the rails, and of those behind them, if known."""
    reached = _find_reached(side, rails, search.neighbours) | _find_cabled_like(
        side, rails, search.leaves, search.neighbours
    )
    servers = [host for host in search.others if all(port.switch in reached for port in host.ports)]
    if not apart and not _are_many(servers, side, search.patterns):
        servers = []
    role = _find_role(_names(search, reached if apart else side), servers)
    if role is None and (_is_odd(side, search.patterns) or _is_across_units(side, rails, search.patterns)):
        role = STORAGE
    return dict.fromkeys(side | (reached & search.leaves), role) if role else {}


def _classify_among_rails(search: _Search, groups: Sequence[Group]) -> dict[str, str]:
    """Return the role of leaves that are cabled like the rails: by their names, or by servers on odd ones."""
    named = {group: _find_role(_names(search, group.leaves), ()) for group in groups}
    roles = {leaf: role for group, role in named.items() if role for leaf in group.leaves}
    if roles:
        return roles
    storage = [host for host in search.others if host.role == STORAGE]
    served = {port.switch for host in storage for port in host.ports}
    served_leaves = _collect_leaves(group for group in groups if not served.isdisjoint(group.leaves))
    servers = [host for host in storage if all(port.switch in served_leaves for port in host.ports)]
    if servers and _are_many(servers, served_leaves, search.patterns) and _is_odd(served_leaves, search.patterns):
        return dict.fromkeys(served_leaves, STORAGE)
    return {}


def _names(search: _Search, guids: Iterable[str]) -> list[str]:
    return [search.switches[guid].description for guid in guids]


def _networks(groups: Iterable[Group]) -> list[list[Group]]:
    """Return groups under common spines together."""
    together: defaultdict[int, list[Group]] = defaultdict(list)
    for group in groups:
        together[group.plane].append(group)
    return list(together.values())


def _find_reached(
    side: Collection[str], rails: Collection[str], neighbours: Mapping[str, Counter[str]]
) -> frozenset[str]:
    """Return the switches that are cabled to ``side`` leaves, directly or through others, and not to the rails so."""
    return _reach_switches(side, rails, neighbours) - _reach_switches(rails, side, neighbours)


def _find_cabled_like(
    side: Collection[str], rails: Collection[str], leaves: Collection[str], neighbours: Mapping[str, Counter[str]]
) -> frozenset[str]:
    """Return the leaves under just the spines of most of ``side``, where no leaf of the rails is."""
    spines = Counter(frozenset(neighbours[leaf]) for leaf in side)
    usual = max(spines, key=lambda candidate: (spines[candidate], sorted(candidate)))
    if not usual or any(neighbours[leaf].keys() == usual for leaf in rails):
        return frozenset()
    return frozenset(leaf for leaf in leaves if neighbours[leaf].keys() == usual)


def _reach_switches(
    start: Collection[str], other: Collection[str], neighbours: Mapping[str, Counter[str]]
) -> frozenset[str]:
    """Return the switches that cables lead to from ``start``, short of leaves of the ``other`` and their spines."""
    closed = set(other).union(*(neighbours[leaf] for leaf in other)) - set(start)
    seen = set(start)
    front = list(start)
    while front:
        reached = {guid for leaf in front for guid in neighbours[leaf]} - seen - closed
        seen |= reached
        front = list(reached)
    return frozenset(seen)


def _are_many(servers: Iterable[Host], leaves: Collection[str], patterns: NodePatterns) -> bool:
    """Return whether servers have so many HCAs that they are no strays among those of nodes on the same leaves."""
    there = sum(count * sum(leaf in leaves for leaf in used) for (_, used), count in patterns.items())
    return sum(len(host.ports) for host in servers) >= _SERVERS * there


def _find_role(names: Sequence[str], servers: Sequence[Host]) -> str | None:
    """Return the role of switches by their names, else by the servers; ``None`` where neither shows it."""
    named = Counter(role for name in names for role in classify_switch_name(name))
    for role in (STORAGE, MANAGEMENT):
        if 2 * named[role] > len(names):
            return role
    if not servers:
        return None
    return MANAGEMENT if all(classify_name(host.name) == MANAGEMENT for host in servers) else STORAGE


def _is_odd(side: Collection[str], patterns: NodePatterns) -> bool:
    """Return whether nodes have a power of two of HCAs only without those on ``side``: GPUs come in such numbers."""
    sizes: Counter[tuple[int, int]] = Counter()
    for (_, used), count in patterns.items():
        inside = sum(leaf in side for leaf in used)
        if inside:
            sizes[len(used), inside] += count
    total, inside = max(sizes, key=lambda size: (sizes[size], size), default=(0, 0))
    return total.bit_count() != 1 and (total - inside).bit_count() == 1


def _is_across_units(side: Collection[str], rails: Collection[str], patterns: NodePatterns) -> bool:
    """Return whether most leaves hold nodes of several units, units being derived from the leaves of the rails."""
    sets: Counter[frozenset[str]] = Counter()
    for (_, used), count in patterns.items():
        sets[frozenset(leaf for leaf in used if leaf in rails)] += count
    unit_of = group_leaves(sets)
    units: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for (_, used), count in patterns.items():
        votes = Counter(unit_of[leaf] for leaf in used if leaf in unit_of)
        if votes:
            unit = max(votes, key=lambda candidate: (votes[candidate], candidate))
            for leaf in used:
                if leaf in side:
                    units[leaf][unit] += count
    across = [leaf for leaf, count in units.items() if max(count.values()) < _OWN_UNIT * count.total()]
    return 2 * len(across) > len(side)


def _is_minority(side: Collection[str], patterns: NodePatterns) -> bool:
    """Return whether nodes have most of their HCAs on other leaves."""
    inside = sum(count * sum(leaf in side for leaf in used) for (_, used), count in patterns.items())
    return 2 * inside < sum(count * len(used) for (_, used), count in patterns.items())

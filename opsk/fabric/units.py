"""Finds scalable units, the leaves that serve the same nodes, by the number of nodes that each two leaves share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeVar

from opsk.fabric.hosts.hosts import Host
from opsk.fabric.hosts.ports import natural_key

_T = TypeVar("_T", str, tuple[tuple[tuple[int, ...], ...], int])

_SHARED_BY_SMALLER = 0.5
_SHARED_BY_LARGER = 0.25
"""Two leaves are of one unit when they share at least these parts of the nodes of the one with fewer, and with more:
a single stray cable joins no units, and a leaf that all units share (storage) does not join them either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A scalable unit: leaf guids, and the nodes with most of their ports there, in natural order."""

    leaves: tuple[str, ...]
    nodes: tuple[str, ...]


def find_units(hosts: Sequence[Host], leaf_names: Mapping[str, str]) -> tuple[Unit, ...]:
    """Return the units of compute ``hosts``, in the natural order of their first nodes.

    Parameters
    ----------
    leaf_names
        Guid to description of the leaves that count; ports on other switches are left out.
    """
    node_sets = Counter(frozenset(port.switch for port in host.ports if port.switch in leaf_names) for host in hosts)
    groups = group_leaves(node_sets)
    nodes: dict[str, list[str]] = {group: [] for group in set(groups.values())}
    for host in hosts:
        votes = Counter(groups[port.switch] for port in host.ports if port.switch in groups)
        if votes:
            nodes[min(votes, key=lambda group: (-votes[group], group))].append(host.name)
    units = []
    for group, names in nodes.items():
        members = sorted(
            (leaf for leaf in groups if groups[leaf] == group), key=lambda g: (natural_key(leaf_names[g]), g)
        )
        units.append(Unit(leaves=tuple(members), nodes=tuple(sorted(names, key=natural_key))))
    return tuple(
        sorted(units, key=lambda unit: (not unit.nodes, [natural_key(name) for name in unit.nodes[:1]], unit.leaves))
    )


def join_pairs(pairs: Iterable[tuple[_T, _T]]) -> dict[_T, _T]:
    """Return for each member of ``pairs`` the least of all that it is joined with."""
    root: dict[_T, _T] = {}

    def find(member: _T) -> _T:
        root.setdefault(member, member)
        while root[member] != member:
            root[member] = root[root[member]]
            member = root[member]
        return member

    for member, other in pairs:
        low, high = sorted((find(member), find(other)))
        root[high] = low
    return {member: find(member) for member in root}


def group_leaves(node_sets: Mapping[frozenset[str], int]) -> dict[str, str]:
    """Return for each leaf the one that represents those of its unit.

    Parameters
    ----------
    node_sets
        How many nodes are cabled to such a set of leaves.
    """
    on_leaf: Counter[str] = Counter()
    shared: Counter[tuple[str, str]] = Counter()
    for used, count in node_sets.items():
        for leaf in used:
            on_leaf[leaf] += count
        for pair in combinations(sorted(used), 2):
            shared[pair] += count
    pairs = [(leaf, leaf) for leaf in on_leaf]
    for (leaf_a, leaf_b), count in shared.items():
        fewer, more = sorted((on_leaf[leaf_a], on_leaf[leaf_b]))
        if count >= _SHARED_BY_SMALLER * fewer and count >= _SHARED_BY_LARGER * more:
            pairs.append((leaf_a, leaf_b))
    return join_pairs(pairs)

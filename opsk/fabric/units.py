"""Which leaves serve the same nodes? Scalable units, found by how many nodes each two leaves share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeVar

from opsk.fabric.hosts.hosts import Host
from opsk.fabric.hosts.ports import natural

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
    alike = Counter(frozenset(port.switch for port in host.ports if port.switch in leaf_names) for host in hosts)
    groups = leaf_sets(alike)
    nodes: dict[str, list[str]] = {group: [] for group in set(groups.values())}
    for host in hosts:
        votes = Counter(groups[port.switch] for port in host.ports if port.switch in groups)
        if votes:
            nodes[min(votes, key=lambda group: (-votes[group], group))].append(host.name)
    units = []
    for group, names in nodes.items():
        members = sorted((leaf for leaf in groups if groups[leaf] == group), key=lambda g: (natural(leaf_names[g]), g))
        units.append(Unit(leaves=tuple(members), nodes=tuple(sorted(names, key=natural))))
    return tuple(
        sorted(units, key=lambda unit: (not unit.nodes, [natural(name) for name in unit.nodes[:1]], unit.leaves))
    )


def joined(pairs: Iterable[tuple[_T, _T]]) -> dict[_T, _T]:
    """Return for each member of ``pairs`` the least of all that it is joined with."""
    root: dict[_T, _T] = {}

    def find(one: _T) -> _T:
        root.setdefault(one, one)
        while root[one] != one:
            root[one] = root[root[one]]
            one = root[one]
        return one

    for one, other in pairs:
        low, high = sorted((find(one), find(other)))
        root[high] = low
    return {one: find(one) for one in root}


def leaf_sets(alike: Mapping[frozenset[str], int]) -> dict[str, str]:
    """Return for each leaf the one that stands for those of its unit.

    Parameters
    ----------
    alike
        How many nodes are cabled to such a set of leaves.
    """
    on_leaf: Counter[str] = Counter()
    shared: Counter[tuple[str, str]] = Counter()
    for used, count in alike.items():
        for leaf in used:
            on_leaf[leaf] += count
        for pair in combinations(sorted(used), 2):
            shared[pair] += count
    pairs = [(leaf, leaf) for leaf in on_leaf]
    for (one, other), count in shared.items():
        fewer, more = sorted((on_leaf[one], on_leaf[other]))
        if count >= _SHARED_BY_SMALLER * fewer and count >= _SHARED_BY_LARGER * more:
            pairs.append((one, other))
    return joined(pairs)

"""Finds planes of switches, and the usual number of cables between each lower and upper switch of a plane.

A plane is a set of switches of one tier that are cabled to the same switches above: a pod's leaves and its spines, or
the spines of equal number and their cores.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from opsk.fabric.cabling import Cabling

_REGULAR = 0.6
"""Share of the pairs of a plane that must have the usual number of cables before a deviation means anything."""
_OVERLAP = 0.5
_DEAD = 0.5
"""A switch above that has lost more than this share of its cables to a plane is itself the cause."""
_MIN_SWITCHES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Plane:
    """``lower`` switches and the ``upper`` ones that are theirs; ``usual`` cables between each two, 0 if irregular.

    ``failed`` are upper switches that have lost most of their cables to this plane.
    """

    lower: tuple[str, ...]
    upper: tuple[str, ...]
    usual: int
    failed: tuple[str, ...]

    @property
    def full(self) -> int:
        """Return how many cables upwards each lower switch has where nothing is missing."""
        return self.usual * len(self.upper)

    @property
    def sound(self) -> int:
        """Return the same without the upper switches that have failed."""
        return self.usual * (len(self.upper) - len(self.failed))

    def lacking(self, cables: Mapping[str, int], *, with_failed: bool = False) -> Counter[str]:
        """Return to which upper switches one with these ``cables`` has fewer than usual, and how many fewer."""
        skip = () if with_failed else self.failed
        return Counter(
            {
                guid: self.usual - cables.get(guid, 0)
                for guid in self.upper
                if cables.get(guid, 0) < self.usual and guid not in skip
            }
        )

    def extra(self, cables: Mapping[str, int]) -> Counter[str]:
        """Return to which switches one with these ``cables`` has more than usual, and how many more."""
        upper = set(self.upper)
        return Counter(
            {
                guid: count - (self.usual if guid in upper else 0)
                for guid, count in cables.items()
                if count > (self.usual if guid in upper else 0)
            }
        )


def find_planes(cabling: Cabling, lower: Collection[str]) -> tuple[Plane, ...]:
    """Return the planes of ``lower`` switches of one tier; those without any cable upwards are in none."""
    up = {guid: cabling.uplinks(guid) for guid in sorted(lower)}
    groups = _group_by_upper({guid: cables for guid, cables in up.items() if cables})
    home = _assign_upper(groups, up)
    planes = []
    for index, members in enumerate(groups):
        upper = tuple(sorted(guid for guid, group in home.items() if group == index))
        planes.append(_build_plane(members, upper, up))
    return tuple(planes)


def _group_by_upper(up: Mapping[str, Mapping[str, int]]) -> list[list[str]]:
    """Return the switches that share at least half of what is above them, group by group."""
    by_spines: defaultdict[frozenset[str], list[str]] = defaultdict(list)
    for guid, cables in up.items():
        by_spines[frozenset(cables)].append(guid)
    root = {group: group for group in by_spines}

    def find(group: frozenset[str]) -> frozenset[str]:
        while root[group] is not group:
            root[group] = root[root[group]]
            group = root[group]
        return group

    by_upper: defaultdict[str, list[frozenset[str]]] = defaultdict(list)
    for group in by_spines:
        for guid in group:
            by_upper[guid].append(group)
    for group in by_spines:
        shared: Counter[frozenset[str]] = Counter()
        for guid in group:
            shared.update(by_upper[guid])
        for other, count in shared.items():
            if other is not group and count >= _OVERLAP * max(len(group), len(other)):
                first, second = find(group), find(other)
                if first is not second:
                    root[first] = second
    merged: defaultdict[frozenset[str], list[str]] = defaultdict(list)
    for group, members in by_spines.items():
        merged[find(group)] += members
    return sorted(sorted(members) for members in merged.values())


def _assign_upper(groups: list[list[str]], up: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Return for each upper switch the group that it has most cables to: a stray cable makes no member."""
    cables: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for index, members in enumerate(groups):
        for guid in members:
            for upper, count in up[guid].items():
                cables[upper][index] += count
    return {upper: min(votes, key=lambda index: (-votes[index], index)) for upper, votes in cables.items()}


def _build_plane(members: list[str], upper: tuple[str, ...], up: Mapping[str, Mapping[str, int]]) -> Plane:
    pairs: Counter[int] = Counter()
    total: Counter[str] = Counter()
    for guid in members:
        cables = up[guid]
        counts = [cables.get(other, 0) for other in upper]
        pairs.update(counts)
        for other, count in zip(upper, counts, strict=True):
            total[other] += count
    pairs.pop(0, None)
    usual = max(pairs, key=lambda count: (pairs[count], count), default=0)
    failed = tuple(guid for guid in upper if total[guid] < (1 - _DEAD) * usual * len(members))
    expected_pairs = len(members) * (len(upper) - len(failed))
    regular = expected_pairs > 0 and pairs[usual] >= _REGULAR * expected_pairs and len(members) >= _MIN_SWITCHES
    return Plane(lower=tuple(members), upper=upper, usual=usual if regular else 0, failed=failed if regular else ())

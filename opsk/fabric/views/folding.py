"""Which switches of a tier are cabled alike, so that one box can stand for them?"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence

from opsk.fabric.rails import Rails

_ALIKE = 0.5
"""Switches are cabled alike when they share at least this part of all that either is cabled to: a cable or two that
are missing make no kind of their own."""
_ENOUGH = 3
_MOST = 0.5


class Folding:
    """The boxes of a picture, tier after tier from below: ``groups`` of guids, ``box_of`` a guid is its index."""

    def __init__(
        self, neighbours: Mapping[str, Counter[str]], tier: Mapping[str, int], rails: Rails, most: int, most_above: int
    ) -> None:
        self._neighbours = neighbours
        self._tier = tier
        self._rails = rails
        self._most = most
        self._most_above = most_above
        self._kinds: list[list[str]] = []
        self.groups: list[tuple[str, ...]] = []
        self.box_of: dict[str, int] = {}

    def fold(self, level: int | None, switches: Sequence[str]) -> None:
        """Add the switches of one tier, folded no more than needed to be few enough."""
        if not switches:
            return
        kind_of = self._kind_of(level, switches)
        most = self._most_above if level else self._most
        found: list[tuple[str, ...]] = [(guid,) for guid in switches]
        if len(found) > most and level is not None:
            found = _grouped(switches, {guid: (kind_of[guid], self._unit(guid)) for guid in switches})
        if len(found) > most:
            found = _grouped(switches, kind_of)
        for group in found:
            self.box_of |= dict.fromkeys(group, len(self.groups))
            self.groups.append(group)

    def lacking(self, neighbours: Mapping[str, Counter[str]]) -> Iterator[tuple[int, int, int]]:
        """Yield box, box above and usual cables where most of a leaf's like are cabled to a switch and it is not."""
        for kind in self._kinds:
            if len(kind) < _ENOUGH:
                continue
            votes: defaultdict[str, Counter[int]] = defaultdict(Counter)
            for guid in kind:
                for other, count in neighbours[guid].items():
                    if self._tier.get(other, -1) > self._tier[guid]:
                        votes[other][count] += 1
            for other, counts in votes.items():
                if counts.total() <= _MOST * len(kind):
                    continue
                for guid in kind:
                    box, above = self.box_of[guid], self.box_of[other]
                    if not neighbours[guid][other] and len(self.groups[box]) == len(self.groups[above]) == 1:
                        yield box, above, counts.most_common(1)[0][0]

    def _unit(self, guid: str) -> int | None:
        leaf = self._rails.leaves.get(guid)
        return leaf.unit if leaf else None

    def _kind_of(self, level: int | None, switches: Sequence[str]) -> dict[str, Hashable]:
        """Return a number for each switch that those cabled alike share: leaves by what is above, others by below."""
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
            own = (leaf.role if leaf and level == 0 else None, sets[guid])
            if own not in known:
                alike = (index for index, kind in enumerate(kinds) if kind[0] == own[0] and _alike(kind[1], own[1]))
                known[own] = next(alike, len(kinds))
                if known[own] == len(kinds):
                    kinds.append(own)
            kind_of[guid] = known[own]
        if level == 0:
            self._kinds += [list(group) for group in _grouped(switches, kind_of)]
        return kind_of


def _alike(one: frozenset[Hashable], other: frozenset[Hashable]) -> bool:
    return len(one & other) >= _ALIKE * len(one | other)


def _grouped(switches: Sequence[str], key_of: Mapping[str, Hashable]) -> list[tuple[str, ...]]:
    groups: defaultdict[Hashable, list[str]] = defaultdict(list)
    for guid in switches:
        groups[key_of[guid]].append(guid)
    return [tuple(group) for group in groups.values()]

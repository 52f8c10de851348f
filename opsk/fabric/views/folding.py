"""Groups the switches of a tier that are cabled similarly, so that one box can represent them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence

from opsk.fabric.rails import Rails

_MIN_SHARED = 0.5
"""Switches are cabled similarly when they share at least this part of all that either is cabled to: a cable or two that
are missing make no kind of their own."""
_MIN_SWITCHES = 3
_MAJORITY_SHARE = 0.5


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
        kind_of = self._kind_of(level, switches)
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

    def _kind_of(self, level: int | None, switches: Sequence[str]) -> dict[str, Hashable]:
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

"""What joins the boxes of the tree of tiers: how many cables, how many there should be, and how loaded are they?"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opsk.topology.fabric import Fault
from opsk.topology.picture.folding import Folding
from opsk.topology.picture.load import Loads, heaviest
from opsk.topology.picture.marks import Marks

Pair = tuple[str, str]


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
class Lines:
    """The lines; ``usual`` is the cables of most pairs of two tiers, ``inside`` counts cables within a box."""

    lines: tuple[Line, ...]
    usual: Mapping[tuple[int, int], int]
    inside: Counter[int]


def read_lines(
    neighbours: Mapping[str, Counter[str]], tier: Mapping[str, int], folding: Folding, loads: Loads | None, marks: Marks
) -> Lines:
    """Return the lines between the boxes of a folded fabric."""
    usual = _usual(neighbours, tier)
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
    for (low, high), found in pairs.items():
        first, last = found[0]
        lines.append(
            Line(
                low=low,
                high=high,
                cables=sum(neighbours[guid][other] for guid, other in found),
                pairs=len(found),
                usual=usual[tier.get(first, -1), tier.get(last, -1)],
                up_load=heaviest(loads, found),
                down_load=heaviest(loads, ((other, guid) for guid, other in found)),
                faults=_faults(found, marks),
            )
        )
    lacking = folding.lacking(neighbours)
    lines += [Line(low=low, high=high, cables=0, pairs=1, usual=count) for low, high, count in lacking]
    return Lines(lines=tuple(lines), usual=usual, inside=inside)


def _usual(neighbours: Mapping[str, Counter[str]], tier: Mapping[str, int]) -> dict[tuple[int, int], int]:
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

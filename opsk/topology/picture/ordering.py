"""In which order do the boxes of each tier stand so that few lines cross? Barycentres, up and down in turn.

The order that the boxes come in is kept unless another crosses clearly less: names in natural order are easy to find.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Mapping, Sequence

_SWEEPS = 6
_WORTH_IT = 0.9
"""A new order must leave less than this share of the crossings: else names in their natural order help more."""
_MOST_LINES = 20_000
"""With more lines than this nobody can follow one: the order is left as it is."""

Edge = tuple[int, int, int]
"""Lower box, upper box, weight."""


def arranged(levels: Sequence[Sequence[int]], edges: Sequence[Edge]) -> list[list[int]]:
    """Return the boxes of each tier, from the top down, in an order in which few lines cross."""
    best = [list(level) for level in levels]
    if len(edges) > _MOST_LINES or len(levels) < 2:
        return best
    level_of = {box: index for index, level in enumerate(levels) for box in level}
    joined: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for low, high, weight in edges:
        if low in level_of and high in level_of and level_of[low] != level_of[high]:
            joined[low].append((high, weight))
            joined[high].append((low, weight))
    fewest = _WORTH_IT * crossings(best, edges)
    current = [list(level) for level in best]
    for sweep in range(_SWEEPS):
        downwards = range(1, len(levels))
        for index in downwards if sweep % 2 else reversed(range(len(levels) - 1)):
            fixed = current[index - 1] if sweep % 2 else current[index + 1]
            place = {box: (position + 0.5) / len(fixed) for position, box in enumerate(fixed)}
            current[index] = _sorted(current[index], joined, place)
        found = crossings(current, edges)
        if found < fewest:
            best, fewest = [list(level) for level in current], found
    return best


def _sorted(
    boxes: Sequence[int], joined: Mapping[int, Sequence[tuple[int, int]]], place: Mapping[int, float]
) -> list[int]:
    """Return boxes by the mean place of what they are joined to; those joined to nothing keep their place."""
    centre = {}
    for position, box in enumerate(boxes):
        ends = [(place[other], weight) for other, weight in joined.get(box, ()) if other in place]
        total = sum(weight for _, weight in ends)
        mean = sum(where * weight for where, weight in ends) / total if total else (position + 0.5) / len(boxes)
        centre[box] = round(mean, 9)
    return sorted(boxes, key=lambda box: centre[box])


def crossings(levels: Sequence[Sequence[int]], edges: Sequence[Edge]) -> int:
    """Return how many pairs of lines between neighbouring tiers cross."""
    level_of = {box: index for index, level in enumerate(levels) for box in level}
    place = {box: position for level in levels for position, box in enumerate(level)}
    between: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for low, high, _ in edges:
        if low in level_of and high in level_of and level_of[low] == level_of[high] + 1:
            between[level_of[high]].append((place[high], place[low]))
    total = 0
    for lines in between.values():
        seen: list[int] = []
        for _, low in sorted(lines):
            total += len(seen) - bisect_right(seen, low)
            insort(seen, low)
    return total

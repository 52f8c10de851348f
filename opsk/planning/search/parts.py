"""How is one search shared by several processes, so that what they find together is what one would have found?

Every part has every n-th node of each space, shuffled, so that all parts have something of every kind of plan. What the
first batches of a whole space find bounds its parts from the start: no part has to discover for itself what is fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from opsk.planning.search.found import Found
from opsk.planning.search.front import Front
from opsk.planning.search.request import PlanRequest
from opsk.planning.search.search import WALKED, searched
from opsk.planning.search.space import Space, space_of

FIRST_ROWS = 32_768
"""Plans after which the first look ends: a fifth of a second, and most often the fastest plan is among them."""
_STRIDE, _RANGE = 2_654_435_761, 1 << 32
"""Knuth's multiplicative hashing: neighbours end up far from each other, on every machine in the same order."""


def part_of(space: Space, number: int, parts: int) -> Space:
    """Return one of the parts, 0 to parts - 1, that together are a space."""
    shuffled = np.argsort(np.arange(len(space)) * _STRIDE % _RANGE, kind="stable")
    return space.only(np.sort(shuffled[number::parts]))


def part_sizes(requests: Iterable[PlanRequest], parts: int) -> list[int]:
    """Return the number of plans of each part of several spaces."""
    sizes = [0] * parts
    for space in map(space_of, requests):
        sizes = [size + part_of(space, number, parts).size for number, size in enumerate(sizes)]
    return sizes


def part_searched(
    requests: Sequence[PlanRequest], number: int, parts: int, *, walk: bool | None = None, front: bool = False
) -> Iterator[Found]:
    """Yield what is known of one part of each request's space, after every batch; what comes last is all of it.

    Parameters
    ----------
    requests
        One or more, as for `opsk.planning.search.cases.searched_cases`.
    number
        Which part, 0 to parts - 1.
    walk, front
        As for `opsk.planning.search.search.searched`.
    """
    done = Found(most=requests[0].most, front=Front() if front else None)
    yield done
    for request in requests:
        found = done
        for part in _part_of_one(space_of(request), number, parts, walk=walk, front=front):
            found = done.joined(part)
            yield found
        done = found


def first_look(space: Space) -> Found:
    """Return what the first batches of a whole space find, always the same."""
    found = Found(most=space.request.most)
    for found in searched(space, walk=False):
        if found.evaluated >= FIRST_ROWS and found.best:
            break
    return lists_of(found)


def lists_of(found: Found) -> Found:
    """Return the fastest plans that were found, with no plan counted: those will be by the part that they are in."""
    return Found(most=found.most, best=found.best, best_fitting=found.best_fitting)


def all_joined(found: Iterable[Found]) -> Found:
    """Return what searches of different parts found together."""
    return reduce(Found.joined, found)


def with_lists(found: Found, known: Found) -> Found:
    """Return the same with plans that are known from elsewhere: one as fast as another may be left out for it."""
    listed = found.joined(lists_of(known))
    return replace(found, best=listed.best, best_fitting=listed.best_fitting)


def _part_of_one(space: Space, number: int, parts: int, *, walk: bool | None, front: bool) -> Iterator[Found]:
    """Yield what is known of one part of one space."""
    # told, or because the whole space is small, however small a part of it is: the counts are those of one search
    walk = space.size <= WALKED if walk is None else walk
    known = None if walk else first_look(space)
    for found in searched(part_of(space, number, parts), known=known, walk=walk, front=front):
        yield with_lists(found, known) if known else found

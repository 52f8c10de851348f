"""Splits one search over several processes so that their joined result equals that of a single process.

Every part gets every n-th node of each space, shuffled, so that all parts contain plans of every kind. The first
batches of the whole space bound each part from the start, so that no part has to find fast plans by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from opsk.planning.search.request import PlanRequest
from opsk.planning.search.result import Front, SearchResult
from opsk.planning.search.search import WALKED, search_space
from opsk.planning.search.space import Space, build_space

FIRST_ROWS = 32_768
"""Plans after which the first look ends: a fifth of a second, and the fastest plan is usually among them."""
_STRIDE, _RANGE = 2_654_435_761, 1 << 32
"""Knuth's multiplicative hashing: neighbours end up far from each other, on every machine in the same order."""


def select_part(space: Space, number: int, parts: int) -> Space:
    """Return one of the parts, 0 to parts - 1, that together are a space."""
    shuffled = np.argsort(np.arange(len(space)) * _STRIDE % _RANGE, kind="stable")
    return space.only(np.sort(shuffled[number::parts]))


def part_sizes(requests: Iterable[PlanRequest], parts: int) -> list[int]:
    """Return the number of plans of each part of several spaces."""
    sizes = [0] * parts
    for space in map(build_space, requests):
        sizes = [size + select_part(space, number, parts).size for number, size in enumerate(sizes)]
    return sizes


def search_part(
    requests: Sequence[PlanRequest], number: int, parts: int, *, walk: bool | None = None, front: bool = False
) -> Iterator[SearchResult]:
    """Yield the result of one part of each request's space after every batch; the last one is complete.

    Parameters
    ----------
    requests
        One or more, as for `opsk.planning.search.search.search_cases`.
    number
        Which part, 0 to parts - 1.
    walk, front
        As for `opsk.planning.search.search.search_space`.
    """
    done = SearchResult(most=requests[0].most, front=Front() if front else None)
    yield done
    for request in requests:
        result = done
        for part in _search_part_of_one(build_space(request), number, parts, walk=walk, front=front):
            result = done.merge(part)
            yield result
        done = result


def first_look(space: Space) -> SearchResult:
    """Return the result of the first batches of a whole space; it is deterministic."""
    result = SearchResult(most=space.request.most)
    for result in search_space(space, walk=False):
        if result.evaluated >= FIRST_ROWS and result.best:
            break
    return extract_lists(result)


def extract_lists(result: SearchResult) -> SearchResult:
    """Return only the lists of a result, without its counts: every plan is counted by the part that it is in."""
    return SearchResult(most=result.most, best=result.best, best_fitting=result.best_fitting, likely=result.likely)


def join_all(results: Iterable[SearchResult]) -> SearchResult:
    """Return the joined result of searches of different parts."""
    return reduce(SearchResult.merge, results)


def add_lists(result: SearchResult, known: SearchResult) -> SearchResult:
    """Return the result with the lists of another one added: of equally fast plans one may replace the other."""
    listed = result.merge(extract_lists(known))
    return replace(result, best=listed.best, best_fitting=listed.best_fitting, likely=listed.likely)


def _search_part_of_one(
    space: Space, number: int, parts: int, *, walk: bool | None, front: bool
) -> Iterator[SearchResult]:
    """Yield the result of one part of one space after every batch."""
    # requested, or because the whole space (not the part) is small: the counts are those of one search
    walk = space.size <= WALKED if walk is None else walk
    known = None if walk else first_look(space)
    for result in search_space(select_part(space, number, parts), known=known, walk=walk, front=front):
        yield add_lists(result, known) if known else result

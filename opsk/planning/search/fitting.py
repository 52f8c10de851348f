"""Plans are legal, but none can run: which one constraint, let go, leaves some that fit into memory?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from opsk.frameworks.limits import ANYTHING
from opsk.planning.search.candidate import Candidate
from opsk.planning.search.emptiness import CODES, Relaxation, held, values_of, without, words
from opsk.planning.search.request import PlanRequest
from opsk.planning.search.search import searched
from opsk.planning.search.space import has_plans, space_of
from opsk.planning.search.what_if import less_memory

_LARGER, _MOST_LARGER = 1.05, 256
"""Memory grows by a twentieth a step, and by so many steps at the most: 1.05^256 is 265,000 times as much."""
_TRIED = 12
"""So many other values of an axis are tried to each side."""


def can_run(request: PlanRequest) -> bool:
    """Return whether some plan of a request is not expected to run out of memory; the search ends with the first."""
    return has_plans(request) and any(found.best for found in searched(space_of(request)))


def least_hungry(request: PlanRequest) -> Candidate | None:
    """Return a plan that needs hardly more memory than the leanest, though more than there is; ``None`` if none does.

    Found with GPUs of more memory, in steps of a twentieth: the plan is one for them, its chance to fit theirs.
    """
    capacity_bytes = float(request.cluster.node.gpu.capacity_bytes)
    low, high = 0, 1
    while (found := _first_on(request, capacity_bytes * _LARGER**high)) is None:
        low, high = high, 2 * high
        if high > _MOST_LARGER:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        one = _first_on(request, capacity_bytes * _LARGER**middle)
        low, high, found = (low, middle, one) if one else (middle, high, found)
    return found


def _first_on(request: PlanRequest, capacity_bytes: float) -> Candidate | None:
    """Return the first plan that is found to run on GPUs with so much memory."""
    cluster = request.cluster
    more = less_memory(cluster, cluster.node.gpu.capacity_bytes - capacity_bytes)
    asked = replace(request, cluster=more)
    return next((found.best[0] for found in searched(space_of(asked)) if found.best), None)


def fit_relaxations(request: PlanRequest, *, margin_bytes: float = 0.0) -> Iterator[Relaxation]:
    """Yield every single constraint whose relaxation lets some plan run, with the nearest value that does.

    Parameters
    ----------
    margin_bytes
        What of each GPU's memory ``request.cluster`` was told to leave free [bytes].
    """
    for axis, asked in request.fixed.items():
        free = without(request, axis)
        if can_run(free):
            yield Relaxation(constraint=axis, asked=words(asked), nearest=_nearest(free, axis, asked[0]))
    if request.limits.name != ANYTHING.name and can_run(replace(request, limits=ANYTHING, refuses=None)):
        yield Relaxation(constraint="framework", asked=request.limits.name)
    if margin_bytes > 0.0:
        yield from _of_margin(request, margin_bytes)


def _nearest(free: PlanRequest, axis: str, asked: Any) -> tuple[str, ...]:
    """Return the values of an axis with which some plan can run: the nearest below and above a number, else all."""
    found = values_of(space_of(free), axis)
    if axis in CODES:
        known = [CODES[axis][value] for value in found]
        return tuple(words((value,)) for value in known if value != asked and _runs(free, axis, value))
    if axis == "sequence_parallel":
        return (words((not asked,)),)
    below = [value for value in reversed(found) if value < asked]
    above = [value for value in found if value > asked]
    nearest = (_first(free, axis, side[:_TRIED]) for side in (below, above))
    return tuple(str(value) for value in nearest if value is not None)


def _first(free: PlanRequest, axis: str, values: Sequence[int]) -> int | None:
    """Return the first of some values with which a plan can run."""
    return next((value for value in values if _runs(free, axis, value)), None)


def _runs(free: PlanRequest, axis: str, value: Any) -> bool:
    """Return whether some plan can run with one value of an axis."""
    return can_run(held(free, axis, value))


def _of_margin(request: PlanRequest, margin_bytes: float) -> Iterator[Relaxation]:
    """Yield the margin where it is to blame, with the largest whole per cent that is not."""
    whole = less_memory(request.cluster, -margin_bytes)
    capacity_bytes = whole.node.gpu.capacity_bytes
    asked = 100.0 * margin_bytes / capacity_bytes
    low, high = -1, -int(-asked // 1)  # with ``low`` some plan runs, with ``high`` none does
    while high - low > 1:
        middle = (low + high) // 2
        cluster = less_memory(whole, middle / 100.0 * capacity_bytes)
        low, high = (middle, high) if can_run(replace(request, cluster=cluster)) else (low, middle)
    if low >= 0:
        yield Relaxation(constraint="memory_margin", asked=f"{asked:.3g}%", nearest=(f"{low}%",))

"""Finds the single constraints whose relaxation lets some plan fit into memory, where no legal plan fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from opsk.frameworks.limits import ANYTHING
from opsk.planning.search.candidate import Candidate
from opsk.planning.search.relaxations import CODES, Relaxation, fix_axis, format_values, free_axes, list_values
from opsk.planning.search.request import PlanRequest
from opsk.planning.search.search import search_space
from opsk.planning.search.space import build_space, has_plans
from opsk.planning.search.what_if import less_memory

_LARGER, _MAX_LARGER = 1.05, 256
"""Memory grows by a twentieth a step, up to this many steps: 1.05^256 is 265,000 times as much."""
_TRIED = 12
"""Other values of an axis that are tried to each side."""


def can_run(request: PlanRequest) -> bool:
    """Return whether some plan of a request is not expected to run out of memory; the search ends with the first."""
    return has_plans(request) and any(result.best for result in search_space(build_space(request)))


def least_hungry(request: PlanRequest) -> Candidate | None:
    """Return a plan that needs hardly more memory than the leanest, but more than available; ``None`` for none.

    Found with GPUs of more memory, in steps of a twentieth: the plan is one for them, its chance to fit theirs.
    """
    capacity_bytes = float(request.cluster.node.gpu.capacity_bytes)
    low, high = 0, 1
    while (leanest := _find_first_on(request, capacity_bytes * _LARGER**high)) is None:
        low, high = high, 2 * high
        if high > _MAX_LARGER:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        candidate = _find_first_on(request, capacity_bytes * _LARGER**middle)
        low, high, leanest = (low, middle, candidate) if candidate else (middle, high, leanest)
    return leanest


def _find_first_on(request: PlanRequest, capacity_bytes: float) -> Candidate | None:
    """Return the first plan found that runs on GPUs with this much memory."""
    cluster = request.cluster
    more = less_memory(cluster, cluster.node.gpu.capacity_bytes - capacity_bytes)
    roomier = replace(request, cluster=more)
    return next((result.best[0] for result in search_space(build_space(roomier)) if result.best), None)


def fit_relaxations(request: PlanRequest, *, margin_bytes: float = 0.0) -> Iterator[Relaxation]:
    """Yield every single constraint whose relaxation lets some plan run, with the nearest value that does.

    Parameters
    ----------
    margin_bytes
        Memory of each GPU that ``request.cluster`` leaves free [bytes].
    """
    for axis, requested in request.fixed.items():
        free = free_axes(request, axis)
        if can_run(free):
            yield Relaxation(
                constraint=axis, asked=format_values(requested), nearest=_find_nearest(free, axis, requested[0])
            )
    if request.limits.name != ANYTHING.name and can_run(replace(request, limits=ANYTHING, refuses=None)):
        yield Relaxation(constraint="framework", asked=request.limits.name)
    if margin_bytes > 0.0:
        yield from _relax_margin(request, margin_bytes)


def _find_nearest(free: PlanRequest, axis: str, requested: Any) -> tuple[str, ...]:
    """Return the values of an axis with which some plan can run: the nearest below and above a number, else all."""
    values = list_values(build_space(free), axis)
    if axis in CODES:
        known = [CODES[axis][value] for value in values]
        return tuple(
            format_values((value,)) for value in known if value != requested and _can_run_with(free, axis, value)
        )
    if axis == "sequence_parallel":
        return (format_values((not requested,)),)
    below = [value for value in reversed(values) if value < requested]
    above = [value for value in values if value > requested]
    nearest = (_find_first(free, axis, side[:_TRIED]) for side in (below, above))
    return tuple(str(value) for value in nearest if value is not None)


def _find_first(free: PlanRequest, axis: str, values: Sequence[int]) -> int | None:
    """Return the first of some values with which a plan can run."""
    return next((value for value in values if _can_run_with(free, axis, value)), None)


def _can_run_with(free: PlanRequest, axis: str, value: Any) -> bool:
    """Return whether some plan can run with one value of an axis."""
    return can_run(fix_axis(free, axis, value))


def _relax_margin(request: PlanRequest, margin_bytes: float) -> Iterator[Relaxation]:
    """Yield the margin where it is to blame, with the largest whole per cent that is not."""
    whole = less_memory(request.cluster, -margin_bytes)
    capacity_bytes = whole.node.gpu.capacity_bytes
    requested_percent = 100.0 * margin_bytes / capacity_bytes
    low, high = -1, -int(-requested_percent // 1)  # with ``low`` some plan runs, with ``high`` none does
    while high - low > 1:
        middle = (low + high) // 2
        cluster = less_memory(whole, middle / 100.0 * capacity_bytes)
        low, high = (middle, high) if can_run(replace(request, cluster=cluster)) else (low, middle)
    if low >= 0:
        yield Relaxation(constraint="memory_margin", asked=f"{requested_percent:.3g}%", nearest=(f"{low}%",))

"""Computes how the best plan changes if one thing is different, and which single change lets some plan fit.

Each question is a search of its own: with an axis fixed to another value, with more or fewer NICs, with memory left
free, or without the limits of the framework.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from opsk.costmodel.table import RECOMPUTES, SHARDINGS
from opsk.frameworks.limits import ANYTHING
from opsk.hardware.spec import ClusterSpec
from opsk.planning.search.relaxations import CODES, Relaxation, fix_axis, format_values, free_axes, list_values
from opsk.planning.search.request import MAX_GPUS, PlanRequest
from opsk.planning.search.result import Candidate, SearchResult
from opsk.planning.search.search import best_plans, search_space, with_gpus
from opsk.planning.search.space import build_space, has_plans

_MICRO_BATCHES = (1, 2, 4, 8)
_MARGINS = (0.05, 0.10)
_NIC_FACTORS = (0.5, 2.0)
_TENSOR_SIZES = (1, 2, 4, 8)
MAX_GPU_DOUBLINGS = 10
"""A job that does not fit on a thousand times the GPUs fits on none."""
_LARGER, _MAX_LARGER = 1.05, 256
"""Memory grows by a twentieth a step, up to this many steps: 1.05^256 is 265,000 times as much."""
_TRIED = 12
"""Other values of an axis that are tried to each side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One change: ``what`` changes to which ``value``, and the request to search."""

    what: str
    value: str
    request: PlanRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The best plan after a change, ``None`` where none can run, and whether it surely fits."""

    question: Question
    best: Candidate | None
    fits: bool


def list_questions(request: PlanRequest) -> list[Question]:
    """Return the questions about a request; changes to axes that are fixed are left out."""
    single = replace(request, most=1)
    questions_ = [*_ask_about_axes(single), *_ask_about_network(single), *_ask_about_memory(single)]
    if request.limits.name != ANYTHING.name:
        questions_.append(Question(what="framework", value="any", request=replace(single, limits=ANYTHING)))
    return questions_


def answer(question: Question) -> Answer:
    """Search the best plan after a change: the fastest that surely fits, else the fastest that may."""
    if not has_plans(question.request):
        return Answer(question=question, best=None, fits=False)
    return build_answer(question, best_plans(question.request))


def build_answer(question: Question, result: SearchResult) -> Answer:
    """Return the answer to a question from a search result."""
    if result.best_fitting:
        return Answer(question=question, best=result.best_fitting[0], fits=True)
    return Answer(question=question, best=result.best[0] if result.best else None, fits=False)


def gpus_that_fit(request: PlanRequest) -> tuple[int, Candidate] | None:
    """Return the fewest doublings of the GPUs with which some plan surely fits, and that plan; ``None`` if none do."""
    for doublings in range(1, MAX_GPU_DOUBLINGS + 1):
        gpus = request.gpus << doublings
        if gpus > MAX_GPUS:
            return None
        more = replace(with_gpus(request, gpus), most=1)
        if has_plans(more) and (plans := best_plans(more)).best_fitting:
            return gpus, plans.best_fitting[0]
    return None


def _ask_about_axes(request: PlanRequest) -> Iterator[Question]:
    """Yield the questions about axes that are free."""
    values = {
        "micro_batch": _MICRO_BATCHES,
        "tp": _TENSOR_SIZES,
        "recompute": [mode for mode in RECOMPUTES if mode in request.limits.recomputes],
        "sharding": [sharding for sharding in SHARDINGS if sharding in request.limits.shardings],
        "sequence_parallel": (False, True),
    }
    for axis, all_values in values.items():
        if axis in request.fixed:
            continue
        for value in all_values:
            changed = replace(request, fixed={**request.fixed, axis: (value,)})
            yield Question(what=axis, value=format_values((value,)), request=changed)


def _ask_about_network(request: PlanRequest) -> Iterator[Question]:
    """Yield the questions about the NICs of a node."""
    node = request.cluster.node
    for factor in _NIC_FACTORS:
        nics = int(node.nics * factor)
        if nics >= 1 and nics != node.nics:
            cluster = replace(request.cluster, node=replace(node, nics=nics))
            yield Question(what="nics", value=f"{nics} a node", request=replace(request, cluster=cluster))


def _ask_about_memory(request: PlanRequest) -> Iterator[Question]:
    """Yield the questions about memory that is left free."""
    for share in _MARGINS:
        capacity = request.cluster.node.gpu.capacity_bytes
        cluster = less_memory(request.cluster, share * capacity)
        yield Question(what="memory_margin", value=f"{share:.0%}", request=replace(request, cluster=cluster))


def less_memory(cluster: ClusterSpec, margin_bytes: float) -> ClusterSpec:
    """Return the cluster with so much less memory on each GPU."""
    gpu = cluster.node.gpu
    smaller = replace(gpu, usable_bytes=int(gpu.capacity_bytes - margin_bytes))
    return replace(cluster, node=replace(cluster.node, gpu=smaller))


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
        yield Relaxation(constraint="framework", asked=request.limits.name, nearest=(ANYTHING.name,))
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

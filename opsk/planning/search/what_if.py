"""Computes how the best plan changes if one thing is different.

Each question is a search of its own: with an axis fixed to another value, with more or fewer NICs, with memory left
free, or without the limits of the framework.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from opsk.costmodel.table import RECOMPUTES, SHARDINGS
from opsk.frameworks.limits import ANYTHING
from opsk.hardware.spec import ClusterSpec
from opsk.planning.search.candidate import Candidate
from opsk.planning.search.cases import with_gpus
from opsk.planning.search.relaxations import format_values
from opsk.planning.search.request import MAX_GPUS, PlanRequest
from opsk.planning.search.result import SearchResult
from opsk.planning.search.search import best_plans
from opsk.planning.search.space import has_plans

_MICRO_BATCHES = (1, 2, 4, 8)
_MARGINS = (0.05, 0.10)
_NIC_FACTORS = (0.5, 2.0)
_TENSOR_SIZES = (1, 2, 4, 8)
MAX_GPU_DOUBLINGS = 10
"""A job that does not fit on a thousand times the GPUs fits on none."""


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
        if has_plans(more) and (found := best_plans(more)).best_fitting:
            return gpus, found.best_fitting[0]
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

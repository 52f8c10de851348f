"""Lists the legal splits of GPUs into tensor-, pipeline-, context-, data- and expert-parallel groups.

A layout is legal if `opsk.costmodel.rules` has no objection; each rule is checked on the axes that it depends on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache

from opsk.costmodel.rules import Rule, find_violations
from opsk.planning.search.request import PlanRequest

MANY_LAYERS = 8
"""Above so many layers a stage, an odd number of them is also made even, for more chunks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Sizes of the axes, and the layers of the first and last stage where these are set explicitly (else 0)."""

    tp: int
    pp: int
    cp: int
    dp: int
    ep: int
    etp: int
    first_stage_layers: int
    last_stage_layers: int


@lru_cache(maxsize=4096)
def divisors(number: int) -> tuple[int, ...]:
    """Return all divisors of a positive number, ascending."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return (*small, *(number // d for d in reversed(small) if d * d != number))


def list_layouts(request: PlanRequest) -> Iterator[Layout]:
    """Yield every legal layout of the request."""
    expert_sizes = cache(lambda *sizes: tuple(_expert_sizes(request, *sizes)))
    splits_tokens = cache(lambda *sizes: _splits_tokens(request, *sizes))
    splits_layers = cache(lambda pp: stage_splits(request, pp))
    for tp in tensor_sizes(request):
        for pp in _sizes(request, "pp", request.gpus // tp, request.limits.largest_pp):
            for first, last in splits_layers(pp):
                for cp in _sizes(request, "cp", request.gpus // (tp * pp), request.limits.largest_cp):
                    dp = request.gpus // (tp * pp * cp)
                    if not _fits_batch(request, dp) or not splits_tokens(tp, cp):
                        continue
                    for ep, etp in expert_sizes(tp, cp * dp):
                        if request.limits.excludes(tp=tp, pp=pp, cp=cp, ep=ep):
                            continue
                        yield Layout(
                            tp=tp,
                            pp=pp,
                            cp=cp,
                            dp=dp,
                            ep=ep,
                            etp=etp,
                            first_stage_layers=first,
                            last_stage_layers=last,
                        )


def tensor_sizes(request: PlanRequest) -> list[int]:
    """Return the tensor-parallel sizes that split heads and widths."""
    sizes = _sizes(request, "tp", request.gpus, request.limits.largest_tp)
    return [tp for tp in sizes if not find_violations(request.model, request.plan(tp=tp), (Rule.TENSOR,))]


def _sizes(request: PlanRequest, axis: str, gpus: int, largest: int) -> list[int]:
    """Return the sizes of an axis that divide so many GPUs."""
    return [size for size in divisors(gpus) if request.allows(axis, size) and not 0 < largest < size]


def _fits_batch(request: PlanRequest, dp: int) -> bool:
    """Return whether so many replicas can share the batch."""
    return request.allows("dp", dp) and request.global_batch % dp == 0


def _splits_tokens(request: PlanRequest, tp: int, cp: int) -> bool:
    """Return whether the sequence can be split over cp, with or without sequence parallelism."""
    return any(
        not find_violations(request.model, request.plan(tp=tp, cp=cp, sequence_parallel=choice), (Rule.TOKENS,))
        for choice in (False, True)
        if request.allows("sequence_parallel", choice)
    )


def stage_splits(request: PlanRequest, pp: int) -> list[tuple[int, int]]:
    """Return the possible layers of first and last stage; (0, 0) is even.

    Where layers do not divide over the stages: embedding and head counted as layers of the ends (126 layers on 16
    stages are 7, fourteen times 8, and 7), the last stage alone lighter (61 on 16: fifteen times 4, and 1), or both.
    Other splits are there where they are fixed; a stage that is not is even then.
    """
    fixed = {
        (first, last)
        for first in request.fixed.get("first_stage_layers", (0,))
        for last in request.fixed.get("last_stage_layers", (0,))
    }
    return sorted(
        (first, last)
        for first, last in fixed | list_light_ends(request.model.layers + request.model.encoder_layers, pp)
        if request.allows("first_stage_layers", first)
        and request.allows("last_stage_layers", last)
        and (request.limits.uneven_stages or not first | last)
        and _splits_layers(request, pp, first, last)
    )


def list_light_ends(layers: int, pp: int) -> set[tuple[int, int]]:
    """Return the layers of first and last stage where layers do not divide: the last, or both, lighter than others.

    Many layers a stage are also made one more where their number is odd, which has hardly any chunks: 61 layers on 2
    stages are 31 and 30, or 32, of 8 chunks, and 29 (Megatron-Bridge's layout of DeepSeek-V3).
    """
    if layers % pp == 0:
        return set()
    full = -(-layers // pp)
    both = layers - full * (pp - 2)
    ends = {(0, layers - full * (pp - 1)), (both - both // 2, both // 2)}
    if full % 2 and full > MANY_LAYERS:
        ends.add((0, layers - (full + 1) * (pp - 1)))
    return {(first, last) for first, last in ends if first < full and 0 < last < full}


def _splits_layers(request: PlanRequest, pp: int, first: int, last: int) -> bool:
    """Return whether the layers can be split so without interleaving."""
    plan = request.plan(pp=pp, first_stage_layers=first, last_stage_layers=last)
    return not find_violations(request.model, plan, (Rule.LAYERS,))


def _expert_sizes(request: PlanRequest, tp: int, replicas: int) -> Iterator[tuple[int, int]]:
    """Yield expert- and expert-tensor-parallel sizes: the framework's own etp (0), and 1 where that is another."""
    free = (0, 1) if tp > 1 and request.model.experts else (0,)
    for ep in divisors(request.model.experts) if request.model.experts else (1,):
        if tp * replicas % ep or not request.allows("ep", ep) or 0 < request.limits.largest_ep < ep:
            continue
        for etp in request.fixed.get("etp", free):
            if etp == 1 and "etp" not in request.fixed and replicas % ep:
                continue  # already represented by 0
            width = etp or (1 if replicas % ep else tp)
            if request.model.experts and not request.limits.splits_experts(width, tp):
                continue
            if not find_violations(request.model, request.plan(tp=tp, dp=replicas, ep=ep, etp=etp), (Rule.EXPERTS,)):
                yield ep, etp

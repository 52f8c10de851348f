"""All legal plans of a request by nested loops over every value of every axis, with nothing of the search in it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from opsk.costmodel.rules import find_violations
from opsk.frameworks.limits import SequenceParallel
from opsk.planning.search.request import PlanRequest
from opsk.workload.plan import Plan, Recompute, Schedule, Sharding

_VPP_WITHOUT_INTERLEAVING = {Schedule.ZERO_BUBBLE_V: 2}


def legal_plans(request: PlanRequest) -> Iterator[Plan]:
    """Yield every plan that no rule forbids, each once: no two of them are the same training."""
    layers = request.model.layers + request.model.encoder_layers
    for tp, pp, cp, dp in product(*(_sizes(request, axis, request.gpus) for axis in ("tp", "pp", "cp", "dp"))):
        if tp * pp * cp * dp != request.gpus:
            continue
        rest = {
            "ep": _sizes(request, "ep", max(request.model.experts, 1)),
            "etp": request.fixed.get("etp", (0, 1)),
            "micro_batch": _sizes(request, "micro_batch", request.global_batch),
            "sequence_parallel": request.fixed.get("sequence_parallel", (False, True)),
            "first_stage_layers": request.fixed.get("first_stage_layers", range(layers + 1)),
            "last_stage_layers": request.fixed.get("last_stage_layers", range(layers + 1)),
        }
        for values in product(*rest.values()):
            axes = dict(zip(rest, values, strict=True)) | {"tp": tp, "pp": pp, "cp": cp, "dp": dp}
            if request.global_batch % (dp * axes["micro_batch"]) == 0 and _is_layout(request, axes, layers):
                yield from _with_the_rest(request, axes, layers)


def _sizes(request: PlanRequest, axis: str, most: int) -> list[int]:
    return [size for size in range(1, most + 1) if request.allows(axis, size)]


def _is_layout(request: PlanRequest, axes: dict[str, Any], layers: int) -> bool:
    """Return whether a choice is written down in the one way that it is, and expressible."""
    limits, fixed = request.limits, request.fixed
    tp, pp, ep, etp, ranks = axes["tp"], axes["pp"], axes["ep"], axes["etp"], axes["dp"] * axes["cp"]
    if any(0 < most < axes[axis] for axis, most in _largest(request)):
        return False
    if any(axes[one] > 1 and axes[other] > 1 for one, other in limits.apart):
        return False
    if tp == 1 and axes["sequence_parallel"] and request.allows("sequence_parallel", False):
        return False
    if limits.sequence_parallel is SequenceParallel.NEVER and axes["sequence_parallel"]:
        return False
    if limits.sequence_parallel is SequenceParallel.WITH_TP and axes["sequence_parallel"] != (tp > 1):
        return False
    if etp == 1 and "etp" not in fixed and (tp == 1 or not request.model.experts or ranks % ep):
        return False  # etp 0 stands for that
    if request.model.experts and not limits.splits_experts(etp or (1 if ranks % ep else tp), tp):
        return False
    return _is_split(request, pp, axes["first_stage_layers"], axes["last_stage_layers"], layers)


def _largest(request: PlanRequest) -> list[tuple[str, int]]:
    return [(axis, getattr(request.limits, f"largest_{axis}")) for axis in ("tp", "pp", "cp", "ep")]


def _is_split(request: PlanRequest, pp: int, first: int, last: int, layers: int) -> bool:
    """Return whether stages are even, split as fixed, or lighter where layers do not divide, in one of two ways."""
    if first == last == 0:
        return True
    if not request.limits.uneven_stages:
        return False
    asked = {
        (one, other)
        for one in request.fixed.get("first_stage_layers", (0,))
        for other in request.fixed.get("last_stage_layers", (0,))
    }
    if (first, last) in asked:
        return True
    if layers % pp == 0 or last == 0:
        return False
    full = -(-layers // pp)
    stages = [first or full, *[full] * (pp - 2), last]
    is_light = last < full and (first == 0 or (first < full and first - last in (0, 1)))
    is_even = first == 0 and full % 2 == 1 and full > 8 and (full + 1) * (pp - 1) + last == layers
    return is_even or (sum(stages) == layers and is_light)


def _with_the_rest(request: PlanRequest, axes: dict[str, Any], layers: int) -> Iterator[Plan]:
    replicas, pp = axes["dp"] * axes["cp"], axes["pp"]
    first, last = axes["first_stage_layers"], axes["last_stage_layers"]
    is_alone = axes["tp"] * pp * axes["cp"] == 1
    for (sharding, group), (schedule, vpp), (mode, some) in product(
        product(Sharding, request.fixed.get("shard_gpus", range(replicas + 1))),
        product(Schedule, _sizes(request, "vpp", layers)),
        product(Recompute, request.fixed.get("recompute_layers", range(layers + 1))),
    ):
        fullest = max(first, last, -(-layers // pp))
        if (
            not _is_sharding(request, sharding, group, replicas, pp, is_alone=is_alone)
            or not _is_order(request, schedule, vpp, pp)
            or not _is_recompute(request, mode, some, fullest)
        ):
            continue
        plan = _plan(request, axes, sharding, group, schedule, vpp, mode, some)
        if find_violations(request.model, plan) == ():
            yield plan


def _is_sharding(
    request: PlanRequest, sharding: Sharding, group: int, replicas: int, pp: int, *, is_alone: bool
) -> bool:
    limits = request.limits
    if not request.allows("sharding", sharding):
        return False
    if replicas == 1 and "sharding" not in request.fixed and sharding is not Sharding.NONE:
        return False
    if group and "shard_gpus" not in request.fixed and not 1 < group < replicas:
        return False
    if group not in (0, replicas) and not (limits.partial_sharding and sharding in limits.partial_shardings):
        return False
    if sharding is Sharding.NONE:
        if replicas == 1:
            return True
        if limits.replicated_alone and not is_alone:
            return False
    if request.model.experts and sharding not in limits.expert_shardings:
        return False
    return sharding in (limits.pipelined_shardings if pp > 1 else limits.shardings)


def _is_order(request: PlanRequest, schedule: Schedule, vpp: int, pp: int) -> bool:
    if not request.allows("schedule", schedule) or schedule not in request.limits.schedules:
        return False
    if pp == 1 and "schedule" not in request.fixed and schedule is not Schedule.ONE_F_ONE_B:
        return False
    return vpp in (1, _VPP_WITHOUT_INTERLEAVING.get(schedule)) or request.limits.interleaved


def _is_recompute(request: PlanRequest, mode: Recompute, some: int, fullest: int) -> bool:
    if not request.allows("recompute", mode) or mode not in request.limits.recomputes:
        return False
    if some and not request.limits.recompute_layers:
        return False
    return "recompute_layers" in request.fixed or some < fullest


def _plan(
    request: PlanRequest,
    axes: dict[str, Any],
    sharding: Sharding,
    group: int,
    schedule: Schedule,
    vpp: int,
    mode: Recompute,
    some: int,
) -> Plan:
    template = {name: getattr(request.template, name) for name in Plan.__slots__}
    return Plan(
        **{
            **template,
            **axes,
            "global_batch": request.global_batch,
            "sharding": sharding,
            "shard_gpus": group,
            "schedule": schedule,
            "vpp": vpp,
            "recompute": mode,
            "recompute_layers": some,
        }
    )

"""Checks whether a framework can express a plan, and lists what it cannot express."""

from __future__ import annotations

from collections.abc import Iterator

from opsk.costmodel.rules import expert_tensor_size
from opsk.frameworks.limits import Limits, SequenceParallel
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Sharding

_AXES = ("tp", "pp", "cp", "ep")


def expresses(limits: Limits, plan: Plan, model: ModelShape | None = None) -> tuple[str, ...]:
    """Return why the framework cannot run the plan; empty when it can.

    Parameters
    ----------
    model
        The model, for rules on experts; if left out, it is assumed to have experts where the plan splits them.
    """
    has_experts = bool(model.experts) if model else plan.ep > 1 or plan.etp > 1
    reasons = [*_axes(limits, plan), *_stages(limits, plan), *_shardings(limits, plan, has_experts=has_experts)]
    if has_experts:
        reasons += _experts(limits, plan)
    return tuple(f"{limits.name}: {reason}" for reason in (*reasons, *_words(limits, plan)))


def _axes(limits: Limits, plan: Plan) -> Iterator[str]:
    """Yield axes that are too large, or that exclude each other."""
    for axis in _AXES:
        size, largest = getattr(plan, axis), getattr(limits, f"largest_{axis}")
        if largest and size > largest:
            yield f"{axis} {size} is more than {largest}" if largest > 1 else f"has no {axis} (the plan's is {size})"
    for axis_, other_axis in sorted(limits.apart):
        if getattr(plan, axis_) > 1 and getattr(plan, other_axis) > 1:
            yield f"{axis_} {getattr(plan, axis_)} cannot be combined with {other_axis} {getattr(plan, other_axis)}"
    if plan.sequence_parallel and plan.tp > 1 and limits.sequence_parallel is SequenceParallel.NEVER:
        yield "has no sequence parallelism"
    if not plan.sequence_parallel and plan.tp > 1 and limits.sequence_parallel is SequenceParallel.WITH_TP:
        yield f"tp {plan.tp} always comes with sequence parallelism"


def _stages(limits: Limits, plan: Plan) -> Iterator[str]:
    """Yield the pipeline features that it does not support."""
    if plan.pp == 1:
        return
    if plan.schedule not in limits.schedules:
        yield f"has no schedule {plan.schedule}"
    if plan.vpp > 1 and not limits.interleaved:
        yield f"a stage has one chunk (vpp is {plan.vpp})"
    if (plan.first_stage_layers or plan.last_stage_layers) and not limits.uneven_stages:
        yield "all stages have as many layers"


def _shardings(limits: Limits, plan: Plan, *, has_experts: bool) -> Iterator[str]:
    """Yield the sharding features that it does not support; none with a single replica."""
    if plan.dp * plan.cp == 1:
        return
    allowed = limits.pipelined_shardings if plan.pp > 1 else limits.shardings
    if plan.sharding not in allowed:
        yield f"has no sharding {plan.sharding}" + (f" with pp {plan.pp}" if plan.sharding in limits.shardings else "")
    elif has_experts and plan.sharding not in limits.expert_shardings:
        yield f"has no sharding {plan.sharding} for a model with experts"
    if limits.replicated_alone and plan.sharding is Sharding.NONE and plan.tp * plan.pp * plan.cp > 1:
        yield f"replicas cannot share nothing beside tp {plan.tp}, pp {plan.pp} or cp {plan.cp}"
    if is_partly_sharded(plan) and not (limits.partial_sharding and plan.sharding in limits.partial_shardings):
        yield f"cannot shard {plan.sharding} over {plan.shard_gpus} of {plan.dp * plan.cp} replicas"


def is_partly_sharded(plan: Plan) -> bool:
    """Return whether states are sharded over fewer GPUs than there are replicas."""
    return plan.sharding is not Sharding.NONE and 0 < plan.shard_gpus < plan.dp * plan.cp


def _experts(limits: Limits, plan: Plan) -> Iterator[str]:
    """Yield the splits of experts that it does not support."""
    etp = expert_tensor_size(plan)
    if not limits.splits_experts(etp, plan.tp):
        yield f"cannot split experts over etp {etp} with tp {plan.tp}"


def _words(limits: Limits, plan: Plan) -> Iterator[str]:
    """Yield the values of single settings that it does not support."""
    if plan.recompute not in limits.recomputes:
        yield f"has no recomputation {plan.recompute}"
    elif plan.recompute_layers and not limits.recompute_layers:
        yield f"recomputes all layers or none (the plan: {plan.recompute_layers} of a stage)"
    if plan.precision not in limits.precisions:
        yield f"has no precision {plan.precision}"
    if plan.optimizer not in limits.optimizers:
        yield f"has no optimizer {plan.optimizer}"
    if plan.offload not in limits.offloads:
        yield f"cannot keep {plan.offload} in host memory"
    if plan.states not in limits.states:
        yield f"has no states {plan.states}"
    if plan.loss not in limits.losses:
        yield f"has no loss {plan.loss}"

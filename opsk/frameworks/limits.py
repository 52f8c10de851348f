"""Defines the part of the space of plans that a training framework can express, and checks plans against it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from opsk.costmodel.rules import expert_tensor_size
from opsk.workload.model import ModelShape
from opsk.workload.plan import (
    Loss,
    Offload,
    Optimizer,
    Plan,
    Precision,
    Recompute,
    Schedule,
    Sharding,
    Software,
    States,
)

_AXES = ("tp", "pp", "cp", "ep")


class SequenceParallel(StrEnum):
    """Whether norms and dropout are split over tp: optionally, always with tp, or never."""

    EITHER = "either"
    WITH_TP = "with-tp"
    NEVER = "never"


class ExpertTensor(StrEnum):
    """Over how many ranks each routed expert is split."""

    ONE = "one"
    AS_TP = "as-tp"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The part of the space of plans that a framework supports; the default is all of it.

    Parameters
    ----------
    name
        Its common name: ``megatron``.
    software
        The family whose efficiencies and buffers apply; ``None`` leaves the plan's own.
    shardings, pipelined_shardings
        Shardings without, and with, a pipeline.
    partial_sharding, partial_shardings
        Whether states can be sharded over part of the replicas (HSDP, MiCS), and with which shardings.
    replicated_alone
        Whether unsharded replicas exclude all other axes: no tp, pp or cp with sharding none.
    recomputes, recompute_layers
        Modes of recomputation, and whether it can be limited to some layers.
    schedules, interleaved
        Orders of a pipeline, and whether a stage can hold several chunks.
    uneven_stages
        Whether first and last stage can have fewer layers than the others.
    largest_tp, largest_pp, largest_cp, largest_ep
        The largest size of an axis; 1 is "not supported", 0 no limit.
    apart
        Pairs of axes (``cp``, ``tp``) that cannot both be larger than 1.
    expert_tensors, expert_shardings
        Sizes of etp, and shardings, of a model with experts.
    precisions, states, optimizers, offloads, losses
        Number formats of products and of states, optimizers, offloads to host memory, and forms of the loss.
    sources
        Where the framework's code or documentation has a rule, by the name of its field above.
    """

    name: str = "any"
    software: Software | None = None
    shardings: frozenset[Sharding] = frozenset(Sharding)
    pipelined_shardings: frozenset[Sharding] = frozenset(Sharding)
    partial_sharding: bool = True
    partial_shardings: frozenset[Sharding] = frozenset(Sharding) - {Sharding.NONE}
    replicated_alone: bool = False
    sequence_parallel: SequenceParallel = SequenceParallel.EITHER
    recomputes: frozenset[Recompute] = frozenset(Recompute)
    recompute_layers: bool = True
    schedules: frozenset[Schedule] = frozenset(Schedule)
    interleaved: bool = True
    uneven_stages: bool = True
    largest_tp: int = 0
    largest_pp: int = 0
    largest_cp: int = 0
    largest_ep: int = 0
    apart: frozenset[tuple[str, str]] = frozenset()
    expert_tensors: frozenset[ExpertTensor] = frozenset(ExpertTensor)
    expert_shardings: frozenset[Sharding] = frozenset(Sharding)
    precisions: frozenset[Precision] = frozenset(Precision)
    states: frozenset[States] = frozenset(States)
    optimizers: frozenset[Optimizer] = frozenset(Optimizer)
    offloads: frozenset[Offload] = frozenset(Offload)
    losses: frozenset[Loss] = frozenset(Loss)
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def excludes(self, **sizes: int) -> bool:
        """Return whether two axes that cannot be combined are both larger than 1."""
        return any(sizes[axis] > 1 and sizes[other_axis] > 1 for axis, other_axis in self.apart)

    def splits_experts(self, etp: int, tp: int) -> bool:
        """Return whether experts can be split over ``etp`` ranks with ``tp``."""
        kinds = {kind for kind, size in ((ExpertTensor.ONE, 1), (ExpertTensor.AS_TP, tp)) if etp == size}
        return bool((kinds or {ExpertTensor.OTHER}) & self.expert_tensors)


ANYTHING = Limits()
"""All plans that `opsk.costmodel` can predict and no rule forbids, whether or not one framework supports them."""


def expresses(limits: Limits, plan: Plan, model: ModelShape | None = None) -> tuple[str, ...]:
    """Return why the framework cannot run the plan; empty when it can.

    Parameters
    ----------
    model
        The model, for rules on experts; if left out, it is assumed to have experts where the plan splits them.
    """
    has_experts = bool(model.experts) if model else plan.ep > 1 or plan.etp > 1
    broken = [*_axes(limits, plan), *_stages(limits, plan), *_shardings(limits, plan, has_experts=has_experts)]
    if has_experts:
        broken += _experts(limits, plan)
    if model is not None and model.measured is not None and limits is not ANYTHING:
        broken.append(("software", f"trains transformers, which {model.name} is not"))
    broken += _words(limits, plan)
    return tuple(f"{limits.name}: {cite(reason, limits.sources.get(rule, ''))}" for rule, reason in broken)


def cite(reason: str, source: str) -> str:
    """Return a reason with its source, where there is one."""
    return f"{reason} ({source})" if source else reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A check of a framework's own that `Limits` cannot express.

    Parameters
    ----------
    source
        Where its code or documentation has it.
    find
        Yields why it refuses a plan of a model.
    """

    source: str
    find: Callable[[ModelShape, Plan], Iterator[str]]


def apply_checks(checks: Iterable[Check], model: ModelShape, plan: Plan) -> tuple[str, ...]:
    """Return why the checks refuse a plan, each reason with its source."""
    return tuple(cite(reason, check.source) for check in checks for reason in check.find(model, plan))


def _axes(limits: Limits, plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield axes that are too large, or that exclude each other."""
    for axis in _AXES:
        size, largest = getattr(plan, axis), getattr(limits, f"largest_{axis}")
        if largest and size > largest:
            text = f"{axis} {size} is more than {largest}" if largest > 1 else f"has no {axis} (the plan's is {size})"
            yield f"largest_{axis}", text
    for axis_, other_axis in sorted(limits.apart):
        if getattr(plan, axis_) > 1 and getattr(plan, other_axis) > 1:
            yield (
                "apart",
                f"{axis_} {getattr(plan, axis_)} cannot be combined with {other_axis} {getattr(plan, other_axis)}",
            )
    if plan.sequence_parallel and plan.tp > 1 and limits.sequence_parallel is SequenceParallel.NEVER:
        yield "sequence_parallel", "has no sequence parallelism"
    if not plan.sequence_parallel and plan.tp > 1 and limits.sequence_parallel is SequenceParallel.WITH_TP:
        yield "sequence_parallel", f"tp {plan.tp} always comes with sequence parallelism"


def _stages(limits: Limits, plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield the pipeline features that it does not support."""
    if plan.pp == 1:
        return
    if plan.schedule not in limits.schedules:
        yield "schedules", f"has no schedule {plan.schedule}"
    if plan.vpp > 1 and not limits.interleaved:
        yield "interleaved", f"a stage has one chunk (vpp is {plan.vpp})"
    if (plan.first_stage_layers or plan.last_stage_layers) and not limits.uneven_stages:
        yield "uneven_stages", "all stages have as many layers"


def _shardings(limits: Limits, plan: Plan, *, has_experts: bool) -> Iterator[tuple[str, str]]:
    """Yield the sharding features that it does not support; none with a single replica."""
    if plan.dp * plan.cp == 1:
        return
    allowed = limits.pipelined_shardings if plan.pp > 1 else limits.shardings
    if plan.sharding not in allowed:
        pipelined = plan.sharding in limits.shardings
        yield (
            "pipelined_shardings" if pipelined else "shardings",
            f"has no sharding {plan.sharding}" + (f" with pp {plan.pp}" if pipelined else ""),
        )
    elif has_experts and plan.sharding not in limits.expert_shardings:
        yield "expert_shardings", f"has no sharding {plan.sharding} for a model with experts"
    if limits.replicated_alone and plan.sharding is Sharding.NONE and plan.tp * plan.pp * plan.cp > 1:
        yield "replicated_alone", f"replicas cannot share nothing beside tp {plan.tp}, pp {plan.pp} or cp {plan.cp}"
    if is_partly_sharded(plan) and not (limits.partial_sharding and plan.sharding in limits.partial_shardings):
        yield (
            "partial_shardings",
            f"cannot shard {plan.sharding} over {plan.shard_gpus} of {plan.dp * plan.cp} replicas",
        )


def is_partly_sharded(plan: Plan) -> bool:
    """Return whether states are sharded over fewer GPUs than there are replicas."""
    return plan.sharding is not Sharding.NONE and 0 < plan.shard_gpus < plan.dp * plan.cp


def _experts(limits: Limits, plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield the splits of experts that it does not support."""
    etp = expert_tensor_size(plan)
    if not limits.splits_experts(etp, plan.tp):
        yield "expert_tensors", f"cannot split experts over etp {etp} with tp {plan.tp}"


def _words(limits: Limits, plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield the values of single settings that it does not support."""
    if plan.recompute not in limits.recomputes:
        yield "recomputes", f"has no recomputation {plan.recompute}"
    elif plan.recompute_layers and not limits.recompute_layers:
        yield "recompute_layers", f"recomputes all layers or none (the plan: {plan.recompute_layers} of a stage)"
    if plan.precision not in limits.precisions:
        yield "precisions", f"has no precision {plan.precision}"
    if plan.optimizer not in limits.optimizers:
        yield "optimizers", f"has no optimizer {plan.optimizer}"
    if plan.offload not in limits.offloads:
        yield "offloads", f"cannot keep {plan.offload} in host memory"
    if plan.states not in limits.states:
        yield "states", f"has no states {plan.states}"
    if plan.loss not in limits.losses:
        yield "losses", f"has no loss {plan.loss}"

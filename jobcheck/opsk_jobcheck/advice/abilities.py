"""Finds the plans that a job's framework can run, so that every suggestion can be expressed in its options."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from opsk.costmodel.sizes.parameters import total_parameters
from opsk.frameworks import torchtitan
from opsk.frameworks.families import FAMILIES, OTHER
from opsk.frameworks.limits import ANYTHING, Limits, SequenceParallel
from opsk.planning.alternatives import find_new_refusals
from opsk.workload.defaults import ON_DEEPSPEED
from opsk.workload.model import ModelShape
from opsk.workload.plan import Loss, Offload, Optimizer, Plan, Precision, Recompute, Schedule, Sharding, States
from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.frameworks.own_program.plan import SPLITS_NOTHING

_LAYS_OUT = ("megatron-lm", "megatron-bridge")
"""Frameworks whose flags for uneven stages are written."""
MIN_SPLIT_PARAMETERS = 1e9
"""Smaller models are not split over GPUs: 16 bytes a parameter of weights, gradients and states fit on each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """The plans that a framework can run near the requested plan.

    Parameters
    ----------
    limits
        The supported part of the plan space; formats, optimizer and software stay those of the requested plan.
    refuses
        Reasons to refuse a plan beyond the limits that do not also apply to the requested plan.
    """

    limits: Limits
    refuses: Callable[[ModelShape, Plan], tuple[str, ...]] | None = None


def find_abilities(workload: Workload, model: ModelShape, requested: Plan) -> Abilities:
    """Return the plans that the framework of a workload can run."""
    framework = get_family(workload)
    limits = replace(
        _limit_splits(_limits(workload, model, requested), model, requested),
        software=None,
        schedules=frozenset(Schedule),
        precisions=frozenset(Precision),
        states=frozenset(States),
        optimizers=frozenset(Optimizer),
        offloads=frozenset(Offload),
        losses=frozenset(Loss),
        uneven_stages=framework in _LAYS_OUT and requested.first_stage_layers + requested.last_stage_layers > 0,
    )
    refuses = FAMILIES.get(framework, OTHER).refusals
    if framework == "torchtitan" and not _can_accumulate(workload):
        refuses = _refuse_old_torchtitan
    if refuses is None:
        return Abilities(limits=limits)
    return Abilities(
        limits=limits,
        refuses=lambda shape, plan: find_new_refusals(shape, requested, plan, limits=ANYTHING, refuses=refuses),
    )


def _limit_splits(limits: Limits, model: ModelShape, requested: Plan) -> Limits:
    """Return limits without more tensor and pipeline parallelism, for a small model or a job on one GPU.

    Its memory is activations: a smaller micro-batch and recomputation help, and cost less than splitting each layer.
    """
    if requested.gpus > 1 and total_parameters(model) >= MIN_SPLIT_PARAMETERS:
        return limits
    return replace(
        limits,
        largest_tp=min(limits.largest_tp or requested.tp, requested.tp),
        largest_pp=min(limits.largest_pp or requested.pp, requested.pp),
    )


def _can_accumulate(workload: Workload) -> bool:
    """Return whether a job's torchtitan can accumulate: pull request 1238 of June 2025 renamed ``batch_size`` too."""
    stated = [entry.text for entry in workload.evidence if entry.field == "plan.micro_batch"]
    return not any(re.search(r"(?<!local_)\bbatch_size", text) for text in stated)


def _refuse_old_torchtitan(model: ModelShape, plan: Plan) -> tuple[str, ...]:
    """Return why releases of torchtitan before accumulation refuse a plan, or set it by names unknown to opsk."""
    refused = list(torchtitan.refusals(model, plan))
    if plan.pp > 1:
        refused.append("its release sets pipelines by other names")
    elif plan.micro_batches > 1:
        refused.append("its release has no accumulation of gradients")
    return tuple(refused)


def get_family(workload: Workload) -> str:
    """Return the framework whose settings a workload uses: ``trl`` of ``trl + accelerate``."""
    return (workload.framework or "").partition(" + ")[0]


def _limits(workload: Workload, model: ModelShape, requested: Plan) -> Limits:
    """Return the limits of the framework itself, with the shardings that this job can change to easily."""
    family = FAMILIES.get(get_family(workload), OTHER)
    limits = family.limits_for(model)
    if model.measured is not None:
        limits = _without_splits(limits, has_checkpoints=model.measured.checkpointed_bytes > 0)
    elif any(entry.field == "plan.tp" and entry.text == SPLITS_NOTHING for entry in workload.evidence):
        limits = replace(limits, largest_tp=1, largest_pp=1, largest_cp=1, largest_ep=1, interleaved=False)
    if family.shardings is None:
        return limits
    if family.names_on_deepspeed and is_deepspeed(workload):
        return _with_shardings(limits, frozenset(Sharding))
    return _with_shardings(limits, family.shardings | {requested.sharding})


def _without_splits(limits: Limits, *, has_checkpoints: bool) -> Limits:
    """Return the limits of a model that no tensor or pipeline parallelism splits."""
    modes = limits.recomputes & {Recompute.NONE, *((Recompute.FULL,) if has_checkpoints else ())}
    return replace(
        limits,
        sequence_parallel=SequenceParallel.NEVER,
        recomputes=modes,
        interleaved=False,
        largest_tp=1,
        largest_pp=1,
        largest_cp=1,
        largest_ep=1,
    )


def is_deepspeed(workload: Workload) -> bool:
    """Return whether DeepSpeed's engine runs a job of HuggingFace's Trainer."""
    stated = " ".join(entry.text.lower() for entry in workload.evidence if entry.field == "plan.sharding")
    if dict(workload.options).get("deepspeed") == "true" or workload.framework in ON_DEEPSPEED:
        return True
    return "deepspeed" in f"{workload.launcher}" or any(word in stated for word in ("zero", "stage", "deepspeed"))


def _with_shardings(limits: Limits, kinds: frozenset[Sharding]) -> Limits:
    """Return limits with these shardings, with and without a pipeline."""
    return replace(
        limits,
        shardings=kinds,
        pipelined_shardings=kinds,
        partial_shardings=kinds - {Sharding.NONE},
        expert_shardings=kinds,
    )

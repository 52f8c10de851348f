"""Finds the plans that a job's framework can run, so that every suggestion can be expressed in its options."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from opsk.frameworks import deepspeed, fsdp, megatron, torchtitan
from opsk.frameworks.limits import ANYTHING, Limits, SequenceParallel
from opsk.planning.alternatives import RefusalCheck, find_new_refusals
from opsk.workload.defaults import ON_DEEPSPEED
from opsk.workload.model import ModelShape
from opsk.workload.plan import Loss, Offload, Optimizer, Plan, Precision, Recompute, Schedule, Sharding, States
from opsk.workload.workload import Workload

_WHOLE_LAYERS = frozenset({Recompute.NONE, Recompute.FULL})
_DATA_PARALLEL = replace(
    fsdp.LIMITS, name="data parallelism alone", replicated_alone=False, shardings=frozenset({Sharding.ZERO3})
)
"""HuggingFace's Trainer and frameworks based on it: no tp, no pp, layers recomputed as a whole."""
_ONE_CHUNK = replace(
    megatron.LIMITS, name="tp and pp with one chunk a stage", interleaved=False, recomputes=_WHOLE_LAYERS
)
_AXES_ALONE = replace(_ONE_CHUNK, recomputes=frozenset({Recompute.NONE}), sequence_parallel=SequenceParallel.NEVER)
_DEEPSPEED_STAGES = frozenset(Sharding)
_HF = ON_DEEPSPEED | {"hf-trainer", "trl", "axolotl", "llama-factory", "accelerate", "lightning"}
_FSDP = frozenset({"pytorch-fsdp", "fms-fsdp", "llama-cookbook", "composer", "torchtune", "litgpt", "olmo", "open_lm"})
_REPLICAS = frozenset({"pytorch-ddp", "open-clip"})
"""Frameworks that hold a whole replica on every rank: sharding would take another program."""
_BY_FRAMEWORK: Mapping[str, Limits] = {
    "megatron-lm": megatron.LIMITS,
    "megatron-bridge": megatron.LIMITS,
    "nemo": megatron.LIMITS,
    "megatron-deepspeed": replace(deepspeed.LIMITS, recomputes=frozenset(Recompute)),
    "gpt-neox": replace(_ONE_CHUNK, name="gpt-neox"),
    "nanotron": replace(_ONE_CHUNK, name="nanotron"),
    "picotron": replace(_AXES_ALONE, name="picotron"),
    "bionemo": replace(_AXES_ALONE, name="bionemo"),
    # plans are in the user's Python code, on the engine that it selects
    "olmo-core": ANYTHING,
    "verl": ANYTHING,
}
_REFUSALS: Mapping[str, RefusalCheck] = {
    "megatron-lm": megatron.refusals,
    "megatron-bridge": megatron.refusals,
    "nemo": megatron.refusals,
    "bionemo": megatron.refusals,
    "megatron-deepspeed": deepspeed.refusals,
    "pytorch-fsdp": fsdp.refusals,
    "torchtitan": torchtitan.refusals,
}


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
    framework = family_of(workload)
    limits = replace(
        _limits(workload, model, requested),
        software=None,
        schedules=frozenset(Schedule),
        precisions=frozenset(Precision),
        states=frozenset(States),
        optimizers=frozenset(Optimizer),
        offloads=frozenset(Offload),
        losses=frozenset(Loss),
        uneven_stages=False,
    )
    refuses = _REFUSALS.get(framework)
    if framework == "torchtitan" and not _can_accumulate(workload):
        refuses = _refuse_old_torchtitan
    if refuses is None:
        return Abilities(limits=limits)
    return Abilities(
        limits=limits,
        refuses=lambda shape, plan: tuple(find_new_refusals(shape, requested, plan, limits=ANYTHING, refuses=refuses)),
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


def family_of(workload: Workload) -> str:
    """Return the framework whose settings a workload uses: ``trl`` of ``trl + accelerate``."""
    return (workload.framework or "").partition(" + ")[0]


def _limits(workload: Workload, model: ModelShape, requested: Plan) -> Limits:
    """Return the limits of the framework itself, with the shardings that this job can change to easily."""
    framework = family_of(workload)
    if framework == "torchtitan":
        return torchtitan.limits_for(model)
    if framework in _HF:
        return _with_shardings(replace(_DATA_PARALLEL, name=framework), _find_hf_shardings(workload, requested))
    if framework in _FSDP:
        return fsdp.LIMITS
    if framework in _REPLICAS:
        return _with_shardings(replace(_DATA_PARALLEL, name=framework), frozenset({requested.sharding}))
    limits = _BY_FRAMEWORK.get(framework, ANYTHING)
    if framework in ("picotron", "bionemo"):
        return _with_shardings(limits, frozenset({requested.sharding}))
    # Megatron FSDP and ZeRO-2 and -3 of Megatron-DeepSpeed are more than a flag: other checkpoints, no pipeline
    near = frozenset({requested.sharding, Sharding.ZERO1})
    return _with_shardings(limits, near)


def _find_hf_shardings(workload: Workload, requested: Plan) -> frozenset[Sharding]:
    """Return the shardings of HuggingFace's Trainer: the stages of DeepSpeed where it runs, else FSDP's two."""
    if is_deepspeed(workload):
        return _DEEPSPEED_STAGES
    return frozenset({requested.sharding, Sharding.ZERO2, Sharding.ZERO3})


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

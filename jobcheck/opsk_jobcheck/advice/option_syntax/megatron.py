"""Formats plan changes as options of Megatron-LM, Megatron-DeepSpeed and Megatron-Bridge.

An option that must be removed is named in brackets: ``(without --recompute-activations)``. Options that follow from a
change are included: the global batch where the script leaves it to the framework, which would choose another one for
the new plan.

Source: Megatron-LM ``megatron/training/arguments.py``; Megatron-DeepSpeed for ``--checkpoint-activations`` and
``--zero-stage``.
"""

from __future__ import annotations

from collections.abc import Mapping

from opsk.workload.plan import Plan, Recompute, Sharding
from opsk.workload.workload import Workload

MEGATRON_NAMES: Mapping[str, str] = {
    "tp": "--tensor-model-parallel-size",
    "pp": "--pipeline-model-parallel-size",
    "micro_batch": "--micro-batch-size",
}
BRIDGE_NAMES: Mapping[str, str] = {
    "tp": "model.tensor_model_parallel_size",
    "pp": "model.pipeline_model_parallel_size",
    "micro_batch": "train.micro_batch_size",
}
_PER_CHUNK = "--num-layers-per-virtual-pipeline-stage"


def build_megatron_flags(workload: Workload, requested: Plan, target: Plan, *, deepspeed: bool) -> tuple[str, ...]:
    """Return the difference as Megatron-LM flags."""
    flags = [
        f"{flag} {getattr(target, field)}" for field, flag in MEGATRON_NAMES.items() if differ(requested, target, field)
    ]
    flags += _build_chunk_flags(workload, requested, target)
    if is_batch_left_open(workload, requested, target):
        flags.append(f"--global-batch-size {target.global_batch}")
    if target.sequence_parallel and not requested.sequence_parallel:
        flags.append("--sequence-parallel")
    if requested.sharding != target.sharding and target.sharding is Sharding.ZERO1:
        flags.append("--zero-stage 1" if deepspeed else "--use-distributed-optimizer")
    if requested.recompute != target.recompute:
        flags += _build_recompute_flags(workload, target.recompute, deepspeed=deepspeed)
    return tuple(flags)


def _build_chunk_flags(workload: Workload, requested: Plan, target: Plan) -> list[str]:
    """Return the flag for the number of model chunks per stage, in the unit that the script uses."""
    per_chunk = dict(workload.options).get("pipeline.layers_per_chunk")
    layers = workload.model.layers
    if per_chunk is None or not layers:
        if requested.vpp == target.vpp:
            return []
        name = "--num-virtual-stages-per-pipeline-rank"
        return [f"{name} {target.vpp}" if target.vpp > 1 else f"(without {name})"]
    target_chunk = str(layers // (target.pp * target.vpp))
    if target.vpp == 1:
        return [f"(without {_PER_CHUNK})"] if requested.vpp > 1 else []
    return [f"{_PER_CHUNK} {target_chunk}"] if target_chunk != per_chunk else []


def _build_recompute_flags(workload: Workload, mode: Recompute, *, deepspeed: bool) -> list[str]:
    """Return the flags of a recompute mode, and the removal of flags that contradict it."""
    stated = next((entry.text for entry in workload.evidence if entry.field == "plan.recompute"), "")
    short = stated.split(" ")[0]
    is_simple = short in ("--recompute-activations", "--checkpoint-activations")
    options = dict(workload.options)
    if mode is Recompute.NONE:
        return [f"(without {short or 'recompute flags'})"]
    flags = [f"(without {short})"] if is_simple else []
    if mode is Recompute.FULL:
        full = "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
        return [*flags, "--checkpoint-activations" if deepspeed else full]
    if "recompute.method" in options:
        flags.append("(without --recompute-method)")
    return [*flags, "--recompute-activations" if deepspeed else "--recompute-granularity selective"]


def build_bridge_overrides(workload: Workload, requested: Plan, target: Plan) -> tuple[str, ...]:
    """Return the difference as Megatron-Bridge overrides."""
    overrides = [
        f"{name}={getattr(target, field)}" for field, name in BRIDGE_NAMES.items() if differ(requested, target, field)
    ]
    if requested.vpp != target.vpp:
        value = target.vpp if target.vpp > 1 else "null"
        overrides.append(f"model.virtual_pipeline_model_parallel_size={value}")
    if is_batch_left_open(workload, requested, target):
        overrides.append(f"train.global_batch_size={target.global_batch}")
    if target.sequence_parallel and not requested.sequence_parallel:
        overrides.append("model.sequence_parallel=true")
    if requested.sharding != target.sharding and target.sharding is Sharding.ZERO1:
        overrides.append("ddp.use_distributed_optimizer=true")
    if requested.recompute != target.recompute:
        mode = "null" if target.recompute is Recompute.NONE else target.recompute.value
        overrides.append(f"model.recompute_granularity={mode}")
        if target.recompute is Recompute.FULL:
            overrides += ["model.recompute_method=uniform", "model.recompute_num_layers=1"]
    return tuple(overrides)


def differ(requested: Plan, target: Plan, field: str) -> bool:
    """Return whether two plans differ in a field."""
    return bool(getattr(requested, field) != getattr(target, field))


def is_batch_left_open(workload: Workload, requested: Plan, target: Plan) -> bool:
    """Return whether the framework would compute another global batch for the new plan than for the requested one."""
    stated = next((entry.text for entry in workload.evidence if entry.field == "plan.global_batch"), "")
    is_computed = workload.plan.global_batch is None or " × dp " in stated
    return is_computed and (differ(requested, target, "dp") or differ(requested, target, "micro_batch"))

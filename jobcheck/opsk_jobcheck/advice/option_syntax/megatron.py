"""How do Megatron-LM, Megatron-DeepSpeed and Megatron-Bridge spell a change of plan?

What must go is named in brackets: ``(without --recompute-activations)``. Flags that follow from a change are among
them: the global batch where the script leaves it to the framework, which would take another one for the new plan.

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


def megatron_flags(workload: Workload, asked: Plan, wanted: Plan, *, deepspeed: bool) -> tuple[str, ...]:
    """Spell the difference in Megatron-LM's flags."""
    flags = [
        f"{flag} {getattr(wanted, field)}" for field, flag in MEGATRON_NAMES.items() if differ(asked, wanted, field)
    ]
    flags += _chunks(workload, asked, wanted)
    if is_batch_left_open(workload, asked, wanted):
        flags.append(f"--global-batch-size {wanted.global_batch}")
    if wanted.sequence_parallel and not asked.sequence_parallel:
        flags.append("--sequence-parallel")
    if asked.sharding != wanted.sharding and wanted.sharding is Sharding.ZERO1:
        flags.append("--zero-stage 1" if deepspeed else "--use-distributed-optimizer")
    if asked.recompute != wanted.recompute:
        flags += _recompute(workload, wanted.recompute, deepspeed=deepspeed)
    return tuple(flags)


def _chunks(workload: Workload, asked: Plan, wanted: Plan) -> list[str]:
    """Spell the number of model chunks a stage, in the unit that the script uses."""
    per_chunk = dict(workload.options).get("pipeline.layers_per_chunk")
    layers = workload.model.layers
    if per_chunk is None or not layers:
        if asked.vpp == wanted.vpp:
            return []
        name = "--num-virtual-stages-per-pipeline-rank"
        return [f"{name} {wanted.vpp}" if wanted.vpp > 1 else f"(without {name})"]
    wanted_chunk = str(layers // (wanted.pp * wanted.vpp))
    if wanted.vpp == 1:
        return [f"(without {_PER_CHUNK})"] if asked.vpp > 1 else []
    return [f"{_PER_CHUNK} {wanted_chunk}"] if wanted_chunk != per_chunk else []


def _recompute(workload: Workload, mode: Recompute, *, deepspeed: bool) -> list[str]:
    """Spell a recompute mode, and what contradicts it in the script."""
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


def bridge_overrides(workload: Workload, asked: Plan, wanted: Plan) -> tuple[str, ...]:
    """Spell the difference as Megatron-Bridge overrides."""
    overrides = [
        f"{name}={getattr(wanted, field)}" for field, name in BRIDGE_NAMES.items() if differ(asked, wanted, field)
    ]
    if asked.vpp != wanted.vpp:
        value = wanted.vpp if wanted.vpp > 1 else "null"
        overrides.append(f"model.virtual_pipeline_model_parallel_size={value}")
    if is_batch_left_open(workload, asked, wanted):
        overrides.append(f"train.global_batch_size={wanted.global_batch}")
    if wanted.sequence_parallel and not asked.sequence_parallel:
        overrides.append("model.sequence_parallel=true")
    if asked.sharding != wanted.sharding and wanted.sharding is Sharding.ZERO1:
        overrides.append("ddp.use_distributed_optimizer=true")
    if asked.recompute != wanted.recompute:
        mode = "null" if wanted.recompute is Recompute.NONE else wanted.recompute.value
        overrides.append(f"model.recompute_granularity={mode}")
        if wanted.recompute is Recompute.FULL:
            overrides += ["model.recompute_method=uniform", "model.recompute_num_layers=1"]
    return tuple(overrides)


def differ(asked: Plan, wanted: Plan, field: str) -> bool:
    """Tell whether two plans differ in a field."""
    return bool(getattr(asked, field) != getattr(wanted, field))


def is_batch_left_open(workload: Workload, asked: Plan, wanted: Plan) -> bool:
    """Tell whether the framework would compute another global batch for the new plan than for the asked one."""
    stated = next((entry.text for entry in workload.evidence if entry.field == "plan.global_batch"), "")
    is_computed = workload.plan.global_batch is None or " × dp " in stated
    return is_computed and (differ(asked, wanted, "dp") or differ(asked, wanted, "micro_batch"))

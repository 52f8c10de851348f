"""Which words go into the launch script to change one plan into another?"""

from __future__ import annotations

from opsk.workload.plan import Plan, Recompute, Sharding

MEGATRON_FAMILY = ("megatron-lm", "megatron-deepspeed")


def flags_for(framework: str | None, asked: Plan, wanted: Plan) -> tuple[str, ...]:
    """Return the flags to set, in the framework's own spelling; empty when opsk does not know the framework's words.

    Source: Megatron-LM ``megatron/training/arguments.py``; Megatron-DeepSpeed for ``--checkpoint-activations`` and
    ``--zero-stage``.
    """
    if framework == "megatron-bridge":
        return _bridge(asked, wanted)
    if framework in MEGATRON_FAMILY:
        return _megatron(asked, wanted, deepspeed=framework == "megatron-deepspeed")
    return ()


def _megatron(asked: Plan, wanted: Plan, *, deepspeed: bool) -> tuple[str, ...]:
    """Spell the difference in Megatron-LM's flags."""
    numbers = {
        "tp": "--tensor-model-parallel-size",
        "pp": "--pipeline-model-parallel-size",
        "micro_batch": "--micro-batch-size",
    }
    flags = [
        f"{flag} {getattr(wanted, field)}"
        for field, flag in numbers.items()
        if getattr(asked, field) != getattr(wanted, field)
    ]
    if asked.vpp != wanted.vpp:
        flags.append(f"--num-virtual-stages-per-pipeline-rank {wanted.vpp}" if wanted.vpp > 1 else "(no interleaving)")
    if wanted.sequence_parallel and not asked.sequence_parallel:
        flags.append("--sequence-parallel")
    if asked.sharding != wanted.sharding and wanted.sharding is Sharding.ZERO1:
        flags.append("--zero-stage 1" if deepspeed else "--use-distributed-optimizer")
    if asked.recompute != wanted.recompute:
        flags.append(_recompute(wanted.recompute, deepspeed=deepspeed))
    return tuple(flags)


def _recompute(mode: Recompute, *, deepspeed: bool) -> str:
    """Spell a recompute mode."""
    if mode is Recompute.NONE:
        return "(no recompute flags)"
    if deepspeed:
        return "--checkpoint-activations" if mode is Recompute.FULL else "--recompute-activations"
    if mode is Recompute.FULL:
        return "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
    return "--recompute-granularity selective"


def _bridge(asked: Plan, wanted: Plan) -> tuple[str, ...]:
    """Spell the difference as Megatron-Bridge overrides."""
    names = {
        "tp": "model.tensor_model_parallel_size",
        "pp": "model.pipeline_model_parallel_size",
        "micro_batch": "train.micro_batch_size",
    }
    overrides = [
        f"{name}={getattr(wanted, field)}"
        for field, name in names.items()
        if getattr(asked, field) != getattr(wanted, field)
    ]
    if wanted.sequence_parallel and not asked.sequence_parallel:
        overrides.append("model.sequence_parallel=true")
    if asked.recompute != wanted.recompute:
        mode = "null" if wanted.recompute is Recompute.NONE else wanted.recompute.value
        overrides.append(f"model.recompute_granularity={mode}")
    return tuple(overrides)

"""Describes the training steps of a measurement as a model and a plan, as the cost model takes them."""

from __future__ import annotations

from opsk.errors import OpskError
from opsk.probe.document import Training
from opsk.workload.model import ModelShape
from opsk.workload.plan import OptimizerStep, Plan, QkvLayout, Recompute, Sharding, Software, States

VARIANTS = {
    "plain": (Recompute.NONE, Sharding.NONE), "recomputed": (Recompute.FULL, Sharding.NONE),
    "fsdp": (Recompute.NONE, Sharding.ZERO3), "fsdp recomputed": (Recompute.FULL, Sharding.ZERO3),
}  # fmt: skip
"""By the name that `opsk.probe.program` gives a variant, what it recomputes and shards."""


def describe_step(row: Training) -> tuple[ModelShape, Plan] | None:
    """Return model and plan of a step; ``None`` where the row does not state them, or states impossible ones."""
    try:
        model, plan = _build_model(row), _build_plan(row)
    except OpskError:
        return None
    return (model, plan) if model is not None and plan is not None else None


def _build_model(row: Training) -> ModelShape | None:
    """Return the model of a step: `opsk.probe.program.build_model`."""
    if row.ffn is None or row.heads is None or row.vocab is None or row.hidden % row.heads:
        return None
    return ModelShape(
        name="probe", layers=row.layers, hidden=row.hidden, ffn=row.ffn, vocab=row.vocab, seq=row.seq,
        heads=row.heads, kv_heads=row.heads, head_dim=row.hidden // row.heads, gated_mlp=True, tied_embeddings=False,
    )  # fmt: skip


def _build_plan(row: Training) -> Plan | None:
    """Return the plan of a step.

    All states are in BF16, as the program casts the whole model, AdamW steps through lists of parameters, and values
    stay in the product of queries, keys and values.
    """
    if row.variant not in VARIANTS:
        return None
    recompute, sharding = VARIANTS[row.variant]
    return Plan(
        dp=row.ranks, micro_batch=row.micro_batch, global_batch=row.micro_batch * row.ranks, recompute=recompute,
        software=Software.PYTORCH, sharding=sharding if row.ranks > 1 else Sharding.NONE, states=States.PURE_16BIT,
        optimizer_step=OptimizerStep.FOREACH, qkv_layout=QkvLayout.PACKED,
    )  # fmt: skip

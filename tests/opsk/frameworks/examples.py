"""One model, and one plan a framework that uses most of what it has."""

from __future__ import annotations

from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Precision, Recompute, Sharding, Software, States

LLAMA_70B = ModelShape(
    name="llama-3-70b",
    layers=80,
    hidden=8192,
    ffn=28672,
    heads=64,
    kv_heads=8,
    head_dim=128,
    vocab=128256,
    seq=8192,
    gated_mlp=True,
    tied_embeddings=False,
)
"""Llama 3 70B, as its ``config.json`` states it."""

PLANS = {
    "megatron": Plan(
        tp=4,
        pp=4,
        vpp=2,
        dp=8,
        sharding=Sharding.ZERO1,
        shard_gpus=4,
        sequence_parallel=True,
        recompute=Recompute.FULL,
        recompute_layers=4,
        precision=Precision.FP8,
        global_batch=256,
        first_stage_layers=18,
        last_stage_layers=18,
        tp_overlap=True,
    ),
    "fsdp": Plan(
        cp=2,
        dp=64,
        sharding=Sharding.ZERO3,
        shard_gpus=16,
        recompute=Recompute.FULL,
        global_batch=256,
        states=States.AUTOCAST,
        software=Software.PYTORCH,
    ),
    "deepspeed": Plan(
        tp=4,
        pp=4,
        dp=8,
        sharding=Sharding.ZERO1,
        sequence_parallel=True,
        recompute=Recompute.FULL,
        micro_batch=2,
        global_batch=256,
        software=Software.DEEPSPEED,
    ),
    "torchtitan": Plan(
        tp=4,
        pp=4,
        vpp=2,
        dp=8,
        sharding=Sharding.ZERO2,
        shard_gpus=4,
        sequence_parallel=True,
        recompute=Recompute.SELECTIVE,
        precision=Precision.FP8_CURRENT,
        global_batch=256,
        first_stage_layers=18,
        last_stage_layers=18,
        states=States.AUTOCAST,
        compiled=True,
        software=Software.PYTORCH,
    ),
}

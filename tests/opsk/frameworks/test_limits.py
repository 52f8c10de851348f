"""What each framework refuses, one restriction at a time; what it runs is in the round trips."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from opsk.frameworks.catalog import FRAMEWORKS, Framework
from opsk.frameworks.limits import ANYTHING, expresses
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
from tests.opsk.frameworks.examples import LLAMA_70B, PLANS
from tests.opsk.frameworks.test_models import DEEPSEEK_V3

MIXTURE = replace(
    LLAMA_70B, experts=8, top_k=2, expert_ffn=28672, learned_positions=False, qkv_bias=None, tied_embeddings=False
)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_the_example_is_run(name: str) -> None:
    assert FRAMEWORKS[name].refuses(LLAMA_70B, PLANS[name]) == ()


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_names_and_limits_agree(name: str) -> None:
    framework = FRAMEWORKS[name]
    assert framework.name == name == framework.limits.name
    assert framework.settings(LLAMA_70B, PLANS[name]).framework == name


def test_no_limits_express_everything() -> None:
    for plan in PLANS.values():
        assert expresses(ANYTHING, plan, LLAMA_70B) == ()


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("megatron", {"schedule": Schedule.GPIPE}, "no schedule gpipe"),
        ("megatron", {"sharding": Sharding.ZERO3}, "no sharding zero3 with pp 4"),
        ("megatron", {"sharding": Sharding.ZERO3, "pp": 1, "vpp": 1}, "cannot shard zero3 over 4 of 8 replicas"),
        ("megatron", {"offload": Offload.ACTIVATIONS, "offload_layers": 80}, "fewer than all 80 can be"),
        ("megatron", {"optimizer": Optimizer.MUON}, "no optimizer muon"),
        ("megatron", {"loss": Loss.FUSED}, "no loss fused"),
        ("megatron", {"states": States.PURE_16BIT}, "no states pure-16bit"),
        ("megatron", {"recompute_layers": 3}, "not a multiple of vpp 2"),
        ("megatron", {"sequence_parallel": False}, "tp_overlap needs sequence parallelism"),
        ("megatron", {"offload": Offload.OPTIMIZER, "sharding": Sharding.NONE, "shard_gpus": 0}, "need sharding zero1"),
        ("fsdp", {"tp": 2}, "has no tp (the plan's is 2)"),
        ("fsdp", {"pp": 2}, "has no pp (the plan's is 2)"),
        ("fsdp", {"sharding": Sharding.ZERO1}, "no sharding zero1"),
        ("fsdp", {"sharding": Sharding.NONE, "shard_gpus": 0}, "cannot share nothing beside"),
        ("fsdp", {"recompute": Recompute.SELECTIVE}, "no recomputation selective"),
        ("fsdp", {"recompute_layers": 3}, "recomputes all layers or none"),
        ("fsdp", {"precision": Precision.FP8}, "no precision fp8"),
        ("fsdp", {"cp": 4, "shard_gpus": 2}, "not a multiple of cp 4"),
        ("fsdp", {"cp": 4, "shard_gpus": 4}, "leaves dp_shard 1"),
        ("deepspeed", {"cp": 2}, "cp 2 cannot be combined with tp 4"),
        ("deepspeed", {"vpp": 2}, "a stage has one chunk"),
        ("deepspeed", {"first_stage_layers": 18, "last_stage_layers": 18}, "all stages have as many layers"),
        ("deepspeed", {"sharding": Sharding.ZERO2}, "no sharding zero2 with pp 4"),
        ("deepspeed", {"shard_gpus": 4}, "cannot shard zero1 over 4 of 8 replicas"),
        ("deepspeed", {"tp": 16, "dp": 2}, "kv_heads 8 is not a multiple"),
        ("deepspeed", {"sharding": Sharding.NONE}, "need sharding zero1 or more"),
        ("torchtitan", {"sequence_parallel": False}, "always comes with sequence parallelism"),
        ("torchtitan", {"sharding": Sharding.NONE, "shard_gpus": 0}, "no sharding none"),
        ("torchtitan", {"schedule": Schedule.DUALPIPE}, "no schedule dualpipe"),
        ("torchtitan", {"schedule": Schedule.ZERO_BUBBLE_V}, "cannot be combined with compiled"),
        ("torchtitan", {"tp_overlap": True, "compiled": False}, "tp_overlap needs compiled"),
        ("torchtitan", {"states": States.MIXED}, "no states mixed"),
        ("torchtitan", {"dp": 1, "shard_gpus": 0}, "needs dp or cp beside tp and pp"),
    ],
)
def test_what_is_not_run_says_why(name: str, change: dict[str, Any], why: str) -> None:
    plan = replace(PLANS[name], **change)
    reasons = FRAMEWORKS[name].refuses(LLAMA_70B, plan)
    assert any(why in reason for reason in reasons), reasons
    assert all(reason.startswith(f"{name}: ") for reason in reasons)


@pytest.mark.parametrize(
    ("name", "plan", "why"),
    [
        (
            "deepspeed",
            Plan(dp=8, ep=8, sharding=Sharding.ZERO3, global_batch=8, software=Software.DEEPSPEED),
            "no sharding zero3 for a model with experts",
        ),
        (
            "deepspeed",
            Plan(dp=8, ep=4, pp=2, sharding=Sharding.ZERO1, global_batch=16, software=Software.DEEPSPEED),
            "ep 4 cannot be combined with pp 2",
        ),
        ("deepspeed", Plan(dp=8, tp=2, ep=4, etp=1, global_batch=8), "cannot split experts over etp 1 with tp 2"),
        ("torchtitan", Plan(dp=8, tp=4, ep=2, etp=2, global_batch=8), "cannot split experts over etp 2 with tp 4"),
        ("torchtitan", Plan(dp=8, pp=2, global_batch=16), "Qwen 3 models, which have no pipeline"),
        (
            "megatron",
            Plan(dp=8, ep=8, etp=1, sharding=Sharding.ZERO1, shard_gpus=4, global_batch=8),
            "2 instances do not divide the 1 replicas of an expert",
        ),
    ],
)
def test_experts_bring_restrictions_of_their_own(name: str, plan: Plan, why: str) -> None:
    reasons = FRAMEWORKS[name].refuses(MIXTURE, plan)
    assert any(why in reason for reason in reasons), reasons


def test_nothing_is_sharded_where_there_is_one_replica() -> None:
    """Any sharding of one replica is the same plan."""
    for sharding in Sharding:
        plan = Plan(tp=8, sequence_parallel=True, sharding=sharding, states=States.PURE_16BIT, global_batch=1)
        assert not any("sharding" in reason for reason in FRAMEWORKS["torchtitan"].refuses(LLAMA_70B, plan))


def test_deepseek_v3_runs_on_megatron_with_experts_over_many_ranks() -> None:
    plan = Plan(
        pp=16,
        ep=64,
        etp=1,
        dp=128,
        sharding=Sharding.ZERO1,
        first_stage_layers=3,
        last_stage_layers=2,
        global_batch=15360,
    )
    words = FRAMEWORKS["megatron"].settings(DEEPSEEK_V3, plan).pasted
    assert FRAMEWORKS["megatron"].refuses(DEEPSEEK_V3, plan) == ()
    for option in (
        "--moe-layer-freq '([0]*3+[1]*58)'",
        "--multi-latent-attention",
        "--qk-head-dim 128",
        "--moe-shared-expert-intermediate-size 2048",
        "--expert-model-parallel-size 64",
        "--expert-tensor-parallel-size 1",
        "--decoder-first-pipeline-num-layers 3",
    ):
        assert option in words


@pytest.mark.parametrize("framework", FRAMEWORKS.values(), ids=lambda framework: framework.name)
def test_each_rule_of_a_framework_has_its_source_beside_it(framework: Framework) -> None:
    limits = framework.limits
    free = {"name", "software", "sources", "partial_sharding"}
    restricted = {
        item.name
        for item in fields(limits)
        if item.name not in free and getattr(limits, item.name) != getattr(ANYTHING, item.name)
    }
    assert restricted == limits.sources.keys()


def test_a_reason_says_where_its_rule_stands() -> None:
    refused = FRAMEWORKS["megatron"].refuses(LLAMA_70B, replace(PLANS["megatron"], optimizer=Optimizer.MUON))
    assert refused == ("megatron: has no optimizer muon (megatron/training/arguments.py: --optimizer)",)
    overlapped = FRAMEWORKS["megatron"].refuses(LLAMA_70B, replace(PLANS["megatron"], sequence_parallel=False))
    assert overlapped == (
        "megatron: tp_overlap needs sequence parallelism (megatron/training/arguments.py: --tp-comm-overlap)",
    )

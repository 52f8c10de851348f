from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.costmodel.rules import excess_gpus, find_cluster_violations, find_violations, missing_formats
from opsk.hardware.catalog import cluster, gpu
from opsk.hardware.spec import ClusterSpec
from opsk.workload.model import ModelShape
from opsk.workload.plan import Offload, Plan, Precision, Recompute, Schedule, Sharding, Software
from tests.fakes.training_runs import gpt, shares_and_stages


def test_the_published_plans_break_no_rule(gpt3: ModelShape, llama3_8b: ModelShape, mixtral: ModelShape):
    assert find_violations(gpt3, Plan(tp=8, pp=8, vpp=3, sequence_parallel=True, global_batch=64)) == ()
    assert find_violations(llama3_8b, Plan(tp=2, cp=2, dp=2, global_batch=64)) == ()
    assert find_violations(mixtral, Plan(tp=2, pp=4, ep=8, dp=8, global_batch=64)) == ()


def test_uneven_stages_must_be_asked_for(gpt3: ModelShape):
    # BLOOM's 70 layers on 12 stages, embedding and head counted as a layer each: 5, ten times 6, 5
    bloom = replace(gpt3, layers=70)
    assert "layers 70 is not a multiple of pp 12" in find_violations(bloom, Plan(pp=12, global_batch=64))[0]
    assert find_violations(bloom, Plan(pp=12, global_batch=64, first_stage_layers=5, last_stage_layers=5)) == ()


def test_sizes_beyond_all_reason_are_refused(gpt3: ModelShape):
    assert "parameters, more than 1e+15" in find_violations(replace(gpt3, layers=10**8), Plan(global_batch=1))[0]
    assert (
        "seq 999999999 is more than 1e+08" in find_violations(replace(gpt3, seq=999_999_999), Plan(global_batch=1))[0]
    )


def test_block_scaled_formats_need_a_chip_that_scales_blocks(gpt3: ModelShape):
    plan = Plan(tp=8, precision=Precision.MXFP8, global_batch=1)
    (wrong,) = missing_formats(plan, cluster("superpod-h100"))
    assert "mxfp8 needs scaling by blocks in hardware, h100-sxm (hopper) has none" in wrong
    b200 = replace(cluster("superpod-h100").node, gpu=gpu("b200-sxm"))
    assert missing_formats(plan, replace(cluster("superpod-h100"), node=b200)) == ()


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (Plan(tp=7, global_batch=8), ["heads 32 is not a multiple of tp 7", "kv_heads 8 and tp 7"]),
        (Plan(tp=3, global_batch=8), ["heads 32 ", "kv_heads 8 and tp 3", "ffn 14336 is not a multiple of tp 3"]),
        (Plan(pp=5, global_batch=8), ["layers 32 is not a multiple of pp 5 x vpp 1 = 5"]),
        (Plan(vpp=2, global_batch=8), ["vpp 2 needs pp of at least 2"]),
        (Plan(pp=4, vpp=2, global_batch=6), ["micro-batches (6) that are a multiple of pp 4"]),
        (Plan(cp=3, global_batch=8), ["seq 8192 is not a multiple of 2 x cp 3"]),
        (Plan(ep=2, dp=2, global_batch=8), ["ep 2, but the model has no experts"]),
    ],
)
def test_every_broken_rule_is_named_with_its_numbers(llama3_8b: ModelShape, plan: Plan, words: list[str]):
    found = find_violations(llama3_8b, plan)
    assert len(found) == len(words)
    for violation, expected in zip(found, words, strict=True):
        assert expected in violation


def _wrong(model: ModelShape, **plan: Any) -> list[str]:
    return list(find_violations(model, Plan(**{"global_batch": 64, **plan})))


def test_a_shorter_last_stage_may_be_asked_for(deepseek_v3: ModelShape):
    # DeepSeek-V3 on 16 stages: fifteen times 4 layers, and 1 beside head and multi-token prediction
    axes = {"pp": 16, "ep": 64, "dp": 64, "precision": Precision.FP8_BLOCK}
    assert _wrong(deepseek_v3, **axes) == [
        "layers 61 is not a multiple of pp 16 x vpp 1 = 16: "
        "ask for uneven stages with first_stage_layers and last_stage_layers"
    ]
    assert _wrong(deepseek_v3, **axes, last_stage_layers=1) == []


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"first_stage_layers": 8}, "first_stage_layers 8: needs pp of at least 2"),
        ({"pp": 4, "first_stage_layers": 6}, "leaves 26 of layers 32, which is not a multiple of the 3 other stages"),
        ({"pp": 2, "first_stage_layers": 9, "last_stage_layers": 9}, "leaves 14 of layers 32 for the 0 other stages"),
        ({"pp": 3, "first_stage_layers": 16, "last_stage_layers": 16}, "leaves 0 of layers 32 for the 1 other stages"),
        (
            {"pp": 4, "vpp": 2, "first_stage_layers": 13, "last_stage_layers": 3},
            "first_stage_layers 13 is not a multiple",
        ),
        ({"pp": 2, "vpp": 2, "first_stage_layers": 15}, "leaves 17 of layers 32, which is not a multiple of the 1"),
    ],
)
def test_stages_by_hand_must_add_up(llama3_8b: ModelShape, plan: dict[str, Any], words: str):
    assert words in _wrong(llama3_8b, **plan)[0]


@given(layers=st.integers(1, 64), pp=st.integers(1, 12), first=st.integers(0, 12), last=st.integers(0, 12))
def test_stages_that_break_no_rule_hold_all_layers(layers: int, pp: int, first: int, last: int):
    model = gpt(layers=layers, hidden=256, heads=4)
    plan = Plan(pp=pp, first_stage_layers=first, last_stage_layers=last, global_batch=16)
    if find_violations(model, plan):
        return
    _, stages = shares_and_stages(model, plan)
    held_first, middle, held_last = stages.layers[:, 0]
    total = held_first if pp == 1 else held_first + middle * (pp - 2) + held_last
    assert total == layers


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"schedule": Schedule.ZERO_BUBBLE}, "schedule zero-bubble needs pp of at least 2"),
        ({"schedule": Schedule.ZERO_BUBBLE_2, "pp": 4, "vpp": 2}, "zero-bubble-2 has one chunk a stage, vpp is 2"),
        ({"schedule": Schedule.ZERO_BUBBLE_V, "pp": 4}, "zero-bubble-v has two chunks a stage, vpp is 1"),
        ({"schedule": Schedule.DUALPIPE, "pp": 8, "global_batch": 14}, "micro-batches (14), at least 2 x pp 8"),
        ({"pp": 4, "vpp": 2, "global_batch": 10, "software": Software.PYTORCH}, ""),
        ({"pp": 4, "vpp": 2, "global_batch": 9, "software": Software.PYTORCH}, "(9) that make 2 equal groups"),
        ({"pp": 4, "recompute": Recompute.FULL, "recompute_layers": 9}, "9 is more than the 8 layers of a stage"),
        ({"recompute_layers": 2}, "recompute_layers 2 needs recompute full, not none"),
        ({"dp": 8, "shard_gpus": 4}, "shard_gpus 4 needs sharding, which is none"),
        ({"dp": 8, "shard_gpus": 3, "sharding": Sharding.ZERO3}, "does not divide the replicas dp 8 x cp 1 = 8"),
        ({"pp": 2, "dp": 2, "sharding": Sharding.ZERO2, "software": Software.DEEPSPEED}, "zero2 with pp 2"),
        ({"lora_rank": 8192}, "lora_rank 8192 is more than hidden 4096"),
        ({"lora_rank": 8, "frozen_fraction": 0.5}, "frozen_fraction 0.5 must be 0"),
        ({"base_bits": 4}, "base_bits 4 cannot be trained"),
        ({"frozen_fraction": 1.0}, "nothing to train"),
        ({"offload": Offload.OPTIMIZER_AND_WEIGHTS}, "needs sharding zero3, not none"),
        ({"offload": Offload.OPTIMIZER, "software": Software.DEEPSPEED}, "needs sharding zero1 or more in DeepSpeed"),
        ({"offload": Offload.ACTIVATIONS, "recompute": Recompute.FULL}, "cannot be combined with recompute full"),
        ({"offload": Offload.ACTIVATIONS, "pp": 2}, "cannot be combined with pp 2"),
        ({"offload": Offload.ACTIVATIONS, "recompute": Recompute.FULL, "software": Software.PYTORCH}, ""),
        ({"etp": 2}, "etp 2, but the model has no experts"),
        ({"tp": 3, "sequence_parallel": True, "precision": Precision.FP8}, "heads 32 is not a multiple of tp 3"),
    ],
)
def test_rules_of_schedules_states_and_software(llama3_8b: ModelShape, plan: dict[str, Any], words: str):
    found = _wrong(llama3_8b, **plan)
    assert (found == []) if not words else any(words in violation for violation in found)


@pytest.mark.parametrize(
    ("precision", "ffn", "words"),
    [
        (Precision.BF16, 14344, []),
        (Precision.FP8, 14344, ["precision fp8: ffn 14344 is not a multiple of 16"]),
        (Precision.MXFP8, 14352, ["precision mxfp8: ffn 14352 is not a multiple of 32"]),
        (Precision.NVFP4, 14352, []),
    ],
)
def test_low_precision_needs_round_widths(llama3_8b: ModelShape, precision: Precision, ffn: int, words: list[str]):
    # Transformer Engine: "height divisible by 8 and width divisible by 16"; blocks of 32 for MXFP8
    assert _wrong(replace(llama3_8b, ffn=ffn), precision=precision) == words


def test_low_precision_needs_round_token_counts(llama3_8b: ModelShape):
    wrong = _wrong(replace(llama3_8b, seq=8188), precision=Precision.FP8)
    assert wrong == ["precision fp8: seq 8188 x micro_batch 1 is not a multiple of 8 tokens"]
    assert _wrong(replace(llama3_8b, seq=8188), precision=Precision.FP8, micro_batch=2) == []


def test_a_gpu_without_the_number_format_is_told_with_those_that_it_has(llama3_8b: ModelShape, cluster: ClusterSpec):
    plan = Plan(precision=Precision.NVFP4, tp=7, global_batch=8)
    assert missing_formats(plan, cluster) == ("precision nvfp4 needs fp4, a100-sxm-80gb has bf16, fp16, fp32",)
    assert missing_formats(Plan(global_batch=8), cluster) == ()
    # all at once
    assert find_cluster_violations(llama3_8b, plan, cluster) == (
        *find_violations(llama3_8b, plan),
        *missing_formats(plan, cluster),
    )


def test_experts_may_be_split_otherwise_than_the_rest(mixtral: ModelShape):
    assert _wrong(mixtral, tp=4, ep=8, dp=2, etp=1) == []
    assert _wrong(mixtral, tp=4, ep=8, dp=2, etp=3) == [
        "expert_ffn 14336 is not a multiple of etp 3",
        "dp 2 x cp 1 x tp 4 is not a multiple of etp 3 x ep 8",
    ]


def test_shared_and_dense_widths_of_a_mixture_of_experts_are_split_too(mixtral: ModelShape):
    model = replace(mixtral, dense_layers=1, ffn=14342, shared_experts=1, shared_ffn=1026)
    assert _wrong(model, tp=4) == ["ffn 14342 is not a multiple of tp 4", "shared_ffn 1026 is not a multiple of tp 4"]


def test_the_encoder_is_split_too(llama3_8b: ModelShape):
    model = replace(llama3_8b, encoder_layers=3, encoder_seq=1001)
    found = _wrong(model, pp=8, cp=2)
    assert "layers 32 + encoder_layers 3 is not a multiple of pp 8" in found[0]
    assert found[1:] == ["encoder_seq 1001 is not a multiple of 2 x cp 2"]


def test_experts_must_divide(mixtral: ModelShape):
    found = find_violations(mixtral, Plan(dp=4, ep=3, global_batch=8))
    assert found == ("experts 8 is not a multiple of ep 3", "dp 4 x cp 1 x tp 1 is not a multiple of ep 3")


def test_a_plan_larger_than_the_cluster_is_told_both_numbers(cluster: ClusterSpec):
    (violation,) = excess_gpus(Plan(tp=8, pp=8, dp=128, global_batch=128), cluster)
    assert "= 8192 GPUs" in violation
    assert "has 4096" in violation
    assert excess_gpus(Plan(tp=8, pp=8, dp=64, global_batch=64), cluster) == ()


def test_embedding_and_loss_may_take_the_place_of_a_layer_of_interleaved_stages(llama3_8b: ModelShape):
    """126 layers (Llama 3 405B), embedding and loss are 16 stages of 8 chunks with a layer each."""
    llama = replace(llama3_8b, layers=126)
    ends = {"first_stage_layers": 7, "last_stage_layers": 7}
    assert _wrong(llama, pp=16, vpp=8, **ends) == []
    assert _wrong(llama, pp=16, vpp=4, **ends) == []
    assert _wrong(llama, pp=16, vpp=8, first_stage_layers=6) != []

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.memory.peak import VARIED_LENGTHS_FRACTION, peak_memory
from opsk.costmodel.sizes.shape import build_shape
from opsk.costmodel.table import MOMENTS, MemoryTable, PlanTable
from opsk.workload.model import ModelShape
from opsk.workload.plan import Loss, Plan, Precision, Recompute, Sharding, Software, States
from tests.fakes.training_runs import gpt, parts

ALLOCATED = ("weights", "gradients", "optimizer", "activations", "logits", "buffers", "workspace")


def _memory(model: ModelShape, *plans: Plan, capacity_bytes: float = 85e9) -> MemoryTable:
    shares, stages, counted = parts(model, *plans)
    return peak_memory(
        build_shape(model),
        PlanTable.of(plans),
        shares,
        stages,
        counted,
        np.asarray(capacity_bytes),
        np.asarray(24.0),
        DEFAULT,
    )


def test_components_add_up_to_the_three_quantities(llama3_8b: ModelShape):
    for sharding in Sharding:
        memory = _memory(llama3_8b, Plan(tp=2, pp=4, dp=8, sharding=sharding, global_batch=64))
        parts_of = memory.components
        allocated = sum(parts_of[name][0] for name in ALLOCATED)
        assert allocated == pytest.approx(memory.allocated_bytes[0], rel=1e-12)
        kept = parts_of["slack"][0] + parts_of["fragmentation"][0]
        assert allocated + kept == pytest.approx(memory.reserved_bytes[0], rel=1e-12)
        assert sum(column[0] for column in parts_of.values()) == pytest.approx(memory.device_bytes[0], rel=1e-12)
        assert memory.device_bytes[0] == memory.total_bytes.expected[0]


def test_the_fullest_stage_is_one_of_the_candidates(gpt3: ModelShape):
    memory = _memory(gpt3, Plan(tp=8, pp=8, global_batch=64), Plan(tp=8, pp=2, global_batch=64))
    np.testing.assert_array_equal(memory.by_stage.device.max(axis=0), memory.device_bytes)
    # 1F1B keeps eight micro-batches on the first stage, one on the last
    assert memory.by_stage.allocated[0, 0] > memory.by_stage.allocated[2, 0]


FLATTENED = {"states": States.MIXED_16BIT_GRADIENTS, "software": Software.DEEPSPEED}
FREED = {"states": States.PURE_16BIT, "software": Software.PYTORCH, "recompute": Recompute.FULL, "loss": Loss.FUSED}


@pytest.mark.parametrize(
    ("moment", "plan", "vocab"),
    [
        ("loss", Plan(global_batch=8), 512000),
        ("backward", Plan(global_batch=8), 1024),
        ("optimizer step", Plan(**FLATTENED, global_batch=8), 1024),
        ("last backward", Plan(**FREED, global_batch=1), 1024),
    ],
)
def test_the_moment_of_the_peak(moment: str, plan: Plan, vocab: int):
    # many logits; unfused attention scores; fp32 copies of all gradients; gradients that exist after the backward only
    layers, seq = (4, 2048) if moment == "backward" else (32, 128)
    memory = _memory(gpt(layers=layers, hidden=2048, heads=16, vocab=vocab, seq=seq), plan)
    assert MOMENTS[memory.moment[0]] == moment


def test_flat_buffers_of_the_step_come_on_top_of_cached_activations(gpt3: ModelShape):
    plan = Plan(tp=8, pp=12, dp=4, sharding=Sharding.ZERO1, recompute=Recompute.FULL, global_batch=2048)
    memory = _memory(gpt3, replace(plan, states=States.MIXED_16BIT_GRADIENTS, software=Software.DEEPSPEED))
    # 6 bytes for each of the parameters that one of four ranks steps
    _, _, counted = parts(gpt3, plan)
    assert memory.components["slack"][0] > 6 * counted.dense[0, 0] / 4


def test_cached_blocks_do_not_make_a_job_too_large(gpt3: ModelShape):
    plan = Plan(tp=8, pp=12, dp=4, micro_batch=4, global_batch=2048)
    device = _memory(gpt3, plan).device_bytes[0]
    # at a capacity of what the device would show, the allocator can still give blocks back
    assert _memory(gpt3, plan, capacity_bytes=device).fit_probability[0] > 0.55


LLAMA32_3B = ModelShape(
    layers=28, hidden=3072, ffn=8192, heads=24, kv_heads=8, head_dim=128, vocab=128256, seq=4096, gated_mlp=True
)


@pytest.mark.parametrize(
    ("plan", "measured_gib"),
    [
        ({}, 60.0),
        ({"compiled": True}, 51.0),
        ({"compiled": True, "loss": Loss.CHUNKED}, 42.9),
        ({"compiled": True, "loss": Loss.CHUNKED, "recompute": Recompute.FULL}, 24.9),
    ],
)
def test_torchtunes_steps_from_eager_to_checkpointed(plan: dict[str, object], measured_gib: float):
    # torchtune's README, "Optimization flags": Llama 3.2 3B, packed 4096 tokens, batch 2, all in bf16, one A100
    fixed = {"software": Software.PYTORCH, "states": States.PURE_16BIT, "micro_batch": 2, "global_batch": 2}
    allocated = _memory(LLAMA32_3B, Plan(**fixed, **plan)).allocated_bytes[0]  # type: ignore[arg-type]
    assert allocated / 2**30 == pytest.approx(measured_gib, rel=0.03)


TOY = gpt(layers=12, hidden=512, heads=8, vocab=50257, seq=1024)


@pytest.mark.parametrize(
    ("plan", "flash", "measured_gb"),
    [
        # names of the tests: gpt3_mcore_te_tp1_pp1_dist_optimizer_fim_dataset, ..tp1_pp1_resume_torch_dist_uniform_
        # full_recompute, ..tp1_pp4_vp1, ..tp1_pp4_vp1_dist_optimizer_overlap.., ..tp2_pp1_resume_torch_dist_cp2..,
        # ..tp2_pp2_cp2, ..tp4_pp1_dist_optimizer_overlap..
        (Plan(dp=8, sharding=Sharding.ZERO1, global_batch=32, micro_batch=4), False, 4.702),
        (Plan(dp=8, recompute=Recompute.FULL, global_batch=32, micro_batch=4), True, 2.561),
        (Plan(pp=4, vpp=3, dp=2, global_batch=32, micro_batch=4), False, 4.161),
        (Plan(pp=4, vpp=3, dp=2, sharding=Sharding.ZERO1, global_batch=32, micro_batch=4), False, 3.942),
        (Plan(tp=2, cp=2, dp=2, sequence_parallel=True, global_batch=32, micro_batch=4), True, 1.234),
        (Plan(tp=2, pp=2, cp=2, sequence_parallel=True, global_batch=32, micro_batch=4), True, 0.935),
        (Plan(tp=4, dp=2, sharding=Sharding.ZERO1, global_batch=32, micro_batch=4), False, 1.543),
    ],
)
def test_golden_values_of_megatron(plan: Plan, flash: bool, measured_gb: float):
    # Megatron-LM tests/functional_tests, golden values: mem-max-allocated-bytes of the last rank, 8 H100; the same toy
    # GPT throughout. Three per cent leave room for workspaces, attention mask and data
    memory = _memory(replace(TOY, flash_attention=flash), plan)
    assert memory.by_stage.allocated[2, 0] / 1e9 == pytest.approx(measured_gb, rel=0.03)


def test_fully_sharded_llama3_8b_needs_less_than_megatron_says_and_more_than_its_states(llama3_8b: ModelShape):
    # eight GPUs, one sequence of 8192 each. DeepSpeed's estimator has states only (18.8 GiB), Megatron-LM's no ZeRO-3
    # (92.2 GiB). By hand: 16 bytes / 8 of 8.03e9 parameters, 36 GiB of activations, 14 bytes for each of 1.05e9 logits
    plan = Plan(
        dp=8, sharding=Sharding.ZERO3, states=States.AUTOCAST, software=Software.PYTORCH, compiled=True, global_batch=8
    )
    by_hand = 2 * 8.03e9 + 36 * 2**30 + 14 * 8192 * 128256
    memory = _memory(llama3_8b, plan)
    assert memory.allocated_bytes[0] == pytest.approx(by_hand, rel=0.08)
    assert 18.8 * 2**30 < memory.device_bytes[0] < 92.2 * 2**30


def test_memory_falls_with_every_precision_that_is_narrower(llama3_8b: ModelShape):
    plan = Plan(tp=8, global_batch=8)
    fp32, bf16, fp8 = _memory(
        llama3_8b, *(replace(plan, precision=each) for each in (Precision.FP32, Precision.BF16, Precision.FP8))
    ).allocated_bytes
    assert fp32 > bf16 > fp8


def test_padded_micro_batches_leave_blocks_that_the_longest_cannot_use(llama3_8b: ModelShape):
    plan = Plan(software=Software.PYTORCH, recompute=Recompute.FULL, varied_lengths=True, global_batch=1)
    even, varied, grown = (
        _memory(llama3_8b, each)
        for each in (replace(plan, varied_lengths=False), plan, replace(plan, expandable_segments=True))
    )
    assert varied.allocated_bytes == even.allocated_bytes == grown.allocated_bytes
    # 128,256 logits of 14 bytes and no more pass between forward and backward
    logits = 8192 * 128256 * 14
    assert varied.reserved_bytes[0] - even.reserved_bytes[0] == pytest.approx(
        VARIED_LENGTHS_FRACTION * logits, rel=0.01
    )
    assert grown.reserved_bytes < even.reserved_bytes
    assert grown.components["fragmentation"] == 0

"""Buffers beside weights and activations, and the peak of a step, by hand and against measured ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.memory.peak import (
    PLAIN_MODULES_FRAGMENTATION,
    VARIED_LENGTHS_FRACTION,
    Buffers,
    communicators,
    compute_buffers,
    logits_bytes,
    peak_memory,
)
from opsk.costmodel.predict import predict
from opsk.costmodel.sizes.shape import build_shape
from opsk.costmodel.table import MOMENTS, FloatColumn, MemoryTable, PlanTable
from opsk.workload.model import ModelShape
from opsk.workload.plan import (
    AdapterFormat,
    LoraTargets,
    Loss,
    Plan,
    Precision,
    Recompute,
    Sharding,
    Software,
    States,
)
from opsk.workload.public_models.lookup import public_model
from tests.fakes.training_runs import a100_cluster, gpt, parts


def _logits(model: ModelShape, plan: Plan) -> FloatColumn:
    shares, stages, _ = parts(model, plan)
    return logits_bytes(build_shape(model), PlanTable.of([plan]), shares, stages)


def _buffers(model: ModelShape, plan: Plan) -> Buffers:
    shares, _, counted = parts(model, plan)
    return compute_buffers(build_shape(model), PlanTable.of([plan]), shares, counted)


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (Plan(global_batch=8), 0),
        # tensor parallelism, the norm of a replica's gradients, the world
        (Plan(tp=8, global_batch=8), 3),
        # the same, pipeline and data parallelism, two neighbours, the tied embedding
        (Plan(tp=2, pp=2, dp=2, global_batch=8), 8),
        (Plan(tp=2, pp=2, dp=2, software=Software.DEEPSPEED, global_batch=8), 11),
        (Plan(dp=8, sharding=Sharding.ZERO3, software=Software.PYTORCH, global_batch=8), 2),
    ],
)
def test_communicators(gpt3: ModelShape, plan: Plan, expected: int):
    shares, _, _ = parts(gpt3, plan)
    assert communicators(build_shape(gpt3), PlanTable.of([plan]), shares)[0] == expected


def test_logits_lie_on_the_last_stage_only(gpt3: ModelShape):
    # 2048 tokens x 51200 / 8 rows x (2 + 4) bytes
    assert _logits(gpt3, Plan(tp=8, pp=4, global_batch=8))[:, 0].tolist() == [0, 0, 2048 * 6400 * 6]


@pytest.mark.parametrize(
    ("loss", "bytes_per_logit"),
    [
        # 16-bit logits, their fp32 copy, log-softmax and its gradient; in chunks only the log-softmax of all is kept
        (Loss.PLAIN, 2 + 4 + 4 + 4),
        (Loss.CHUNKED, 2 + 4),
        # without a copy: 16-bit logits, log-softmax and its gradient
        (Loss.NATIVE, 2 + 2 + 2),
        # one kernel: 16-bit logits and their gradient; or two fp32 copies of HuggingFace's, the gradient in one of them
        (Loss.KERNEL, 2 + 2),
        (Loss.FP32_KERNEL, 4 + 4),
    ],
)
def test_logits_of_pytorchs_cross_entropy(gpt3: ModelShape, loss: Loss, bytes_per_logit: int):
    plan = Plan(software=Software.PYTORCH, loss=loss, global_batch=1)
    assert _logits(gpt3, plan)[2, 0] == 2048 * 51200 * bytes_per_logit


def test_every_rank_holds_whole_logits_where_pytorch_gathers_them(gpt3: ModelShape):
    plan = Plan(tp=8, software=Software.PYTORCH, global_batch=1)
    assert _logits(gpt3, plan)[2, 0] == 2048 * 51200 / 8 * 14
    gathered = replace(plan, gathers_logits=True)
    assert _logits(gpt3, gathered)[2, 0] == 2048 * 51200 * 14
    # Megatron's loss works on split logits whatever a plan says
    assert _logits(gpt3, replace(gathered, software=Software.MEGATRON_CORE))[2, 0] == 2048 * 51200 / 8 * 6


@pytest.mark.parametrize("loss", [Loss.FUSED, Loss.RECOMPUTED, Loss.RECOMPUTED_FP32])
def test_a_loss_fused_with_the_head_keeps_gradients_and_no_logits(gpt3: ModelShape, loss: Loss):
    # of the head's input, 2048 tokens, and of the head, 51200 rows, 12288 wide; a frozen head has none
    plan = Plan(software=Software.PYTORCH, loss=loss, global_batch=1)
    assert _logits(gpt3, plan)[2, 0] == 2 * 12288 * (2048 + 51200)
    assert _logits(gpt3, replace(plan, lora_rank=8))[2, 0] == 2 * 12288 * 2048


def test_a_frozen_base_is_gathered_as_it_is_kept_and_reduces_nothing(llama3_8b: ModelShape):
    plan = Plan(dp=8, sharding=Sharding.ZERO3, software=Software.PYTORCH, lora_rank=8, base_bits=4, global_batch=8)
    _, _, counted = parts(llama3_8b, plan)
    found = _buffers(llama3_8b, plan)
    # two layers in NF4 and the 16-bit ends
    expected = 2 * 4.127 / 8 * counted.layer + 2 * counted.ends[0, 0]
    assert np.asarray(found.gathered)[0, 0] == pytest.approx(float(np.ravel(expected)[0]))
    assert not np.any(found.reduced)
    assert not np.any(found.at_end)


def test_fsdp_under_autocast_without_a_policy_gathers_and_reduces_in_fp32(llama3_8b: ModelShape):
    # 218,112,000 parameters a layer, two of them gathered, and the ends; gradients are fp32 already: nothing is copied
    plan = Plan(dp=8, sharding=Sharding.ZERO3, software=Software.PYTORCH, states=States.AUTOCAST, global_batch=8)
    wide, narrow = (_buffers(llama3_8b, replace(plan, gathers_fp32=asked)) for asked in (True, False))
    assert wide.gathered[0] == 2 * narrow.gathered[0] > 8 * 218_112_000
    assert wide.reduced[0] == pytest.approx(4 * 218_112_000)
    assert narrow.reduced[0] == pytest.approx((2 + 4) * 218_112_000)
    frozen = _buffers(llama3_8b, replace(plan, gathers_fp32=True, lora_rank=8))
    assert frozen.gathered[0] == wide.gathered[0]
    assert frozen.reduced[0] == 0


@pytest.mark.parametrize(
    ("lora_rank", "gpus", "measured_gb"),
    [(0, 8, 41.520), (0, 16, 36.466), (0, 32, 33.939), (0, 64, 32.676),
     (16, 8, 34.974), (16, 16, 33.277), (16, 32, 32.428), (16, 64, 32.004)],
)  # fmt: skip
def test_atorchs_fsdp_under_autocast(lora_rank: int, gpus: int, measured_gb: float):
    # README.md of atorch/examples/llama2: Llama 2 7B, A100, four samples of 4,096, allocated. Over GPUs it falls by
    # 12 bytes a parameter (fp32 weights, two moments), with LoRA by 4; without the two flags half was predicted
    model = public_model("llama-2-7b")
    plan = Plan(
        dp=gpus, sharding=Sharding.ZERO3, software=Software.PYTORCH, states=States.AUTOCAST, micro_batch=4,
        global_batch=4 * gpus, recompute=Recompute.FULL, lora_rank=lora_rank, lora_targets=LoraTargets.ATTENTION,
        adapter_format=AdapterFormat.AUTOCAST, gathers_fp32=True, keeps_kv_cache=True,
    )  # fmt: skip
    memory = predict(replace(model, seq=4096), PlanTable.of([plan]), a100_cluster(), DEFAULT).memory
    assert memory.allocated_bytes[0] / 1e9 == pytest.approx(measured_gb, rel=0.14)
    plain = PlanTable.of([replace(plan, gathers_fp32=False, keeps_kv_cache=False)])
    narrow = predict(replace(model, seq=4096), plain, a100_cluster(), DEFAULT).memory
    assert narrow.allocated_bytes[0] / 1e9 < 0.6 * measured_gb


def test_gradients_reduced_in_16_bits_need_no_fp32_copy(llama3_8b: ModelShape):
    plan = Plan(dp=8, sharding=Sharding.ZERO3, software=Software.PYTORCH, states=States.AUTOCAST, global_batch=8)
    wide, narrow = (_buffers(llama3_8b, replace(plan, reduces_16bit=asked)).reduced for asked in (False, True))
    assert np.asarray(wide) == pytest.approx(3 * np.asarray(narrow))


def test_pipeline_stages_of_pytorch_keep_weights_and_gradients_whole(llama3_8b: ModelShape):
    # torchtitan: fsdp_reshard_after_forward is off with pipelines; bf16 weights and fp32 gradients of the stage
    plan = Plan(pp=4, dp=8, sharding=Sharding.ZERO3, software=Software.PYTORCH, states=States.AUTOCAST, global_batch=64)
    _, _, counted = parts(llama3_8b, plan)
    found = _buffers(llama3_8b, plan)
    assert found.gathered[:, 0].tolist() == pytest.approx(((2 + 4) * counted.dense[:, 0]).tolist())
    assert (np.asarray(found.reduced) == 0).all()
    assert (np.asarray(found.at_end) == 0).all()


def test_only_sharded_states_need_gather_buffers():
    model = gpt(layers=24, hidden=2048, heads=16)
    found = {}
    for stage in Sharding:
        plan = Plan(dp=8, sharding=stage, software=Software.PYTORCH, states=States.AUTOCAST, global_batch=8)
        _, _, counted = parts(model, plan)
        found[stage] = _buffers(model, plan)
    layer, ends = counted.layer[0], counted.ends[0, 0]
    # two gathered 16-bit layers and the unit with the embedding; a layer's gradients in 16 bits and in fp32
    assert found[Sharding.ZERO3].gathered[0, 0] == 2 * (2 * layer + ends)
    assert found[Sharding.ZERO3].reduced[0] == found[Sharding.ZERO2].reduced[0] == 6 * layer
    for stage in (Sharding.NONE, Sharding.ZERO1):
        assert np.max(found[stage].gathered) == np.max(found[stage].reduced) == np.max(found[stage].at_end) == 0


@pytest.mark.parametrize(
    ("sharding", "states", "expected"),
    [
        # one bucket of 5e8 elements in 16 bits; ZeRO-3: two, and 1e9 live weights
        (Sharding.ZERO1, States.MIXED_16BIT_GRADIENTS, 2 * 5e8),
        (Sharding.ZERO2, States.MIXED_16BIT_GRADIENTS, 2 * 5e8),
        (Sharding.ZERO3, States.MIXED_16BIT_GRADIENTS, 2 * 2 * 5e8 + 2 * 1e9),
        # the bf16 optimizer: a bucket in fp32, and the embedding's gradient in fp32 while it is added
        (Sharding.ZERO1, States.MIXED, 4 * 5e8 + 4 * 51200 * 12288),
    ],
)
def test_deepspeeds_buckets(gpt3: ModelShape, sharding: Sharding, states: States, expected: float):
    plan = Plan(dp=8, sharding=sharding, states=states, software=Software.DEEPSPEED, global_batch=8)
    assert np.max(_buffers(gpt3, plan).gathered) == pytest.approx(expected, rel=1e-12)


def test_a_small_model_fills_no_bucket():
    model = gpt(layers=2, hidden=256, heads=4, vocab=1024)
    plan = Plan(dp=8, states=States.MIXED_16BIT_GRADIENTS, software=Software.DEEPSPEED, global_batch=8)
    _, _, counted = parts(model, plan)
    assert np.max(_buffers(model, plan).gathered) == pytest.approx(2 * np.max(counted.dense), rel=1e-12)


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
    device = _memory(gpt3, plan, capacity_bytes=1e12).device_bytes[0]
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


def test_modules_of_pytorch_leave_more_between_blocks_than_megatron(llama3_8b: ModelShape):
    plan = Plan(recompute=Recompute.FULL, global_batch=1)
    plain, wrapped, growing, own = (
        _memory(llama3_8b, replace(plan, **changes))
        for changes in (
            {"software": Software.PYTORCH},
            {"software": Software.DEEPSPEED},
            {"software": Software.PYTORCH, "expandable_segments": True},
            {"software": Software.MEGATRON_CORE},
        )
    )
    for memory, share in ((plain, PLAIN_MODULES_FRAGMENTATION), (wrapped, PLAIN_MODULES_FRAGMENTATION), (own, 0.05)):
        # 5 % of what lives for less than a step are slack in all of them
        parts_of = memory.components
        assert parts_of["fragmentation"][0] == pytest.approx(share / 0.05 * parts_of["slack"][0], rel=0.05)
    assert growing.components["fragmentation"] == 0


def test_padded_micro_batches_leave_blocks_that_the_longest_cannot_use(llama3_8b: ModelShape):
    plan = Plan(software=Software.PYTORCH, recompute=Recompute.FULL, varied_lengths=True, global_batch=1)
    even, varied, grown = (
        _memory(llama3_8b, each, capacity_bytes=1e12)
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


def test_cached_blocks_are_given_back_where_the_gpu_has_no_room_for_them(llama3_8b: ModelShape):
    plan = Plan(tp=2, dp=4, software=Software.PYTORCH, recompute=Recompute.FULL, varied_lengths=True, global_batch=4)
    whole = _memory(llama3_8b, plan, capacity_bytes=1e12)
    needed = whole.needed_bytes.expected[0]
    between = (needed + whole.device_bytes[0]) / 2
    some, none = (_memory(llama3_8b, plan, capacity_bytes=each) for each in (between, 0.5 * needed))
    assert some.device_bytes[0] == pytest.approx(between)
    assert none.device_bytes[0] == whole.device_bytes[0]
    for memory in (some, none):
        assert memory.allocated_bytes == whole.allocated_bytes
        assert memory.needed_bytes.expected[0] == pytest.approx(needed)
        assert sum(column[0] for column in memory.components.values()) == pytest.approx(memory.device_bytes[0])

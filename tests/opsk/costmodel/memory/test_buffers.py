from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from opsk.costmodel.memory.buffers import Buffers, communicators, compute_buffers, logits_bytes
from opsk.costmodel.sizes.shape import build_shape
from opsk.costmodel.table import FloatColumn, PlanTable
from opsk.workload.model import ModelShape
from opsk.workload.plan import Loss, Plan, Sharding, Software, States
from tests.fakes.training_runs import gpt, parts


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
        # one kernel: 16-bit logits and their gradient; or two fp32 copies of HuggingFace's, the gradient in one of them
        (Loss.KERNEL, 2 + 2),
        (Loss.FP32_KERNEL, 4 + 4),
    ],
)
def test_logits_of_pytorchs_cross_entropy(gpt3: ModelShape, loss: Loss, bytes_per_logit: int):
    plan = Plan(software=Software.PYTORCH, loss=loss, global_batch=1)
    assert _logits(gpt3, plan)[2, 0] == 2048 * 51200 * bytes_per_logit


def test_a_loss_fused_with_the_head_keeps_gradients_and_no_logits(gpt3: ModelShape):
    # of the head's input, 2048 tokens, and of the head, 51200 rows, 12288 wide; a frozen head has none
    plan = Plan(software=Software.PYTORCH, loss=Loss.FUSED, global_batch=1)
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

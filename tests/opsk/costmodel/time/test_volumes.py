"""Bytes of each collective, counted by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.costmodel.estimates.scaling_laws import gpt_parameters
from opsk.costmodel.sizes.shape import build_shape
from opsk.costmodel.sizes.shares import Shares
from opsk.costmodel.time import volumes
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Precision, Recompute, Sharding, States
from tests.fakes.training_runs import gpt, shares_and_stages

MODEL = gpt(layers=4, hidden=1024, heads=16, seq=2048)
STREAM_BYTES = 2048 * 1024 * 2


def _shares(model: ModelShape, **axes: object) -> Shares:
    plan = Plan(**{"global_batch": 64, **axes})  # type: ignore[arg-type]
    return shares_and_stages(model, plan)[0]


@given(st.integers(1, 4096))
def test_a_ring_sends_all_but_one_of_n_parts(ranks: int) -> None:
    assert volumes.ring_share(np.asarray(float(ranks))) == pytest.approx(1 - 1 / ranks)


def test_a_micro_batch_passes_forward_and_backward_and_forward_again_if_recomputed() -> None:
    for recompute, layers, expected in (
        (Recompute.NONE, 0, 2),
        (Recompute.SELECTIVE, 0, 2),
        (Recompute.FULL, 0, 3),
        (Recompute.FULL, 1, 2.25),  # one of four layers
    ):
        assert volumes.passes(_shares(MODEL, recompute=recompute, recompute_layers=layers))[0] == expected


@pytest.mark.parametrize("sequence_parallel", [True, False])
def test_tensor_parallelism_all_reduces_two_arrays_a_layer_and_pass(sequence_parallel: bool) -> None:
    shares = _shares(MODEL, tp=4, micro_batch=2, sequence_parallel=sequence_parallel)
    assert volumes.tensor_parallel_bytes(build_shape(MODEL), shares)[0] == 2 * 2 * STREAM_BYTES


def test_an_encoder_adds_its_own_arrays_and_those_of_cross_attention() -> None:
    # 2 + 1 of the decoder, 2 of each of twice as many encoder layers with half of the tokens
    model = replace(MODEL, encoder_layers=8, encoder_seq=1024)
    assert volumes.tensor_parallel_bytes(build_shape(model), _shares(model, tp=4))[0] == (3 + 2) * STREAM_BYTES


def test_context_parallelism_passes_the_few_keys_of_grouped_queries() -> None:
    # keys and values of 4 heads of 64, all 2,048 tokens, whatever cp: each rank has 1/cp of them
    model = replace(MODEL, kv_heads=4)
    for cp in (2, 8):
        assert volumes.context_parallel_bytes(_shares(model, cp=cp))[0] == 2 * 2048 * 4 * 64 * 2
    # tp splits the heads, and copies them where it exceeds them
    assert volumes.context_parallel_bytes(_shares(model, cp=2, tp=2))[0] == 2 * 2048 * 2 * 64 * 2
    assert volumes.context_parallel_bytes(_shares(model, cp=2, tp=8))[0] == 2 * 2048 * 1 * 64 * 2


def test_a_token_is_sent_to_each_of_its_experts() -> None:
    model = replace(MODEL, experts=8, top_k=2, expert_ffn=512)
    assert volumes.expert_parallel_bytes(build_shape(model), _shares(model, ep=8, dp=8))[0] == 2 * STREAM_BYTES
    # sequence parallelism leaves each rank its part of the tokens
    split = _shares(model, ep=8, dp=8, tp=4, sequence_parallel=True)
    assert volumes.expert_parallel_bytes(build_shape(model), split)[0] == 2 * STREAM_BYTES / 4


@pytest.mark.parametrize(
    ("fields", "load"),
    [({"expert_imbalance": 1.5}, 1.5), ({"capacity_factor": 1.25}, 1.25), ({"capacity_factor": 1.0}, 1)],
)
def test_the_busiest_rank_decides_the_all_to_all(fields: dict[str, float], load: float) -> None:
    # capacity pads what is sent to it, and drops what exceeds it
    model = replace(MODEL, experts=8, top_k=2, expert_ffn=512, **fields)  # type: ignore[arg-type]
    sent = volumes.expert_parallel_bytes(build_shape(model), _shares(model, ep=8, dp=8))[0]
    assert sent == pytest.approx(load * 2 * STREAM_BYTES)


def test_a_message_between_stages_is_the_part_of_a_tensor_parallel_rank() -> None:
    message = volumes.pipeline_bytes(build_shape(MODEL), _shares(MODEL, pp=2, tp=4, micro_batch=2))
    assert message[0] == 2 * STREAM_BYTES / 4


@pytest.mark.parametrize(
    ("sharding", "states", "precision", "expected"),
    [
        (Sharding.NONE, States.MIXED, Precision.BF16, 8),  # fp32 gradients there and back
        (Sharding.NONE, States.MIXED, Precision.FP16, 4),  # fp16 gradients, as they are
        (Sharding.NONE, States.MIXED_16BIT_GRADIENTS, Precision.BF16, 4),
        (Sharding.ZERO1, States.MIXED, Precision.BF16, 6),  # fp32 gradients there, 16-bit weights back
        (Sharding.ZERO2, States.MIXED_16BIT_GRADIENTS, Precision.BF16, 4),
        (Sharding.ZERO3, States.MIXED_16BIT_GRADIENTS, Precision.BF16, 6),  # weights twice, gradients once
        (Sharding.ZERO3, States.AUTOCAST, Precision.BF16, 8),
        (Sharding.ZERO3, States.AUTOCAST, Precision.FP32, 12),
    ],
)
def test_bytes_of_a_parameter_on_the_wire(
    sharding: Sharding, states: States, precision: Precision, expected: float
) -> None:
    shares = _shares(MODEL, dp=8, sharding=sharding, states=states, precision=precision)
    assert volumes.data_parallel_bytes_per_element(shares)[0] == expected


def test_only_zero_3_brings_weights_together_for_every_micro_batch() -> None:
    calls = {
        sharding: volumes.data_parallel_calls(_shares(MODEL, dp=8, sharding=sharding, micro_batch=2))[0]
        for sharding in Sharding
    }
    # 64 sequences: 4 micro-batches of 2 on each of 8
    assert calls == {Sharding.NONE: 1, Sharding.ZERO1: 1, Sharding.ZERO2: 1, Sharding.ZERO3: 4}


def test_a_tied_embedding_is_summed_between_the_ends_of_a_pipeline_only() -> None:
    # 51,200 rows are a multiple of 128 x 4
    shape, whole = build_shape(MODEL), 51200 * 1024 * 4
    assert volumes.tied_embedding_bytes(shape, _shares(MODEL, pp=2))[0] == whole
    assert volumes.tied_embedding_bytes(shape, _shares(MODEL, pp=2, tp=4))[0] == whole / 4
    assert volumes.tied_embedding_bytes(shape, _shares(MODEL))[0] == 0
    untied = build_shape(replace(MODEL, tied_embeddings=False))
    assert volumes.tied_embedding_bytes(untied, _shares(MODEL, pp=2))[0] == 0


# Narayanan et al. 2021, table 1: layers, hidden, heads, pp, dp, batch; all tp 8 (the paper's 146B, 310B, 530B and 1T)
PAPER_MODELS = {
    "146B": (80, 12288, 96, 8, 24, 2304),
    "310B": (96, 16384, 128, 16, 15, 2160),
    "530B": (105, 20480, 128, 35, 9, 2520),
    "1T": (128, 25600, 160, 64, 6, 3072),
}


def _traffic(name: str) -> volumes.AxisTraffic:
    layers, hidden, heads, pp, dp, batch = PAPER_MODELS[name]
    shape = gpt(layers=layers, hidden=hidden, heads=heads)
    shares = _shares(shape, tp=8, pp=pp, dp=dp, micro_batch=1, global_batch=batch, precision=Precision.FP16)
    parameters = gpt_parameters(layers=layers, hidden=hidden, vocab=51200, seq=2048) / (8 * pp)
    return volumes.axis_traffic(build_shape(shape), shares, np.array([parameters]))


def test_what_a_gpu_of_gpt_1t_sends_in_a_step() -> None:
    # by hand: 512 sequences x 2 layers x 4 all-reduces x 2 x 7/8 x 2048 x 25600 x 2 B = 752 GB; 512 x 2 x 13.1 MB;
    # 2 x 5/6 x 1.97e9 gradients of 2 B
    traffic = _traffic("1T")
    assert traffic.tp_bytes[0] == pytest.approx(752e9, rel=0.001)
    assert traffic.pp_bytes[0] == pytest.approx(13.4e9, rel=0.003)
    assert traffic.dp_bytes[0] == pytest.approx(6.56e9, rel=0.001)


@pytest.mark.parametrize("name", PAPER_MODELS)
def test_tensor_parallelism_moves_more_than_three_quarters_of_the_bytes(name: str) -> None:
    # figure 2a says > 75 % of each, without the numbers; rings and four all-reduces a layer give 97.1 to 97.5 %
    traffic = _traffic(name)
    assert 0.9705 <= traffic.tp_bytes[0] / traffic.total_bytes[0] <= 0.9755


@pytest.mark.parametrize("name", PAPER_MODELS)
def test_more_than_99_percent_of_pairs_never_talk(name: str) -> None:
    # figure 2b; a GPU sends to one other for each of TP, PP and DP
    gpus = 8.0 * PAPER_MODELS[name][3] * PAPER_MODELS[name][4]
    assert 1 - volumes.compute_active_pair_share(np.array([gpus]), 3.0)[0] > 0.99


@pytest.mark.parametrize(("name", "share"), [("146B", 0.00065), ("310B", 0.00052), ("530B", 0.00040), ("1T", 0.00033)])
def test_pairs_that_carry_tensor_parallel_traffic(name: str, share: float) -> None:
    # 1/(N - 1) with 1,536, 1,920, 2,520 and 3,072 GPUs; the paper prints < 0.04 % for all four: 530B and 1T hold
    gpus = 8.0 * PAPER_MODELS[name][3] * PAPER_MODELS[name][4]
    assert volumes.compute_active_pair_share(np.array([gpus]))[0] == pytest.approx(share, abs=0.000005)

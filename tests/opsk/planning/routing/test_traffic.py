"""Bytes of one step by axis, against sums done by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opsk.planning.routing.traffic import step_bytes
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Recompute, Sharding

MIB = 1 << 20


def test_tensor_parallel_bytes_are_four_all_reduces_a_layer(model: ModelShape) -> None:
    """s b h = 128 x 1 x 1024 x 2 bytes = 256 KiB; 2 passes x 2 all-reduces, each 2 x 3/4 of it: 1.5 MiB a layer.

    Four layers, two micro-batches: 12 MiB.
    """
    sent = step_bytes(model, Plan(tp=4, global_batch=2))
    assert sent.tp.tolist() == [12 * MIB]
    again = step_bytes(model, Plan(tp=4, global_batch=2, recompute=Recompute.FULL))
    assert again.tp.tolist() == [18 * MIB]


def test_pipeline_messages_are_split_over_tensor_parallel_ranks(model: ModelShape) -> None:
    """256 KiB / 2 a micro-batch, eight of them: 1 MiB forward; with two chunks twice, and one wraps round."""
    plain = step_bytes(model, Plan(tp=2, pp=2, global_batch=8))
    assert (plain.pp_forward, plain.pp_wrap) == (MIB, 0)
    chunks = step_bytes(model, Plan(tp=2, pp=2, vpp=2, global_batch=8))
    assert (chunks.pp_forward, chunks.pp_wrap) == (2 * MIB, MIB)


def test_data_parallel_bytes_are_a_ring_of_fp32_gradients(model: ModelShape) -> None:
    """Parameters of the shape (12 h^2 + 13 h a layer, 2 V h + s 0, final norm 2 h), 2 (n - 1) / n of 4 bytes each.

    12 x 1024^2 + 13 x 1024 = 12,596,224 a layer; x 4 + 2 x 1024 x 1024 + 2048 = 52,484,096; x 4 bytes x 2 x 3/4.
    """
    sent = step_bytes(model, Plan(dp=4, global_batch=4))
    assert sent.dp.tolist() == pytest.approx([52_484_096 * 4 * 2 * 3 / 4])


def test_a_sharded_optimizer_gathers_weights_instead_of_gradients(model: ModelShape) -> None:
    """4 bytes reduce-scattered and 2 gathered instead of 4 and 4: three quarters."""
    whole = step_bytes(model, Plan(dp=4, global_batch=4))
    sharded = step_bytes(model, Plan(dp=4, global_batch=4, sharding=Sharding.ZERO1))
    assert (sharded.dp / whole.dp).tolist() == pytest.approx([0.75])


def test_ring_attention_passes_keys_and_values_round(model: ModelShape) -> None:
    """Keys and values of a layer: 2 x 128 x 1024 x 2 = 512 KiB; each rank sends half in forward, backward, gradients.

    Four layers: 3 MiB.
    """
    assert step_bytes(model, Plan(cp=2, global_batch=1)).cp.tolist() == [3 * MIB]


def test_experts_exchange_tokens_four_times_a_layer(model: ModelShape) -> None:
    """128 tokens x top 2 x 1024 x 2 bytes = 512 KiB; dispatch and combine, twice, 3/4 leaves: 1.5 MiB x four layers."""
    moe = replace(model, experts=4, top_k=2, expert_ffn=4096)
    sent = step_bytes(moe, Plan(dp=4, ep=4, global_batch=4))
    assert sent.ep.tolist() == [6 * MIB]
    assert sent.expert_dp.tolist() == [0]


def test_nothing_is_sent_by_one_gpu(model: ModelShape) -> None:
    sent = step_bytes(model, Plan(global_batch=1))
    assert (sent.tp.sum(), sent.cp.sum(), sent.ep.sum(), sent.dp.sum(), sent.pp_forward) == (0, 0, 0, 0, 0)


def test_a_tied_embedding_is_exchanged_between_the_ends(model: ModelShape) -> None:
    """1024 rows x 1024 x 4 bytes of gradient, 2 (n - 1) / n = 1 of it with two holders."""
    tied = replace(model, tied_embeddings=True)
    assert step_bytes(tied, Plan(pp=2, global_batch=4)).embedding == 4 * MIB
    assert step_bytes(model, Plan(pp=2, global_batch=4)).embedding == 0

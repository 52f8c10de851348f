from __future__ import annotations

import numpy as np

from opsk.costmodel.memory.buffers import communicators, gather_bytes, logits_bytes
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Sharding
from tests.fakes.training_runs import gpt, parts


def test_one_communicator_an_axis_and_one_for_the_world(gpt3: ModelShape):
    shares, _, _ = parts(gpt3, Plan(global_batch=8), Plan(tp=8, global_batch=8), Plan(tp=2, pp=2, dp=2, global_batch=8))
    np.testing.assert_array_equal(communicators(shares), [0, 2, 4])


def test_logits_lie_on_the_last_stage_only(gpt3: ModelShape):
    shares, stages, _ = parts(gpt3, Plan(tp=8, pp=4, global_batch=8))
    # 2048 tokens x 51200 / 8 rows x (2 + 4) bytes
    assert logits_bytes(shares, stages)[:, 0].tolist() == [0, 0, 2048 * 6400 * 6]


def test_only_sharded_states_need_gather_buffers():
    model = gpt(layers=24, hidden=2048, heads=16)
    shares, _, counted = parts(model, *(Plan(dp=8, sharding=stage, global_batch=8) for stage in Sharding))
    none, zero1, zero2, zero3 = gather_bytes(shares, counted)[0]
    layer = counted.layer[0]
    assert none == zero1 == 0
    assert zero2 == 4 * layer
    # two gathered 16-bit layers, the unit with the embedding, and one layer's fp32 gradients
    assert zero3 == 2 * (2 * layer + counted.ends[0, 0]) + 4 * layer

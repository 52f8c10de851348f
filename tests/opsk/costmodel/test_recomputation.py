from __future__ import annotations

from dataclasses import replace

import pytest

from opsk.costmodel.predict import predict_one
from opsk.hardware.catalog import cluster
from opsk.workload.plan import Plan, Recompute, Sharding
from tests.opsk.costmodel.memory.test_modules import DEEPSEEK, LLAMA

MACHINE = cluster("superpod-h100")
PLAN = Plan(tp=4, pp=4, dp=4, global_batch=64, sharding=Sharding.ZERO1, recompute=Recompute.SELECTIVE)
WIDE = replace(PLAN, tp=1, pp=8, ep=64, dp=64, global_batch=512)


def repeated(model, plan: Plan) -> float:
    return float(predict_one(model, plan, MACHINE).time.components["recompute"])


def test_modules_cost_between_nothing_and_the_whole_forward():
    none, full = (repeated(LLAMA, replace(PLAN, recompute=mode)) for mode in (Recompute.NONE, Recompute.FULL))
    norm, mlp = (repeated(LLAMA, replace(PLAN, recompute_modules=name)) for name in ("layernorm", "mlp"))
    assert none == norm == 0 < mlp < full


def test_the_core_is_repeated_where_it_is_named_or_nothing_is():
    assert repeated(LLAMA, replace(PLAN, recompute_modules="core_attn")) == pytest.approx(repeated(LLAMA, PLAN))


def test_modules_add_up():
    each = [repeated(DEEPSEEK, replace(WIDE, recompute_modules=name)) for name in ("mla_up_proj", "mlp", "moe_act")]
    together = repeated(DEEPSEEK, replace(WIDE, recompute_modules="mla_up_proj mlp moe_act"))
    assert together == pytest.approx(sum(each), rel=1e-9)
    assert all(part > 0 for part in each)


def test_repeating_experts_sends_their_tokens_again():
    # dispatch and combine of a third pass: half as much again as forward and backward
    once, again = (
        predict_one(DEEPSEEK, replace(WIDE, recompute_modules=name), MACHINE).time.communication["ep"]
        for name in ("moe_act", "moe")
    )
    assert float(again) == pytest.approx(1.5 * float(once))


def test_hardware_flop_count_the_products_that_are_repeated():
    plain, mlp = (
        predict_one(LLAMA, replace(PLAN, recompute_modules=name), MACHINE).time.hardware_flop
        for name in ("layernorm", "mlp")
    )
    tokens = 64 * LLAMA.seq
    assert float(mlp) - float(plain) == pytest.approx(tokens * 80 * 6 * 8192 * 28672)

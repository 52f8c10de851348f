"""Bytes by hand: 1e9 parameters on 8 ranks that share the optimizer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opsk.costmodel.memory.states import state_bytes
from opsk.costmodel.table import PlanTable
from opsk.workload.model import ModelShape
from opsk.workload.plan import Offload, Plan, Precision, Sharding, StateFormat, States
from tests.fakes.training_runs import gpt, parts

PLAN = Plan(dp=8, global_batch=8, sharding=Sharding.ZERO1)
MODEL = gpt(layers=12, hidden=1024, heads=16)
BF16 = StateFormat.BF16


def bytes_a_parameter(plan: Plan, model: ModelShape = MODEL) -> dict[str, float]:
    shares, _, parameters = parts(model, plan)
    states = state_bytes(PlanTable.of([plan]), shares, parameters)
    count = float((parameters.dense + parameters.experts)[0, 0])
    return {name: float(getattr(states, name)[0, 0]) / count for name in ("weights", "gradients", "optimizer", "step")}


def test_a_plan_that_names_no_formats_has_those_of_its_states():
    assert bytes_a_parameter(PLAN) == pytest.approx({"weights": 2, "gradients": 4, "optimizer": 12 / 8, "step": 0})


def test_megatrons_precision_aware_optimizer_with_16_bit_moments():
    # fp32 gradients, 2 bytes that a bf16 weight lacks of an fp32 one, two moments of 2
    plan = replace(PLAN, master_format=BF16, moment_format=BF16)
    assert bytes_a_parameter(plan)["optimizer"] == pytest.approx((2 + 2 + 2) / 8)


def test_both_moments_may_differ():
    plan = replace(PLAN, moment_format=StateFormat.FP8, second_moment_format=BF16)
    assert bytes_a_parameter(plan)["optimizer"] == pytest.approx((4 + 1 + 2) / 8)
    assert bytes_a_parameter(replace(PLAN, second_moment_format=BF16))["optimizer"] == pytest.approx((4 + 4 + 2) / 8)


def test_16_bit_gradients_are_copied_to_fp32_for_fp32_masters_only():
    copied = bytes_a_parameter(replace(PLAN, gradient_format=BF16))
    assert (copied["gradients"], copied["step"]) == pytest.approx((2, 4 / 8))
    read = bytes_a_parameter(replace(PLAN, gradient_format=BF16, master_format=BF16))
    assert (read["gradients"], read["step"]) == pytest.approx((2, 0))


def test_a_format_beats_that_of_the_states():
    plan = replace(PLAN, states=States.MIXED_16BIT_GRADIENTS, gradient_format=StateFormat.FP32)
    assert bytes_a_parameter(plan)["gradients"] == pytest.approx(4)


def test_a_share_of_the_optimizer_stays_on_the_gpu():
    plan = replace(PLAN, offload=Offload.OPTIMIZER, offload_fraction=0.75)
    assert bytes_a_parameter(plan)["optimizer"] == pytest.approx(0.25 * 12 / 8)


def test_fp8_weights_take_the_place_of_16_bit_ones_where_they_are_gathered_in_fp8():
    plan = replace(PLAN, precision=Precision.FP8_CURRENT)
    model = replace(MODEL, vocab=128, position_rows=1, learned_positions=False)
    assert bytes_a_parameter(plan, model)["weights"] == pytest.approx(2, rel=1e-3)
    assert bytes_a_parameter(replace(plan, fp8_weights=False), model)["weights"] == pytest.approx(4, rel=0.01)

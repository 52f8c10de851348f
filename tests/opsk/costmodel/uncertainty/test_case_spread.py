"""Which assumed fields and which missing measurements widen which range, and what a site's offset takes away."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opsk.costmodel.efficiency.cases import Case, SoftwareOffset
from opsk.costmodel.efficiency.efficiency import Efficiency, Spread
from opsk.costmodel.uncertainty.case_spread import (
    apply_case_spread,
    assumed_inputs,
    find_plan_log_sigma,
    narrow_log_sigma,
    widen_spread,
)

SPREAD = Spread(
    time_log_sigma=0.1,
    time_assumed_log_sigma=0.3,
    memory_log_sigma=0.05,
    memory_assumed_log_sigma=0.2,
    time_new_gpu_log_sigma=0.2,
    time_new_kind_log_sigma=0.05,
)
KNOWN = Case(architecture="hopper", software="megatron-core", kind="dense", precision="16-bit")
MEASURED = Efficiency(spread=SPREAD, fitted=frozenset({KNOWN}))


def test_what_is_stated_keeps_its_spread() -> None:
    assert widen_spread(SPREAD, time_inputs=0, memory_inputs=0) == SPREAD


def test_three_assumed_inputs_are_the_spread_of_rows_with_assumed_inputs() -> None:
    found = widen_spread(SPREAD, time_inputs=3, memory_inputs=3)
    assert (found.time_log_sigma, found.memory_log_sigma) == (pytest.approx(0.3), pytest.approx(0.2))


def test_half_of_what_is_added_comes_with_the_first() -> None:
    # shares of the added variance 0.3^2 - 0.1^2 = 0.08: 2/3 with one input, 5/6 with two
    for inputs, share in ((1, 2 / 3), (2, 5 / 6)):
        found = widen_spread(SPREAD, time_inputs=inputs, memory_inputs=0)
        assert found.time_log_sigma == pytest.approx((0.01 + share * 0.08) ** 0.5)
        assert found.memory_log_sigma == pytest.approx(0.05)


def test_only_inputs_that_decide_are_counted() -> None:
    fields = ["plan.recompute", "plan.vpp", "plan.states", "cluster.nic_gbps", "model.vocab"]
    # time: recompute and the NICs; memory: recompute and the vocabulary
    assert assumed_inputs(fields) == (2, 2)
    assert assumed_inputs(["plan.recompute", "plan.recompute"]) == (1, 1)


def test_each_aspect_without_a_near_run_adds_its_variance() -> None:
    elsewhere = replace(KNOWN, architecture="cdna3", kind="moe")
    found = apply_case_spread(MEASURED, [], elsewhere).spread
    # 0.1^2 + 0.2^2 of the new GPU + 0.05^2 of the new kind; where memory was measured nobody says, so nothing is new
    assert found.time_log_sigma == pytest.approx((0.01 + 0.04 + 0.0025) ** 0.5)
    assert found.memory_log_sigma == 0.05


def test_assumed_fields_widen_the_efficiencies_own_spread() -> None:
    found = apply_case_spread(MEASURED, ["plan.recompute", "plan.tp", "plan.pp"], KNOWN)
    assert found.spread.time_log_sigma == pytest.approx(0.3)
    assert found.gpu == MEASURED.gpu
    assert apply_case_spread(MEASURED, [], KNOWN) == MEASURED


def test_what_a_site_knows_of_itself_narrows_its_ranges() -> None:
    spread = replace(SPREAD, time_log_sigma=0.25, time_offset_log_sigma=0.15)
    site = replace(MEASURED, spread=spread, offset={"megatron-core": SoftwareOffset(time_log=0.1, time_log_sigma=0.05)})
    # 0.25^2 - (0.15^2 - 0.05^2)
    assert apply_case_spread(site, [], KNOWN).spread.time_log_sigma == pytest.approx((0.0625 - 0.02) ** 0.5)
    other = replace(KNOWN, software="pytorch")
    assert apply_case_spread(site, [], other).spread.time_log_sigma > 0.25


def test_a_known_offset_leaves_what_differs_between_runs() -> None:
    assert narrow_log_sigma(0.1, 0.2, 0.01) == pytest.approx(0.07)  # seven tenths stay
    assert narrow_log_sigma(0.1, 0.2, 0.3) == 0.1  # what is known worse narrows nothing


def test_what_a_site_s_runs_have_in_common_cancels_between_plans() -> None:
    assert find_plan_log_sigma(Spread(time_log_sigma=0.25, time_offset_log_sigma=0.2)) == pytest.approx(0.15)
    assert find_plan_log_sigma(Spread(time_log_sigma=0.1, time_offset_log_sigma=0.2)) == 0.0

"""Rows of networks: parts, money, each model's own best plan, and the sentences that follow."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opsk.hardware.spec import NodeSpec
from opsk.network_design.plans import BestPlans, ModelRequest
from opsk.network_design.point import Point, Wiring
from opsk.network_design.rows import (
    Setting,
    _format_savings,
    build_row,
    find_reference,
    sentences,
    smallest_saving_domain,
)
from opsk.network_design.techniques import Technique
from opsk.workload.plan import Plan
from opsk.workload.public_models.lookup import public_models


@pytest.fixture
def setting(dgx: NodeSpec) -> Setting:
    asked = ModelRequest(model=public_models()["llama-2-13b"].shape, template=Plan(global_batch=1), fixed={"cp": (1,)})
    return Setting(node=dgx, template=Plan(global_batch=1), model_requests=[asked], plans=BestPlans())


def test_dense_models_are_as_fast_without_spines(setting: Setting, point: Point):
    rail_optimized, rail_only = (
        build_row(setting, replace(point, wiring=wiring)) for wiring in (Wiring.RAIL_OPTIMIZED, Wiring.RAIL_ONLY)
    )
    assert rail_only.steps[0].step_s == rail_optimized.steps[0].step_s


def test_oversubscription_and_fewer_nics_are_never_faster(setting: Setting, point: Point):
    tree = replace(point, wiring=Wiring.FAT_TREE)
    times = [
        build_row(setting, replace(tree, oversubscription=ratio)).steps[0].step_s or 0 for ratio in (1.0, 2.0, 8.0)
    ]
    assert times == sorted(times)
    times = [build_row(setting, replace(point, nics=nics)).steps[0].step_s or 0 for nics in (8, 4, 1)]
    assert times == sorted(times)


@pytest.mark.parametrize(
    "technique",
    [Technique.SHARP, Technique.OPTCAST, Technique.SMARTNIC, Technique.OPTICAL, Technique.JUPITER, Technique.TACCL],
)
def test_no_option_beside_circuits_alone_makes_a_step_longer(setting: Setting, point: Point, technique: Technique):
    narrow = replace(point, nics=1)
    plain, with_it = build_row(setting, narrow).steps[0], build_row(setting, narrow, technique).steps[0]
    assert plain.step_s is not None
    assert with_it.step_s is not None
    assert with_it.step_s <= plain.step_s * (1 + 1e-9)


def test_a_model_that_does_not_fit_says_why(setting: Setting, point: Point):
    asked = ModelRequest(model=public_models()["gpt-1t"].shape, template=Plan(global_batch=1))
    step = build_row(replace(setting, model_requests=[asked]), replace(point, gpus=8, global_batch=8)).steps[0]
    assert step.step_s is None
    assert "memory" in step.why


def test_a_batch_that_no_plan_can_cut_says_so(setting: Setting, point: Point):
    step = build_row(setting, replace(point, gpus=4096 * 8, global_batch=1)).steps[0]
    assert step.step_s is None
    assert "no plan is legal" in step.why


def test_prices_follow_the_rate_unless_they_are_own(setting: Setting, point: Point):
    fast, slow = build_row(setting, point), build_row(setting, replace(point, nic_bytes_per_s=25e9))
    assert slow.bill.cost_usd == pytest.approx(fast.bill.cost_usd / 2)
    own = build_row(replace(setting, prices_are_own=True), replace(point, nic_bytes_per_s=25e9))
    assert own.bill.cost_usd == fast.bill.cost_usd


def test_rows_are_compared_with_the_rail_optimised_network_of_their_sizes(setting: Setting, point: Point):
    rows = [
        build_row(replace(setting, model_requests=[]), replace(point, wiring=wiring, nics=nics), sweep={"nics": nics})
        for nics in (4, 8)
        for wiring in (Wiring.RAIL_ONLY, Wiring.RAIL_OPTIMIZED)
    ]
    assert [rows.index(other) for row in rows if (other := find_reference(rows, row))] == [1, 1, 3, 3]


def test_sentences_tell_which_domain_would_save(setting: Setting, point: Point):
    bare = replace(setting, model_requests=[])
    rows = [build_row(bare, replace(point, wiring=wiring)) for wiring in (Wiring.RAIL_OPTIMIZED, Wiring.RAIL_ONLY)]
    # 512 NICs on 64 ports: two tiers; rails of 64 are one switch each
    assert rows[1].parts.tiers == 1
    assert any("rail-only saves 62% of the cost" in line for line in sentences(rows))
    # 1,024 on 64 ports with 8 rails of 128: two tiers either way; 16 rails of 64 are enough
    assert smallest_saving_domain(replace(point, gpus=1024)) == 16


@pytest.mark.parametrize(
    ("cost", "power", "words"),
    [
        (0.62, 0.5, "rail-only saves 62% of the cost and 50.0% of the power of"),
        (-0.2, -0.01, "rail-only costs 20% more and draws 1.0% more power than"),
        (0.2, -0.01, "rail-only costs 20% less and draws 1.0% more power than"),
        (-0.2, 0.01, "rail-only costs 20% more and draws 1.0% less power than"),
    ],
)
def test_what_is_more_expensive_is_not_called_a_saving(cost: float, power: float, words: str):
    assert _format_savings(cost, power) == words

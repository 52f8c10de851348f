"""Figures 8 to 10 of the rail-only paper and the NICs of TITAN: signs and trends, on the best plan of each point."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from opsk.cli.design.inputs import parse_fixed_axes
from opsk.hardware.catalog import cluster, node
from opsk.network_design.paper_steps import (
    FigurePoint,
    compute_nic_steps,
    compute_points,
    figure_quantities,
    list_points,
    nic_quantities,
)
from opsk.network_design.papers import compare_statements, load_paper
from opsk.network_design.plans import BestPlans, ModelRequest
from opsk.workload.plan import Plan, Precision, Recompute, Schedule, Sharding, Software
from opsk.workload.public_models.lookup import public_models

PAPER = load_paper("rail-only")
MODELS = ("gpt-1t", "gpt-146b")
# tensor, pipeline and data parallelism, as the paper searches
SPACE: dict[str, tuple[Any, ...]] = {
    "cp": (1,), "sharding": (Sharding.NONE, Sharding.ZERO1), "shard_gpus": (0,), "schedule": (Schedule.ONE_F_ONE_B,),
    "first_stage_layers": (0,), "last_stage_layers": (0,),
}  # fmt: skip
TEMPLATE = Plan(global_batch=1, software=Software.PYTORCH)


def requests() -> dict[str, ModelRequest]:
    return {
        name: ModelRequest(model=public_models()[name].shape, template=TEMPLATE, fixed=SPACE) for name in MODELS
    }  # fmt: skip


FEWER = {"gpus": [32_768], "hb_gbit": [2400, 9600], "nic_gbit": [100, 400], "global_batch": [256, 4096]}


@pytest.fixture(scope="module")
def paper() -> dict[str, Any]:
    """The paper with the ends of each figure: one number of GPUs, two rates, two batches."""
    figures = [
        figure | {"vary": {key: FEWER.get(key, values) for key, values in figure["vary"].items()}}
        for figure in PAPER["figures"]
    ]
    return PAPER | {"figures": figures}


@pytest.fixture(scope="module")
def points(paper: dict[str, Any]) -> tuple[FigurePoint, ...]:
    return tuple(compute_points(paper, BestPlans(), node("dgx-h100"), requests(), iter))


def test_the_figures_have_all_points_of_the_paper():
    # 2 models x 3 sizes x (9 domains and the ideal), 2 domains x 4 x 4 rates, 5 batches x 3 domains; figures 8 and 10
    # again with a short bubble: 3 sizes x (2 + 4) domains, 2 batches x 3 domains
    assert len(list_points(PAPER)) == 60 + 32 + 15 + 18 + 6


def test_every_point_is_computed(paper: dict[str, Any], points: tuple[FigurePoint, ...]):
    assert len(points) == len(list_points(paper))
    assert all(point.step_s > 0 for point in points)


def test_the_signs_of_all_figures_are_the_papers(points: tuple[FigurePoint, ...]):
    found = compare_statements(PAPER, figure_quantities(points))
    assert len([entry for entry in found if entry.section.startswith("figure")]) == 18 + 8
    lost = [entry.what for entry in found if entry.by == "sign" and not entry.agrees]
    assert lost == ["gpt-1t, K = 256: larger batches come nearer to all-NVLink, by"]  # K = 8 agrees


def test_a_mean_is_over_the_other_values_of_a_figure(points: tuple[FigurePoint, ...]):
    found = {entry.what: entry for entry in compare_statements(PAPER, figure_quantities(points))}
    steps = {(p.gpus, p.hb_domain): p.step_s for p in points if (p.figure, p.model) == ("8", "gpt-146b")}
    assert found["gpt-146b: K = 8 below K = 1"].computed == pytest.approx(1 - steps[32_768, 8] / steps[32_768, 1])
    assert found["gpt-1t, K = 8: HB 2.4 to 9.6 Tbit/s shortens the step by"].why.count("%") == 2  # two NIC rates


def test_a_bubble_that_few_micro_batches_do_not_lengthen_brings_figures_8_and_10_near(points: tuple[FigurePoint, ...]):
    short = [entry for entry in compare_statements(PAPER, figure_quantities(points)) if "short bubble" in entry.section]
    assert len(short) == 8
    # all within 6 points of what the paper prints; with opsk's own bubble K = 8 at batch 256 is 20 points off
    assert all(entry.agrees for entry in short)
    own = {(p.global_batch, p.hb_domain): p.step_s for p in points if p.figure == "10"}
    assert own[256, 32_768] / own[256, 8] > 0.80
    for point in points:
        if point.figure == "10, short bubble":  # chosen by speed and chance to fit
            assert point.step_s <= own[point.global_batch, point.hb_domain] * 1.05


def test_only_tensor_pipeline_and_data_parallelism_are_searched(points: tuple[FigurePoint, ...]):
    plans = [point.plan for point in points]
    assert {plan.cp for plan in plans} == {1}
    assert {plan.sharding for plan in plans} <= {Sharding.NONE, Sharding.ZERO1}


def test_a_larger_domain_never_makes_a_step_longer(points: tuple[FigurePoint, ...]):
    for model in MODELS:
        line = [p.step_s for p in points if (p.figure, p.model, p.gpus) == ("8", model, 32_768)]
        assert line == sorted(line, reverse=True)


def test_a_point_is_no_faster_than_the_same_with_all_gpus_on_nvlink(points: tuple[FigurePoint, ...]):
    line = [p for p in points if (p.figure, p.model, p.gpus) == ("8", "gpt-146b", 32_768)]
    assert line[-1].is_ideal
    assert all(point.step_s > line[-1].step_s for point in line[:4])


def test_fewer_nics_are_slower_in_the_order_that_titan_measured():
    paper = load_paper("titan")
    model = replace(public_models()["gpt3-175b"].shape, flash_attention=False)
    recipe = Plan(
        tp=8, pp=16, dp=8, sequence_parallel=True, recompute=Recompute.FULL, precision=Precision.FP16,
        software=Software.MEGATRON, global_batch=1536,
    )  # fmt: skip
    recipes = {"recipe": recipe, "few_stages": replace(recipe, pp=2, vpp=2, dp=64, sharding=Sharding.ZERO1)}
    fixed = parse_fixed_axes(paper["job"]["fix"])
    steps = list(compute_nic_steps(paper["job"]["nics"], recipes, BestPlans(), model, cluster("titan"), fixed=fixed))
    assert [step.nics for step in steps] == [8, 4, 2, 1]
    for name in ("recipe", "few_stages", "best"):
        times = [step.step_s[name] for step in steps]
        assert times == sorted(times)
    assert all(step.step_s["best"] < step.step_s["recipe"] for step in steps)
    # halving eight NICs is nearly free, measured (0.9 %) and computed
    assert steps[1].step_s["recipe"] / steps[0].step_s["recipe"] - 1 < 0.02
    found = {entry.what: entry for entry in compare_statements(paper, nic_quantities(steps))}
    assert len(found) == 14
    differ = [what for what, entry in found.items() if entry.agrees is False]
    # the talk states no plan: with the recipe of 16 stages digits are not reached, with two stages they nearly are
    assert any(what.startswith("1 NIC ") and "recipe" in what for what in differ)
    assert not [what for what in differ if "two pipeline stages" in what]

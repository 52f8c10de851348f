"""Figures 8 to 10 of the rail-only paper and the NICs of TITAN: signs and trends, on the best plan of each point."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

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


@pytest.fixture(scope="module")
def points() -> tuple[FigurePoint, ...]:
    return tuple(compute_points(PAPER, BestPlans(), node("dgx-h100"), requests(), iter))


def test_every_point_of_the_figures_is_computed(points: tuple[FigurePoint, ...]):
    # 2 models x 3 sizes x (9 domains and the ideal), 2 domains x 4 x 4 rates, 5 batches x 3 domains
    assert len(points) == len(list_points(PAPER)) == 60 + 32 + 15
    assert all(point.step_s > 0 for point in points)


def test_the_signs_of_all_figures_are_the_papers(points: tuple[FigurePoint, ...]):
    found = compare_statements(PAPER, figure_quantities(points))
    assert len([entry for entry in found if entry.section.startswith("figure")]) == 18
    lost = [entry.what for entry in found if entry.by == "sign" and not entry.agrees]
    assert lost == ["gpt-1t, K = 256: larger batches come nearer to all-NVLink, by"]  # K = 8 agrees


def test_a_mean_is_over_the_other_values_of_a_figure(points: tuple[FigurePoint, ...]):
    found = {entry.what: entry for entry in compare_statements(PAPER, figure_quantities(points))}
    steps = {(p.gpus, p.hb_domain): p.step_s for p in points if (p.figure, p.model) == ("8", "gpt-146b")}
    savings = [1 - steps[gpus, 8] / steps[gpus, 1] for gpus in (16_384, 32_768, 65_536)]
    assert found["gpt-146b: K = 8 below K = 1"].computed == pytest.approx(sum(savings) / 3)


def test_only_tensor_pipeline_and_data_parallelism_are_searched(points: tuple[FigurePoint, ...]):
    plans = [point.plan for point in points]
    assert {plan.cp for plan in plans} == {1}
    assert {plan.sharding for plan in plans} <= {Sharding.NONE, Sharding.ZERO1}


def test_a_larger_domain_never_makes_a_step_longer(points: tuple[FigurePoint, ...]):
    for model in MODELS:
        line = [p.step_s for p in points if (p.figure, p.model, p.gpus) == ("8", model, 32_768)]
        assert line == sorted(line, reverse=True)


def test_a_point_is_no_faster_than_the_same_with_all_gpus_on_nvlink(points: tuple[FigurePoint, ...]):
    line = [p for p in points if (p.figure, p.model, p.gpus) == ("8", "gpt-146b", 16_384)]
    assert line[-1].is_ideal
    assert all(point.step_s > line[-1].step_s for point in line[:4])


def test_fewer_nics_are_slower_in_the_order_that_titan_measured():
    paper = load_paper("titan")
    model = replace(public_models()["gpt3-175b"].shape, flash_attention=False)
    recipe = Plan(
        tp=8, pp=16, dp=8, sequence_parallel=True, recompute=Recompute.FULL, precision=Precision.FP16,
        software=Software.MEGATRON, global_batch=1536,
    )  # fmt: skip
    steps = list(compute_nic_steps(paper["job"]["nics"], recipe, BestPlans(), model, cluster("titan")))
    assert [step.nics for step in steps] == [8, 4, 2, 1]
    for times in ([step.recipe_s for step in steps], [step.best_s for step in steps]):
        assert times == sorted(times)
    assert all(step.best_s < step.recipe_s for step in steps)
    # halving eight NICs is nearly free, measured (0.9 %) and computed
    assert steps[1].recipe_s / steps[0].recipe_s - 1 < 0.02
    found = {entry.what: entry for entry in compare_statements(paper, nic_quantities(steps))}
    assert len(found) == 10
    differ = [what for what, entry in found.items() if entry.agrees is False]
    assert any(what.startswith("1 NIC ") for what in differ)  # the talk states no plan: digits are not reached

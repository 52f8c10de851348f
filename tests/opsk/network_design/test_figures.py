"""Figures 8 to 10 of the rail-only paper: signs and trends, on the best plan of each point."""

from __future__ import annotations

import pytest

from opsk.hardware.catalog import node
from opsk.network_design.figures import (
    MODELS,
    SPACE,
    TEMPLATE,
    FigurePoint,
    compare_figures,
    compute_points,
    find_best_plan,
    list_points,
)
from opsk.network_design.plans import BestPlans, ModelRequest
from opsk.workload.plan import Sharding
from opsk.workload.public_models.lookup import public_models


@pytest.fixture(scope="module")
def points() -> tuple[FigurePoint, ...]:
    asked = {
        name: ModelRequest(model=public_models()[name].shape, template=TEMPLATE, fixed=SPACE) for name in MODELS
    }  # fmt: skip
    return tuple(compute_points(BestPlans(), node("dgx-h100"), asked, iter))


def test_every_point_of_the_figures_is_drawn(points: tuple[FigurePoint, ...]):
    # 2 models x 3 sizes x (9 domains and the ideal), 2 domains x 4 x 4 rates, 5 batches x 3 domains
    assert len(points) == len(list_points()) == 60 + 32 + 15
    assert all(point.step_s > 0 for point in points)


def test_the_signs_of_all_figures_are_the_papers(points: tuple[FigurePoint, ...]):
    found = compare_figures(points)
    lost = [entry.what for entry in found if entry.by == "sign" and not entry.agrees]
    assert lost == ["gpt-1t, K = 256: larger batches come nearer to all-NVLink, by"]  # K = 8 agrees


def test_only_tensor_pipeline_and_data_parallelism_are_searched(points: tuple[FigurePoint, ...]):
    plans = [point.plan for point in points]
    assert {plan.cp for plan in plans} == {1}
    assert {plan.sharding for plan in plans} <= {Sharding.NONE, Sharding.ZERO1}


def test_a_larger_domain_never_makes_a_step_longer(points: tuple[FigurePoint, ...]):
    for model in MODELS:
        line = [p.step_s for p in points if (p.figure, p.model, p.gpus) == ("8", model, 32_768)]
        assert line == sorted(line, reverse=True)


def test_a_point_is_no_faster_than_the_same_with_all_gpus_on_nvlink():
    asked = ModelRequest(model=public_models()["gpt-146b"].shape, template=TEMPLATE, fixed=SPACE)
    eight = [w for w in list_points() if w.figure == "8" and w.model == "gpt-146b" and w.gpus == 16_384]
    plans = BestPlans()
    few, everything = (find_best_plan(plans, node("dgx-h100"), asked, w).step_s for w in (eight[3], eight[-1]))
    assert few > everything

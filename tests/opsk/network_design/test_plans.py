"""Best plans of networks: kept where no plan notices a difference, and what is said where there is none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opsk.errors import InputError
from opsk.hardware.spec import NodeSpec
from opsk.network_design.plans import BestPlans, ModelRequest
from opsk.network_design.point import Point, Wiring, build_cluster
from opsk.planning.search.request import PlanRequest
from opsk.planning.search.search import best_plans
from opsk.workload.plan import Plan, Sharding
from opsk.workload.public_models.lookup import public_models


@pytest.fixture
def asked() -> ModelRequest:
    return ModelRequest(model=public_models()["llama-3-8b"].shape, template=Plan(global_batch=1), fixed={"cp": (1,)})


SIZES = {"gpus": 64, "global_batch": 64}


def test_it_is_the_plan_that_the_search_finds(asked: ModelRequest, point: Point, dgx: NodeSpec):
    cluster = build_cluster(replace(point, gpus=64), dgx)
    chosen = BestPlans().best(asked, cluster, **SIZES)
    found = best_plans(
        PlanRequest(model=asked.model, cluster=cluster, template=asked.template, fixed=asked.fixed, **SIZES)
    )
    assert chosen.step_s == found.best_fitting[0].step_s
    assert chosen.space == found.space
    assert sum(chosen.components.values()) == pytest.approx(chosen.step_s)


def test_networks_that_no_plan_notices_are_searched_once(asked: ModelRequest, point: Point, dgx: NodeSpec):
    plans, small = BestPlans(), replace(point, gpus=64)
    kinds = [Wiring.RAIL_OPTIMIZED, Wiring.FAT_TREE, Wiring.RAIL_ONLY]
    found = [plans.best(asked, build_cluster(replace(small, wiring=kind), dgx), **SIZES) for kind in kinds]
    assert found[0] is found[1] is found[2]
    fewer = plans.best(asked, build_cluster(replace(small, nics=1), dgx), **SIZES)
    assert fewer is not found[0]


def test_experts_notice_that_there_are_no_spines(point: Point, dgx: NodeSpec):
    sparse = ModelRequest(
        model=public_models()["mixtral-8x7b"].shape,
        template=Plan(global_batch=1, overlap=False),
        fixed={"ep": (8,), "tp": (4,), "pp": (1,), "cp": (1,), "etp": (4,)},
    )
    plans, small = BestPlans(), replace(point, gpus=64)
    direct, forwarded = (
        plans.best(sparse, build_cluster(replace(small, wiring=kind), dgx), **SIZES).step_s
        for kind in (Wiring.RAIL_OPTIMIZED, Wiring.RAIL_ONLY)
    )
    # 8 expert ranks of 4 GPUs each are 4 domains of 8: their all-to-all is forwarded over NVLink
    assert direct < forwarded < direct * 1.2


def test_runners_up_fit_as_surely_as_the_best(asked: ModelRequest, point: Point, dgx: NodeSpec):
    plans, cluster = BestPlans(), build_cluster(replace(point, gpus=64), dgx)
    chosen = plans.best(asked, cluster, **SIZES)
    assert chosen.runners_up
    assert chosen.fit_probability >= 0.95
    whole = plans.search_unsharded(asked, cluster, **SIZES)
    assert {plan.sharding for plan in whole} == {Sharding.NONE}


def test_an_empty_space_names_the_nearest_that_is_not(asked: ModelRequest, point: Point, dgx: NodeSpec):
    odd = replace(asked, fixed={"tp": (3,)})
    with pytest.raises(InputError, match="tp 3") as error:
        BestPlans().best(odd, build_cluster(replace(point, gpus=64), dgx), **SIZES)
    assert "tp 2 or 4" in error.value.hint

"""Does the prediction that losses are told against agree with the cost model, and do its other plans make sense?"""

from __future__ import annotations

from dataclasses import replace

import pytest

from opsk.diagnosis.losses.observation import GpuActivity
from opsk.diagnosis.losses.predicted import assign_stages, list_inter_node_axes, predict_plan, read_recorded_prediction
from opsk.hardware import catalog
from opsk.workload.advice_record import AdviceRecord, Verdict
from opsk.workload.plan import Plan, Recompute
from tests.fakes.losing_jobs import kinds

CLUSTER = catalog.cluster("superpod-h100")


@pytest.mark.parametrize("name", sorted(kinds()))
def test_it_is_the_cost_models_own(name: str) -> None:
    kind = kinds()[name]
    low, expected, high, parts, _, mfu = kind.time()
    found = predict_plan(kind.model, kind.plan, CLUSTER)
    assert (found.low_s, found.step_s, found.high_s) == pytest.approx((low, expected, high))
    assert found.components == pytest.approx(parts)
    assert sum(found.components.values()) == pytest.approx(found.step_s)
    assert found.mfu == pytest.approx(mfu)


def test_less_recomputation_is_told_apart_from_other_plans() -> None:
    kind = kinds()["recomputing"]
    found = predict_plan(kind.model, kind.plan, CLUSTER)
    leaner = [other for other in found.others if other.only_recomputes_less]
    assert {other.what for other in leaner} == {"recompute full → none", "recompute full → selective"}
    assert all(other.step_s < found.step_s for other in leaner)
    none = predict_plan(kind.model, replace(kind.plan, recompute=Recompute.NONE), CLUSTER)
    assert not any(other.only_recomputes_less for other in none.others)


def test_axes_that_fit_into_a_node_never_cross_the_network() -> None:
    inside = Plan(tp=8, pp=2, dp=4, global_batch=64)
    assert set(list_inter_node_axes(inside, CLUSTER)) == {"dp", "pp"}
    assert list_inter_node_axes(Plan(tp=2, dp=4, global_batch=64), CLUSTER) == ()


def test_ranks_follow_nodes_and_stages_are_outermost() -> None:
    gpus = [GpuActivity(node=f"n{node}", index=gpu) for node in (1, 0) for gpu in (1, 0)]
    plan = Plan(pp=2, dp=2, global_batch=8)
    assert [(gpu.node, gpu.index, gpu.rank, gpu.equals) for gpu in assign_stages(gpus, plan)] == [
        ("n0", 0, 0, 0), ("n0", 1, 1, 0), ("n1", 0, 2, 1), ("n1", 1, 3, 1),
    ]  # fmt: skip
    assert {gpu.equals for gpu in assign_stages(gpus[:3], plan)} == {0}


def test_a_record_in_slurm_gives_time_and_mfu_with_a_usual_error() -> None:
    found = read_recorded_prediction(AdviceRecord(verdict=Verdict.FITS, step_s=12.0, mfu=0.4))
    assert found is not None
    assert (found.low_s, found.step_s, found.high_s, found.mfu) == pytest.approx((10.0, 12.0, 14.4, 0.4))
    assert read_recorded_prediction(AdviceRecord(verdict=Verdict.FITS)) is None

"""How a step follows from busy links: the cost model where links keep up, links where they do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.costmodel.predict import predict
from opsk.costmodel.table import PlanTable
from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.rails import find_rails
from opsk.hardware.catalog import cluster
from opsk.planning.placement.step_model import COMMUNICATION_ONLY, DENSE, SPARSE, StepModel, as_cabled, step_model
from opsk.planning.routing.traffic import AXES
from opsk.workload.plan import Plan, Sharding

OUTSIDE = np.array([axis != "tp" for axis in AXES])
H100 = cluster("superpod-h100")
PLANS = (
    (DENSE, Plan(tp=8, dp=16, sharding=Sharding.ZERO1, sequence_parallel=True, global_batch=128)),
    (DENSE, Plan(tp=8, pp=4, dp=4, sharding=Sharding.ZERO1, sequence_parallel=True, global_batch=128)),
    (DENSE, Plan(tp=4, cp=2, pp=2, dp=8, sequence_parallel=True, global_batch=128)),
    (DENSE, Plan(dp=128, sharding=Sharding.ZERO3, global_batch=256)),
    (SPARSE, Plan(dp=128, ep=64, sharding=Sharding.ZERO1, global_batch=256)),
)


@pytest.mark.parametrize(("model", "plan"), PLANS)
def test_links_that_keep_up_leave_the_cost_models_step(model, plan) -> None:
    expected = predict(model, PlanTable.of([plan]), H100).time.step_s.expected[0]
    found = step_model(model, plan, H100)
    assert found.least_s == pytest.approx(expected)
    assert float(found.step_s(found.total_s * found.nic_fraction * OUTSIDE)) == pytest.approx(expected)


def test_what_does_not_hide_is_added_with_its_weight() -> None:
    """dp: 1 s assumed, 3 s can hide, the link needs 4 s at full rate and 5 s as reached: 2 s show, 10 % more wait."""
    found = StepModel(
        other_s=10.0, total_s=np.array([0, 0, 0, 1.0, 0]), window_s=np.array([0, 0, 0, 3.0, 0]), weight=np.ones(5),
        latency_s=np.zeros(5), straggler=1.1, nic_fraction=0.8,
    )  # fmt: skip
    assert found.least_s == pytest.approx(11.0)
    assert float(found.step_s(np.array([0, 0, 0, 4.0, 0]))) == pytest.approx(1.1 * 12.0)


def test_tensor_parallelism_between_nodes_waits_for_hops_too() -> None:
    model, plan = PLANS[0]
    found = step_model(model, plan, H100)
    assert found.step_s(found.total_s * found.nic_fraction * (1 - OUTSIDE)) > found.least_s
    assert found.latency_s[AXES.index("tp")] > 0
    assert not found.latency_s[1:].any()


@given(axis_s=st.lists(st.floats(0, 100), min_size=5, max_size=5), more=st.floats(0, 10), axis=st.integers(0, 4))
def test_a_busier_link_never_shortens_the_step(axis_s: list[float], more: float, axis: int) -> None:
    found = step_model(*PLANS[1], H100)
    busier = np.array(axis_s)
    busier[axis] += more
    assert found.step_s(busier) >= found.step_s(np.array(axis_s)) >= found.least_s


def test_communication_alone_is_the_sum_of_the_axes() -> None:
    assert float(COMMUNICATION_ONLY.step_s(np.array([1.0, 2.0, 3.0, 4.0, 5.0]))) == pytest.approx(15.0)


def test_a_cluster_takes_the_hcas_that_are_really_there() -> None:
    """Four HCAs of HDR instead of eight of NDR; the graph says what is oversubscribed, not the catalogue."""
    rails = find_rails(rail_optimized_fabric(nodes=4, hcas=4, leaves=4, spines=2, speed="HDR"))
    cabled = as_cabled(replace(H100, oversubscription=2.0), rails)
    assert (cabled.node.nics, cabled.oversubscription) == (4, 1.0)
    assert cabled.node.nic.bytes_per_s == pytest.approx(rails.attachments["n0"][0].bytes_per_s)

"""What findings cost: the same job with and without one of them, followed by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.fabric import Fabric
from opsk.fabric.rails import find_rails
from opsk.planning.placement.fault_cost import FaultPricer, Repairs
from opsk.planning.placement.step_model import ReferenceJob, StepModel
from opsk.planning.routing.traffic import step_bytes
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

WORK_S = 1.0
SHOWN = StepModel(
    other_s=WORK_S, total_s=np.zeros(5), window_s=np.zeros(5), weight=np.ones(5), latency_s=np.zeros(5), straggler=1.0,
    nic_fraction=1.0,
)  # fmt: skip
GPUS = 4


def priced(fabric: Fabric, model: ModelShape, kind: str) -> tuple[Fabric, float, float, float, float]:
    """Return default and placed slowdown and the rail-local shares, with and without, of the only finding of a kind."""

    def jobs(nodes: int) -> Sequence[ReferenceJob]:
        plan = Plan(tp=GPUS, dp=nodes, global_batch=nodes)
        return [ReferenceJob(label="dense", model=model, plan=plan, step=SHOWN)]

    rails = find_rails(fabric)
    (fault,) = [fault for fault in rails.faults if fault.kind == kind]
    cost = FaultPricer(Repairs(fabric, rails), jobs, GPUS).price(fault)
    assert cost is not None
    return fabric, cost.default, cost.placed, cost.rail_local_fraction, cost.rail_local_without


def recabled(fabric: Fabric, change: dict[int, dict[str, object]]) -> Fabric:
    cables = list(fabric.cables)
    for index, fields in change.items():
        cables[index] = replace(cables[index], **fields)  # type: ignore[arg-type]
    return replace(fabric, cables=tuple(cables))


def test_a_link_at_a_quarter_of_the_rate_makes_its_ring_four_times_as_long(model: ModelShape) -> None:
    """tp 4, dp 8 on one unit: each ring link passes the same bytes, and all wait for the slow one.

    Without: 1 s of work and b / rate of communication; with: 4 b / rate.
    """
    clean = rail_optimized_fabric(nodes=8, hcas=4, leaves=4, spines=2, speed="NDR")
    rate = clean.cables[0].bytes_per_s
    slow = recabled(clean, {5: {"speed": "SDR", "bytes_per_s": rate / 4}})
    _, default, placed, _, _ = priced(slow, model, "slow_link")
    sent_s = step_bytes(model, Plan(tp=4, dp=8, global_batch=8)).dp[0] / rate
    assert default == pytest.approx((WORK_S + 4 * sent_s) / (WORK_S + sent_s) - 1)
    assert placed == pytest.approx(default)


def test_swapped_cables_cost_locality_that_placement_gives_back(model: ModelShape) -> None:
    """Two of four rings have 2 of 8 links off their rail: 1 - 2/4 x 2/8 = 87.5 %; uplinks have room for them."""
    clean = rail_optimized_fabric(nodes=8, hcas=4, leaves=4, spines=4)
    mine = [
        index
        for index, cable in enumerate(clean.cables)
        if (hca := clean.hcas.get(cable.b_guid)) is not None and hca.node == "n3"
    ]
    first, second = clean.cables[mine[1]], clean.cables[mine[2]]
    swapped = recabled(
        clean,
        {
            mine[1]: {"b_guid": second.b_guid, "b_port": second.b_port},
            mine[2]: {"b_guid": first.b_guid, "b_port": first.b_port},
        },
    )
    _, default, placed, local, without = priced(swapped, model, "swapped_hcas")
    assert (local, without) == (pytest.approx(0.875), 1.0)
    assert default >= 0
    assert placed == pytest.approx(0.0, abs=1e-9)


def test_a_missing_rail_makes_two_gpus_share_an_hca(model: ModelShape) -> None:
    """The ring of the GPU without HCA leaves by its neighbour's: twice the bytes through one port."""
    clean = rail_optimized_fabric(nodes=8, hcas=4, leaves=4, spines=4)
    gone = next(guid for guid, hca in clean.hcas.items() if (hca.node, hca.device) == ("n2", "mlx5_1"))
    lacking = replace(
        clean,
        hcas={guid: hca for guid, hca in clean.hcas.items() if guid != gone},
        cables=tuple(cable for cable in clean.cables if gone not in (cable.a_guid, cable.b_guid)),
    )
    _, default, placed, _, _ = priced(lacking, model, "missing_rail")
    sent_s = step_bytes(model, Plan(tp=4, dp=8, global_batch=8)).dp[0] / clean.cables[0].bytes_per_s
    assert default == pytest.approx((WORK_S + 2 * sent_s) / (WORK_S + sent_s) - 1)
    assert math.isclose(placed, default, rel_tol=1e-6)

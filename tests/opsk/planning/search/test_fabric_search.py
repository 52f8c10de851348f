"""The best plans on cables, against placing every plan of a space one by one."""

from __future__ import annotations

import math
from collections import deque
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.predict import predict
from opsk.costmodel.table import PlanTable
from opsk.costmodel.uncertainty.verdict import FITS_FROM, OOM_UP_TO
from opsk.errors import PlanInfeasibleError
from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.fabric import Fabric
from opsk.fabric.rails import find_rails
from opsk.hardware.catalog import cluster
from opsk.planning.placement.step_model import as_cabled, step_model
from opsk.planning.routing.fabric_routes import build_routes
from opsk.planning.search.fabric_search import FabricSearch
from opsk.planning.search.layout_prices import Cabled
from opsk.planning.search.request import PlanRequest
from opsk.planning.search.result import LAYOUT, SearchResult
from opsk.planning.search.search import best_plans
from opsk.planning.search.space import build_space
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Recompute, Schedule, Sharding

H100 = cluster("superpod-h100")
SMALL = ModelShape(
    name="small", layers=8, hidden=4096, ffn=16384, heads=32, kv_heads=32, head_dim=128, vocab=32000, seq=2048,
    tied_embeddings=True,
)  # fmt: skip
EXPERTS = replace(SMALL, name="experts", experts=8, top_k=2, expert_ffn=4096, tied_embeddings=False)


def thin(nodes: int = 6, *, gpus: int = 2, lost: tuple[int, ...] = (), speed: str = "HDR") -> Fabric:
    """Cable two units to one spine by one cable a leaf; HCAs of ``lost`` numbers are not cabled."""
    whole = rail_optimized_fabric(nodes=nodes, hcas=gpus, leaves=2 * gpus, spines=1, speed=speed)
    missing = {list(whole.hcas)[number % len(whole.hcas)] for number in lost}
    cables = tuple(cable for cable in whole.cables if not missing & {cable.a_guid, cable.b_guid})
    return replace(whole, cables=cables)


def cabled_by(fabric: Fabric, gpus: int) -> Cabled:
    rails = find_rails(fabric)
    names = tuple(dict.fromkeys(hca.node for hca in fabric.hcas.values() if hca.node))
    return Cabled(rails=rails, nodes=names, gpus_per_node=gpus, routes=build_routes(fabric, rails))


HIDING = replace(
    DEFAULT,
    software={
        family: replace(found, ep_overlap=0.9, dp_overlap=0.4, pp_overlap=0.4)
        for family, found in DEFAULT.software.items()
    },
)
"""What ships, but for software that hides much of what experts and replicas send: what a fit says changes no test."""


def asked(
    fabric: Fabric, gpus: int, *, batch: int, model: ModelShape = SMALL, most: int = 3, each: int = 2, **fixed: object
) -> PlanRequest:
    node = replace(H100.node, gpus=each, hb_domain_gpus=each, nics=each)
    return PlanRequest(
        model=model,
        cluster=as_cabled(replace(H100, node=node), find_rails(fabric)),
        template=Plan(global_batch=batch, ep_overlap=True),
        gpus=gpus,
        global_batch=batch,
        fixed={name: value if isinstance(value, tuple) else (value,) for name, value in fixed.items()},
        most=most,
        efficiency=HIDING,
    )


FEW = {
    "recompute": Recompute.NONE, "vpp": 1, "sharding": (Sharding.ZERO1, Sharding.ZERO3), "shard_gpus": 0,
    "sequence_parallel": False, "micro_batch": (1, 2), "schedule": Schedule.ONE_F_ONE_B, "etp": 0,
}  # fmt: skip


def on_fabric(
    cabled: Cabled, request: PlanRequest, *, messages: int | None = None
) -> tuple[FabricSearch, SearchResult]:
    search = FabricSearch(cabled, messages=messages)
    return search, deque(search.place_layouts([request], best_plans(request)), maxlen=1)[0]


def place_each(cabled: Cabled, request: PlanRequest) -> list[tuple[float, tuple[int, ...], float]]:
    """Place every plan that may fit; return its chance to fit, its layout and its time on the fabric [s]."""
    placed = []
    for table in build_space(request).list_tables(rows=1000):
        fits = predict(request.model, table, request.cluster, request.efficiency).memory.fit_probability
        for row in np.flatnonzero(fits > OOM_UP_TO).tolist():
            plan = table.row(row)
            step = step_model(request.model, plan, request.cluster, request.efficiency)
            with suppress(PlanInfeasibleError):
                step_s = cabled.place(request.model, plan, step).traffic.step_s
                placed.append((float(fits[row]), tuple(getattr(plan, axis) for axis in LAYOUT), step_s))
    return placed


def fastest_of_layouts(placed: list[tuple[float, tuple[int, ...], float]], least_chance: float) -> list[float]:
    """Return the time of the fastest of each layout, fastest first."""
    fastest: dict[tuple[int, ...], float] = {}
    for chance, layout, step_s in placed:
        if chance >= least_chance:
            fastest[layout] = min(fastest.get(layout, math.inf), step_s)
    return sorted(step_s for step_s in fastest.values() if math.isfinite(step_s))


@settings(max_examples=5, deadline=None)
@given(
    model=st.sampled_from([SMALL, EXPERTS]),
    nodes=st.sampled_from([4, 6]),
    lost=st.lists(st.integers(0, 7), max_size=2).map(tuple),
    speed=st.sampled_from(["SDR", "HDR"]),
    most=st.sampled_from([1, 2, 8]),
)
def test_the_list_is_that_of_placing_every_plan(
    model: ModelShape, nodes: int, lost: tuple[int, ...], speed: str, most: int
) -> None:
    fabric = thin(nodes, lost=lost, speed=speed)
    cabled, request = cabled_by(fabric, 2), asked(fabric, 8, batch=16, model=model, most=most, **FEW)
    search, found = on_fabric(cabled, request)
    assert search.is_exact
    placed = place_each(cabled, request)
    for least_chance, best in ((0.0, found.best), (FITS_FROM, found.best_fitting)):
        expected = fastest_of_layouts(placed, least_chance)[:most]
        assert [one.step_s for one in best] == pytest.approx(expected, rel=3e-6)


def test_a_plan_that_no_link_slows_is_found_though_it_is_placed_a_rounding_faster() -> None:
    """The ideally fastest plan waits for a lost HCA; the next one does not: its two times differ in the last digit."""
    fabric = thin(4, lost=(0,))
    cabled, request = cabled_by(fabric, 2), asked(fabric, 8, batch=16, model=EXPERTS, most=1, **FEW)
    _, found = on_fabric(cabled, request)
    expected = fastest_of_layouts(place_each(cabled, request), 0.0)[:1]
    assert [one.step_s for one in found.best] == pytest.approx(expected, rel=3e-6)


def test_links_change_which_plan_is_the_best() -> None:
    """Two nodes of four lack an HCA: the ideally fastest plan, with experts over all of them, waits there."""
    fabric = thin(4, lost=(1, 5))
    cabled, request = cabled_by(fabric, 2), asked(fabric, 8, batch=16, model=EXPERTS, **FEW)
    ideal = best_plans(request).best[0]
    search, found = on_fabric(cabled, request)
    placed = search.place(request, ideal.plan)
    assert placed.ideal_s == pytest.approx(ideal.step_s)
    assert found.best[0].step_s < placed.step_s * (1 - 1e-3)
    assert {"ep", "dp"} <= set(placed.slowed_s)


def test_a_lengthened_step_still_is_the_sum_of_its_parts() -> None:
    fabric = thin(6, lost=(1, 5))
    cabled, request = cabled_by(fabric, 2), asked(fabric, 8, batch=16, model=EXPERTS, **FEW)
    ideal = best_plans(request).best[0]
    plain = predict(request.model, PlanTable.of([ideal.plan]), request.cluster, request.efficiency)
    placed = FabricSearch(cabled).place(request, ideal.plan)
    time, energy = placed.prediction.time, placed.prediction.energy
    assert time.step_s.expected[0] == pytest.approx(placed.step_s)
    assert sum(float(np.ravel(part)[0]) for part in time.components.values()) == pytest.approx(placed.step_s)
    longer = placed.step_s / ideal.step_s
    assert longer > 1.1
    assert time.mfu.expected[0] * longer == pytest.approx(plain.time.mfu.expected[0])
    assert energy.step_j.expected[0] > plain.energy.step_j.expected[0]
    assert energy.gpu_w[0] < plain.energy.gpu_w[0]


def test_a_spent_budget_is_told() -> None:
    """Of ten nodes that differ, not all orders are tried: each plan that might win is placed by itself."""
    fabric = thin(10, lost=(1, 5, 6))
    cabled, request = cabled_by(fabric, 2), asked(fabric, 16, batch=16, model=EXPERTS, **FEW)
    search, found = on_fabric(cabled, request, messages=0)
    whole, best = on_fabric(cabled, request)
    assert not search.is_exact
    assert whole.is_exact
    assert [one.step_s for one in found.best] >= [one.step_s for one in best.best]


def test_layouts_that_cannot_be_laid_out_are_told() -> None:
    """Experts over all ranks of tp 2 x dp 4: groups of 8 do not fill dp x cp, so no placement is known."""
    fabric = thin(4)
    request = asked(fabric, 8, batch=16, model=EXPERTS, most=50, **{**FEW, "tp": 2, "pp": 1, "cp": 1, "ep": 8})
    search, found = on_fabric(cabled_by(fabric, 2), request)
    assert not found.best
    assert search.unplaceable

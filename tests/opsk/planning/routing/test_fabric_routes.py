"""Static routes: the cables that tables name, and no others."""

from __future__ import annotations

import numpy as np
import pytest

from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.fabric import Fabric
from opsk.fabric.forwarding import NO_PATH, ForwardingTables
from opsk.fabric.rails import find_rails
from opsk.planning.placement.initial_placements import PlacementProblem
from opsk.planning.placement.placement import place
from opsk.planning.routing.fabric_routes import TableRoutes, build_routes
from opsk.planning.routing.traffic import step_bytes
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan


def two_units() -> Fabric:
    """Four nodes of one HCA, two a leaf, two spines, a cable to each."""
    fabric = rail_optimized_fabric(nodes=4, hcas=1, leaves=2, spines=2)
    lids = {(guid, 1): number for number, guid in enumerate(fabric.hcas, start=1)}
    return Fabric(switches=fabric.switches, hcas=fabric.hcas, cables=fabric.cables, source="test", port_lids=lids)


def by_first_spine(fabric: Fabric, *, without: int | None = None) -> ForwardingTables:
    """Tables that send all that leaves a leaf over the first spine; LID ``without`` is unknown to all."""
    names = {switch.description: guid for guid, switch in fabric.switches.items()}
    rows = {guid: number for number, guid in enumerate(fabric.switches)}
    ports = np.full((len(rows), 5), NO_PATH, dtype=np.uint8)
    leaf_of = {}
    port_of = {}
    for cable in fabric.cables:
        for a, a_port, b in ((cable.a_guid, cable.a_port, cable.b_guid), (cable.b_guid, cable.b_port, cable.a_guid)):
            port_of[a, b] = a_port
            if a in fabric.switches and b in fabric.hcas:
                leaf_of[b] = a
    for number, hca in enumerate(fabric.hcas, start=1):
        if number == without:
            continue
        for leaf in ("leaf0", "leaf1"):
            guid = names[leaf]
            ports[rows[guid], number] = port_of[guid, hca if leaf_of[hca] == guid else names["spine0"]]
        for spine in ("spine0", "spine1"):
            ports[rows[names[spine]], number] = port_of[names[spine], leaf_of[hca]]
    return ForwardingTables(rows=rows, out_ports=ports)


def test_tables_put_on_one_cable_what_shortest_paths_spread_over_two(model: ModelShape) -> None:
    """tp 1, dp 4: the ring crosses between the leaves once each way; both spines share that only without tables."""
    fabric = two_units()
    rails, plan = find_rails(fabric), Plan(dp=4, global_batch=4)
    even = place(
        PlacementProblem(
            model=model,
            plan=plan,
            rails=rails,
            nodes=["n0", "n1", "n2", "n3"],
            gpus_per_node=1,
            routes=build_routes(fabric, rails),
        )
    )
    static = place(
        PlacementProblem(
            model=model,
            plan=plan,
            rails=rails,
            nodes=["n0", "n1", "n2", "n3"],
            gpus_per_node=1,
            routes=build_routes(fabric, rails, by_first_spine(fabric)),
        )
    )
    rate = fabric.cables[0].bytes_per_s
    sent = step_bytes(model, plan).dp[0]
    assert even.traffic.max_link_load == pytest.approx(sent / 2 / rate)
    assert static.traffic.max_link_load == pytest.approx(sent / rate)
    assert static.traffic.busiest_cable is not None
    assert "spine0" in {fabric.switches[guid].description for guid in static.traffic.busiest_cable}


def test_what_no_table_tells_spreads_evenly_and_is_counted(model: ModelShape) -> None:
    fabric = two_units()
    rails = find_rails(fabric)
    routes = build_routes(fabric, rails, by_first_spine(fabric, without=1))
    assert isinstance(routes, TableRoutes)
    (hca,), (other,) = rails.attachments["n0"], rails.attachments["n2"]
    spread, fixed = routes.path(other.leaf, hca), routes.path(hca.leaf, other)
    assert spread is not None
    assert fixed is not None
    assert (len(spread.links), len(fixed.links)) == (4, 2)
    assert routes.guessed == {(other.leaf, hca.guid)}


def test_parallel_cables_are_told_apart() -> None:
    """A table names a port, so that of two cables to one spine it loads one."""
    fabric = rail_optimized_fabric(nodes=2, hcas=1, leaves=2, spines=1, cables_per_pair=2)
    lids = {(guid, 1): number for number, guid in enumerate(fabric.hcas, start=1)}
    fabric = Fabric(switches=fabric.switches, hcas=fabric.hcas, cables=fabric.cables, source="test", port_lids=lids)
    rails = find_rails(fabric)
    (a,), (b,) = rails.attachments["n0"], rails.attachments["n1"]
    up = max(
        cable.a_port if cable.a_guid == a.leaf else cable.b_port
        for cable in fabric.cables
        if a.leaf in (cable.a_guid, cable.b_guid)
    )
    spine = next(guid for guid, switch in fabric.switches.items() if switch.description == "spine0")
    down = next(
        cable.b_port if cable.b_guid == spine else cable.a_port
        for cable in fabric.cables
        if {cable.a_guid, cable.b_guid} == {spine, b.leaf}
    )
    rows = {guid: number for number, guid in enumerate(fabric.switches)}
    ports = np.full((3, 3), NO_PATH, dtype=np.uint8)
    ports[rows[a.leaf], lids[b.guid, 1]] = up
    ports[rows[spine], lids[b.guid, 1]] = down
    path = build_routes(fabric, rails, ForwardingTables(rows=rows, out_ports=ports)).path(a.leaf, b)
    assert path is not None
    assert path.shares.tolist() == [1.0, 1.0]

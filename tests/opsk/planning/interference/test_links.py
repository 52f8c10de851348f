"""One numbering of links for all jobs, whatever the routes are."""

from __future__ import annotations

import numpy as np
import pytest

from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.dumps.forwarding_tables import read_forwarding_tables
from opsk.fabric.fabric import Fabric
from opsk.fabric.graph import find_isl_cables
from opsk.fabric.rails import find_rails
from opsk.planning.interference.contention import interference
from opsk.planning.interference.links import FabricLinks, build_links
from opsk.planning.interference.load import JobShape, default_load
from opsk.planning.interference.measured import MeasuredRates, PortRate, background
from opsk.planning.interference.running_loads import RunningLoads
from opsk.planning.routing.fabric_routes import build_routes
from tests.fakes.forwarding import as_dump_fts, shortest_paths, with_lids


def test_every_link_has_two_ends_and_a_rate(fabric_links: FabricLinks, fabric: Fabric) -> None:
    """Five switches with four cables, both ways, and sixteen HCAs sending and receiving."""
    assert fabric_links.links == 2 * 4 + 2 * 16
    assert (fabric_links.rates == 50e9).all()
    ends = [fabric_links.ends(link) for link in range(fabric_links.links)]
    assert len(set(ends)) == fabric_links.links
    assert all(one in {*fabric.switches, *fabric.hcas} for pair in ends for one in pair)
    assert {ends[::-1] for ends in ends} == set(ends)


def test_a_load_has_the_axis_times_that_placements_are_judged_by(fabric_links: FabricLinks, pair: JobShape) -> None:
    load = default_load("a", fabric_links, pair, ("n0", "n4"))
    assert load.axis_s.tolist() == [0.0, 0.0, 0.0, pytest.approx(1.0), 0.0]
    assert load.step_s == pytest.approx(1.0)
    assert load.burst.max() == 1.0


def test_where_only_leaves_are_known_jobs_meet_on_their_uplinks(pair: JobShape) -> None:
    fabric = rail_optimized_fabric(nodes=8, hcas=2, leaves=4, spines=1)
    rails = find_rails(fabric)
    fabric_links = build_links(None, rails, build_routes(None, rails))
    other = default_load("b", fabric_links, pair, ("n1", "n5"))
    found = interference(
        default_load("a", fabric_links, pair, ("n0", "n4")), RunningLoads.of(fabric_links.links, [other])
    )
    assert (found.slowdown, found.shared_links) == (pytest.approx(1.0), 8)
    assert {"" in fabric_links.ends(link.link) for link in found.shared} == {True}


def test_uplinks_of_leaves_are_told_by_counters_of_their_ports(pair: JobShape) -> None:
    fabric = rail_optimized_fabric(nodes=8, hcas=2, leaves=4, spines=2)
    rails = find_rails(fabric)
    fabric_links = build_links(None, rails, build_routes(None, rails))
    rates = MeasuredRates(
        switch_ports={
            (cable.a_guid, cable.a_port): PortRate(sent_bytes_per_s=25e9, received_bytes_per_s=10e9)
            for cable in find_isl_cables(fabric)
        }
    )
    load = background(fabric_links, fabric, rates, RunningLoads.of(fabric_links.links, ()))
    assert load is not None
    assert sorted(set(np.round(load.utilisation, 6))) == [0.2, 0.5]


def test_tables_keep_jobs_apart_that_shortest_paths_would_mix(pair: JobShape) -> None:
    """Two spines: spread over both, every job meets every other; by tables each HCA has one way that leads to it."""
    fabric = with_lids(rail_optimized_fabric(nodes=8, hcas=2, leaves=4, spines=2))
    rails = find_rails(fabric)
    tables = read_forwarding_tables(as_dump_fts(fabric, shortest_paths(fabric)), source="test")
    even = build_links(fabric, rails, build_routes(fabric, rails))
    static = build_links(fabric, rails, build_routes(fabric, rails, tables))
    met = {}
    for name, fabric_links in (("even", even), ("static", static)):
        load = default_load("a", fabric_links, pair, ("n0", "n4"))
        others = [default_load(node, fabric_links, pair, (node, f"n{int(node[1]) + 4}")) for node in ("n1", "n2", "n3")]
        found = interference(load, RunningLoads.of(fabric_links.links, others))
        met[name] = {one.load.name: one.slowdown_of_candidate for one in found.neighbours}
        assert found.step_s >= found.alone_s
    assert set(met["even"].values()) == {0.0}, "half of two cables each: both have room"
    assert set(met["static"].values()) <= {0.0, 1.0}
    assert 1.0 in met["static"].values()

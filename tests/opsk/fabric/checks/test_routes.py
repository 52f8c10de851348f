"""Following forwarding tables: sound ones lead everywhere; a planted fault is found, and gone when it is mended."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.fabric.checks.routes import RouteReport, check_routes
from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.dumps.forwarding_tables import read_forwarding_tables
from opsk.fabric.fabric import Fabric
from opsk.fabric.forwarding import resolve_next_hops
from tests.fakes.forwarding import Tables, as_dump_fts, shortest_paths, with_lids

FABRIC = with_lids(rail_optimized_fabric(nodes=4, hcas=2, leaves=4, spines=2))
"""Two units of two nodes; leaves 1 to 4, spines 5 and 6; LIDs 7 to 14 are HCA ports."""
LEAVES = [guid for guid, switch in FABRIC.switches.items() if switch.description.startswith("leaf")]
SPINES = [guid for guid, switch in FABRIC.switches.items() if switch.description.startswith("spine")]


def check(fabric: Fabric, tables: Tables) -> RouteReport:
    return check_routes(
        resolve_next_hops(read_forwarding_tables(as_dump_fts(FABRIC, tables), source="dump"), fabric), fabric
    )


def planted(switch: str, changes: dict[int, int | None]) -> Tables:
    tables = {guid: dict(table) for guid, table in shortest_paths(FABRIC).items()}
    for lid, port in changes.items():
        if port is None:
            del tables[switch][lid]
        else:
            tables[switch][lid] = port
    return tables


SHAPES = st.builds(
    rail_optimized_fabric,
    nodes=st.integers(1, 8),
    hcas=st.sampled_from([1, 2, 4]),
    leaves=st.sampled_from([4, 8]),
    spines=st.integers(1, 3),
    cables_per_pair=st.integers(1, 2),
).map(with_lids)


@given(SHAPES)
def test_shortest_paths_lead_everywhere(fabric: Fabric) -> None:
    dump = as_dump_fts(fabric, shortest_paths(fabric))
    report = check_routes(resolve_next_hops(read_forwarding_tables(dump, source="dump"), fabric), fabric)
    assert (report.switches, report.destinations) == (len(fabric.switches), len(fabric.hcas))
    assert (report.unreachable, report.loops, report.faults) == (0, 0, ())


def test_a_next_hop_is_the_cable_that_the_table_names() -> None:
    hops = resolve_next_hops(read_forwarding_tables(as_dump_fts(FABRIC, shortest_paths(FABRIC)), source="d"), FABRIC)
    hca, port = min(FABRIC.port_lids)
    cable = hops.cable(LEAVES[0], hca)
    assert cable is not None
    assert {cable.a_guid, cable.b_guid} == {LEAVES[0], hca}  # the first HCA is n0 mlx5_0, on leaf0
    through = hops.cable(LEAVES[3], hca)
    assert through is not None
    assert {through.a_guid, through.b_guid} & set(SPINES)
    assert hops.cable(LEAVES[0], "unheard of") is None
    assert hops.lid(hca, port) == hops.lid(hca) == 7


def test_a_table_that_points_to_a_port_without_a_cable_is_a_dead_end() -> None:
    report = check(FABRIC, planted(LEAVES[0], {14: 39}))
    assert (report.unreachable, report.loops) == (1, 0)
    assert [(fault.kind, fault.switches) for fault in report.faults] == [("dead_end_route", (LEAVES[0],))]
    assert "port 39" in report.faults[0].where


def test_a_table_without_an_entry_is_a_dead_end_for_all_who_are_led_there() -> None:
    tables = planted(SPINES[0], {14: None})
    # Leaves have ports 1 and 2 for HCAs, 3 and 4 to the spines: LID 14, which is even, goes by port 3 to spine 0.
    assert [tables[leaf][14] for leaf in LEAVES] == [3, 3, 3, 2]
    report = check(FABRIC, tables)
    assert (report.unreachable, report.loops) == (3, 0)
    assert report.faults[0].switches == (SPINES[0],)


def test_two_tables_that_point_at_each_other_are_a_loop() -> None:
    tables = shortest_paths(FABRIC)
    up = 3
    for leaf in LEAVES[:2]:
        tables[leaf][14] = up
    spine = SPINES[0]
    tables[spine][14] = 1  # back down to leaf 0
    report = check(FABRIC, tables)
    assert report.loops >= 2
    assert [fault.kind for fault in report.faults] == ["routing_loop"]
    assert check(FABRIC, shortest_paths(FABRIC)).faults == ()


def test_packets_that_end_at_another_hca_are_lost() -> None:
    report = check(FABRIC, planted(LEAVES[3], {14: 1}))
    assert report.unreachable == len(LEAVES)
    assert "not at the far end" in report.faults[0].evidence


def test_a_switch_without_a_table_is_named() -> None:
    tables = shortest_paths(FABRIC)
    del tables[LEAVES[1]]
    report = check(FABRIC, tables)
    assert report.unreachable
    assert [fault.kind for fault in report.faults] == ["no_forwarding_table"]


def test_a_table_of_a_switch_that_the_fabric_lacks_is_named() -> None:
    smaller = replace(FABRIC, switches={g: s for g, s in FABRIC.switches.items() if g != SPINES[1]}, cables=tuple(
        cable for cable in FABRIC.cables if SPINES[1] not in (cable.a_guid, cable.b_guid)
    ))  # fmt: skip
    kinds = {fault.kind for fault in check(smaller, shortest_paths(FABRIC)).faults}
    assert "table_of_no_switch" in kinds


@pytest.mark.parametrize("lids", [{}, {("unheard of", 1): 3}])
def test_without_any_destination_there_is_nothing_to_follow(lids: dict[tuple[str, int], int]) -> None:
    tables = read_forwarding_tables(as_dump_fts(FABRIC, shortest_paths(FABRIC), owners=False), source="dump")
    report = check_routes(resolve_next_hops(tables, replace(FABRIC, port_lids=lids)), FABRIC)
    assert (report.destinations, report.unreachable, report.loops) == (0, 0, 0)

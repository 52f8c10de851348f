"""What ``opsk fabric`` says each finding costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opsk.app.fabric import FabricRequest, price_faults
from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.fabric import Cable, Fabric
from opsk.fabric.rails import find_rails


@pytest.fixture(autouse=True)
def no_site(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    (tmp_path / "opsk.toml").write_text("")
    monkeypatch.setenv("OPSK_CONFIG", str(tmp_path / "opsk.toml"))


def priced(fabric: Fabric, kind: str, **options):
    rails = find_rails(fabric)
    shown, assumed = price_faults(fabric, rails, rails.faults, FabricRequest(**options))
    return [fault for fault in shown if fault["kind"] == kind], assumed


def without_cables(fabric: Fabric, gone) -> Fabric:
    return replace(fabric, cables=tuple(cable for cable in fabric.cables if not gone(cable)))


def short_leaf() -> Fabric:
    """Two units of 16 nodes; one leaf has one of two cables to one of eight spines."""
    fabric = rail_optimized_fabric(nodes=32, hcas=8, leaves=16, spines=8, cables_per_pair=2)
    up = next(cable for cable in fabric.cables if {cable.a_guid, cable.b_guid} <= fabric.switches.keys())
    return without_cables(fabric, lambda cable: cable == up)


def test_a_missing_cable_costs_more_where_routes_are_fixed() -> None:
    """Even routes give the thin spine as much as the others, so its one cable carries twice their load."""
    (fault,), assumed = priced(short_leaf(), "leaf_short_of_uplinks")
    assert "predicted: steps" in fault["cost"]
    assert "where switches route adaptively" in fault["cost"]
    assert fault["predicted"]["slowdown_percent"] > fault["predicted"]["adaptive_slowdown_percent"] >= 0
    assert [entry.field for entry in assumed] == ["cluster"]


def test_an_adaptive_fabric_is_priced_as_one() -> None:
    (fault,), _ = priced(short_leaf(), "leaf_short_of_uplinks", adaptive=True)
    assert "adaptively" not in fault["cost"]
    assert fault["predicted"]["slowdown_percent"] == fault["predicted"]["adaptive_slowdown_percent"]


def test_hcas_without_a_name_cost_the_share_that_cannot_be_placed() -> None:
    """Two of 64 HCAs carry the factory's description: 3.1 %."""
    fabric = rail_optimized_fabric(nodes=16, hcas=4, leaves=4, spines=4, cables_per_pair=4)
    some = dict(list(fabric.hcas.items())[:2])
    nameless = {
        guid: replace(hca, description="MT4129 ConnectX7   Mellanox Technologies", node=None, device=None)
        for guid, hca in some.items()
    }
    faults, _ = priced(replace(fabric, hcas={**fabric.hcas, **nameless}), "unnamed_hca")
    assert sum(fault["predicted"]["unusable_percent"] for fault in faults) == pytest.approx(100 * 2 / 64)
    assert all("serve no job by name" in fault["cost"] for fault in faults)


def test_one_cause_is_priced_once_and_told_alike() -> None:
    """A unit without a leaf for rail 3: every node of it lacks that rail, and one leaf would heal them all."""
    fabric = rail_optimized_fabric(nodes=16, hcas=4, leaves=8, spines=4, cables_per_pair=2)
    leaf = next(guid for guid, switch in fabric.switches.items() if switch.description == "leaf7")
    gone = {
        guid for cable in fabric.cables for guid in (cable.a_guid, cable.b_guid) if leaf in (cable.a_guid, cable.b_guid)
    }
    lost = {leaf} | (gone & fabric.hcas.keys())
    cut = replace(
        without_cables(fabric, lambda cable: lost & {cable.a_guid, cable.b_guid}),
        switches={guid: switch for guid, switch in fabric.switches.items() if guid not in lost},
        hcas={guid: hca for guid, hca in fabric.hcas.items() if guid not in lost},
    )
    leaves, _ = priced(cut, "missing_leaf")
    nodes, _ = priced(cut, "missing_rail")
    assert (len(leaves), len(nodes)) == (1, 8)
    assert {fault["predicted"]["slowdown_percent"] for fault in [*leaves, *nodes]} == {
        leaves[0]["predicted"]["slowdown_percent"]
    }
    assert leaves[0]["predicted"]["slowdown_percent"] > 0


def test_what_no_job_can_cross_is_lost_whole() -> None:
    """A leaf without any way up: a job over two units cannot run."""
    fabric = rail_optimized_fabric(nodes=16, hcas=4, leaves=8, spines=4, cables_per_pair=2)
    leaf = next(guid for guid, switch in fabric.switches.items() if switch.description == "leaf5")

    def is_uplink(cable: Cable) -> bool:
        ends = {cable.a_guid, cable.b_guid}
        return leaf in ends and ends <= fabric.switches.keys()

    alone = without_cables(fabric, is_uplink)
    faults, _ = priced(alone, "isolated_part")
    assert faults
    assert any("100 % lost" in fault["cost"] for fault in faults)
    assert not any("inf" in fault["cost"] for fault in faults)

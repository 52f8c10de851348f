"""What changed between two looks at a fabric: each change by its name, and nothing else."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.difference import Change, compare_snapshots
from opsk.fabric.fabric import Cable, Fabric
from opsk.fabric.hb_domains import HbDomain
from opsk.fabric.snapshot import Snapshot

FABRIC = rail_optimized_fabric(nodes=8, hcas=2, leaves=4, spines=2)
"""Two units of four nodes; leaf0 and leaf1 serve n0 to n3, leaf2 and leaf3 serve n4 to n7."""
NAMES = {switch.description: guid for guid, switch in FABRIC.switches.items()} | {
    hca.description: guid for guid, hca in FABRIC.hcas.items()
}


def changes(before: Fabric, after: Fabric) -> list[Change]:
    return list(compare_snapshots(Snapshot(fabric=before), Snapshot(fabric=after)))


def of_cabling(before: Fabric, after: Fabric) -> list[Change]:
    """Without the findings, rails and units that follow from it."""
    return [
        change
        for change in changes(before, after)
        if not change.kind.startswith(("fault_", "unit_", "rails_"))
    ]  # fmt: skip


def kinds(found: list[Change]) -> list[str]:
    return [change.kind for change in found]


def recabled(fabric: Fabric, hca: str, switch: str, port: int) -> Fabric:
    guid = NAMES[hca]
    cables = [
        cable if guid not in (cable.a_guid, cable.b_guid) else joined((NAMES[switch], port), (guid, 1), cable)
        for cable in fabric.cables
    ]
    return dataclasses.replace(fabric, cables=tuple(cables))


def joined(one: tuple[str, int], other: tuple[str, int], like: Cable) -> Cable:
    a, b = sorted((one, other))
    return dataclasses.replace(like, a_guid=a[0], a_port=a[1], b_guid=b[0], b_port=b[1])


def without(fabric: Fabric, *names: str) -> Fabric:
    guids = {NAMES[name] for name in names}
    return dataclasses.replace(
        fabric,
        switches={guid: switch for guid, switch in fabric.switches.items() if guid not in guids},
        hcas={guid: hca for guid, hca in fabric.hcas.items() if guid not in guids},
        cables=tuple(cable for cable in fabric.cables if not {cable.a_guid, cable.b_guid} & guids),
    )


def exchanged(fabric: Fabric, name: str, guid: str) -> Fabric:
    old = NAMES[name]
    new = {old: guid}

    def renamed(boxes: dict) -> dict:  # type: ignore[type-arg]
        return {new.get(key, key): dataclasses.replace(box, guid=new.get(key, key)) for key, box in boxes.items()}

    cables = [
        joined((new.get(c.a_guid, c.a_guid), c.a_port), (new.get(c.b_guid, c.b_guid), c.b_port), c)
        for c in fabric.cables
    ]
    return dataclasses.replace(
        fabric, switches=renamed(dict(fabric.switches)), hcas=renamed(dict(fabric.hcas)), cables=tuple(cables)
    )


def test_a_fabric_does_not_differ_from_itself() -> None:
    assert changes(FABRIC, FABRIC) == []


def test_an_hca_in_another_leaf_is_moved_and_nothing_else() -> None:
    found = of_cabling(FABRIC, recabled(FABRIC, "n1 mlx5_0", "leaf1", 30))
    assert kinds(found) == ["hca_moved"]
    assert found[0].where == "n1 mlx5_0"
    assert found[0].before == "leaf0 port 2 (rail 0)"
    assert found[0].after == "leaf1 port 30 (rail 1)"
    assert found[0].nodes == ("n1",)
    assert found[0].guids == (NAMES["n1 mlx5_0"], NAMES["leaf1"])


def test_a_swap_is_two_moves_and_brings_a_finding_that_goes_when_it_is_mended() -> None:
    swapped = recabled(recabled(FABRIC, "n1 mlx5_0", "leaf1", 2), "n1 mlx5_1", "leaf0", 2)
    found = changes(FABRIC, swapped)
    assert kinds(found).count("hca_moved") == 2
    assert [change.where.split(":")[0] for change in found if change.kind == "fault_appeared"] == ["swapped_hcas"]
    assert "fault_vanished" in kinds(changes(swapped, FABRIC))


def test_hcas_that_change_places_all_round_are_moves_of_hcas_only() -> None:
    devices = [f"n{node} mlx5_0" for node in range(4)]
    turned = FABRIC
    for node, device in enumerate(devices):
        turned = recabled(turned, device, "leaf0", (node + 1) % 4 + 1)
    assert kinds(of_cabling(FABRIC, turned)) == ["hca_moved"] * 4


def test_an_exchanged_card_or_switch_is_replaced_and_its_cables_stay() -> None:
    card = of_cabling(FABRIC, exchanged(FABRIC, "n3 mlx5_1", "ffff000000000001"))
    assert [(change.kind, change.where, change.after) for change in card] == [
        ("hca_replaced", "n3 mlx5_1", "ffff000000000001")
    ]
    switch = of_cabling(FABRIC, exchanged(FABRIC, "spine1", "ffff000000000002"))
    assert [(change.kind, change.before) for change in switch] == [("switch_replaced", NAMES["spine1"])]


def test_a_host_comes_and_goes_as_one() -> None:
    gone = of_cabling(FABRIC, without(FABRIC, "n7 mlx5_0", "n7 mlx5_1"))
    assert [(change.kind, change.where, change.after) for change in gone] == [("host_removed", "n7", None)]
    assert len(gone[0].guids) == 2
    come = of_cabling(without(FABRIC, "n7 mlx5_0", "n7 mlx5_1"), FABRIC)
    assert [(change.kind, change.before) for change in come] == [("host_added", None)]


def test_one_hca_of_a_host_that_stays_goes_alone() -> None:
    found = of_cabling(FABRIC, without(FABRIC, "n7 mlx5_1"))
    assert [(change.kind, change.where, change.before) for change in found] == [
        ("hca_removed", "n7 mlx5_1", "leaf3 port 4 (rail 1)")
    ]


def test_a_switch_goes_with_its_cables() -> None:
    found = of_cabling(FABRIC, without(FABRIC, "spine1"))
    assert [(change.kind, change.where, change.before) for change in found] == [
        ("switch_removed", "spine1", "4 cabled ports")
    ]


def test_a_cable_between_switches_goes_comes_moves_and_changes_its_link() -> None:
    at = next(index for index, cable in enumerate(FABRIC.cables) if {cable.a_guid, cable.b_guid} == {
        NAMES["leaf0"], NAMES["spine0"]})  # fmt: skip
    cable = FABRIC.cables[at]

    def with_cable(*cables: Cable) -> Fabric:
        return dataclasses.replace(FABRIC, cables=(*FABRIC.cables[:at], *cables, *FABRIC.cables[at + 1 :]))

    assert kinds(of_cabling(FABRIC, with_cable())) == ["cable_removed"]
    assert kinds(of_cabling(with_cable(), FABRIC)) == ["cable_added"]
    slow = of_cabling(FABRIC, with_cable(dataclasses.replace(cable, speed="HDR", width=2)))
    assert [(change.kind, change.before, change.after) for change in slow] == [("link_changed", "4xNDR", "2xHDR")]
    elsewhere = joined((NAMES["leaf0"], 5), (NAMES["spine1"], 39), cable)
    moved = of_cabling(FABRIC, with_cable(elsewhere))
    assert [(change.kind, change.where) for change in moved] == [("cable_moved", "leaf0 port 5")]
    assert moved[0].after == "spine1 port 39"


def test_a_new_name_is_a_new_name() -> None:
    guid = NAMES["leaf2"]
    switches = {**FABRIC.switches, guid: dataclasses.replace(FABRIC.switches[guid], description="leaf02")}
    found = of_cabling(FABRIC, dataclasses.replace(FABRIC, switches=switches))
    assert [(change.kind, change.where, change.before, change.after) for change in found] == [
        ("switch_renamed", guid, "leaf2", "leaf02")
    ]


def test_units_are_told_by_the_nodes_that_they_share() -> None:
    found = changes(FABRIC, without(FABRIC, "n7 mlx5_0", "n7 mlx5_1"))
    units = [change for change in found if change.kind.startswith("unit_")]
    assert [(change.kind, change.before, change.after, change.nodes) for change in units] == [
        ("unit_changed", "4 nodes", "3 nodes", ("n7",))
    ]


def test_hb_domains_that_hold_other_nodes_are_told() -> None:
    was = Snapshot(fabric=FABRIC, hb_domains=(HbDomain(name="rack", nodes=("n0", "n1")),))
    now = Snapshot(fabric=FABRIC, hb_domains=(HbDomain(name="rack", nodes=("n0", "n2")),))
    found = compare_snapshots(was, now)
    assert [(change.kind, change.where) for change in found] == [("hb_domain_changed", "rack")]
    assert found[0].nodes == ("n0", "n1", "n2")


@given(st.sets(st.sampled_from(sorted(NAMES)), max_size=6), st.sets(st.sampled_from(sorted(NAMES)), max_size=6))
def test_what_is_removed_one_way_is_added_the_other_way(left: set[str], right: set[str]) -> None:
    one, other = without(FABRIC, *left), without(FABRIC, *right)
    there, back = of_cabling(one, other), of_cabling(other, one)
    turned = {
        (change.kind.replace("removed", "x").replace("added", "removed").replace("x", "added"), change.where)
        for change in back
    }
    assert {(change.kind, change.where) for change in there} == turned
    assert changes(one, one) == []

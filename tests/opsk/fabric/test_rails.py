"""Rails, units and faults of fabrics whose cabling is known because the test made it, and then broke it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.fabric import Cable, Fabric, Fault
from opsk.fabric.rails import Rails, find_rails

UNITS = {"nodes": 16, "hcas": 4, "leaves": 8, "spines": 2, "cables_per_pair": 4}
"""Two units of 8 nodes and 4 leaves, each with as many uplinks as HCAs."""


def fabric(**sizes: int) -> Fabric:
    return rail_optimized_fabric(**(UNITS | sizes))


def hca(found: Fabric, node: str, device: str) -> str:
    return next(guid for guid, entry in found.hcas.items() if (entry.node, entry.device) == (node, device))


def leaf(found: Fabric, name: str) -> str:
    return next(guid for guid, switch in found.switches.items() if switch.description == name)


def recabled(found: Fabric, moves: dict[str, str]) -> Fabric:
    """Move HCAs (by guid) to other leaves (by guid), each to a free port."""
    used = {guid: max(cable.a_port for cable in found.cables if cable.a_guid == guid) for guid in moves.values()}
    cables = []
    for cable in found.cables:
        if cable.b_guid in moves:
            used[moves[cable.b_guid]] += 1
            cable = dataclasses.replace(cable, a_guid=moves[cable.b_guid], a_port=used[moves[cable.b_guid]])
        cables.append(cable)
    return dataclasses.replace(found, cables=tuple(cables))


def swapped(found: Fabric, node: str, one: str, other: str) -> Fabric:
    a, b = hca(found, node, one), hca(found, node, other)
    at = {cable.b_guid: cable.a_guid for cable in found.cables if cable.b_guid in (a, b)}
    return recabled(found, {a: at[b], b: at[a]})


def without(found: Fabric, unwanted: Callable[[Cable], bool]) -> Fabric:
    return dataclasses.replace(found, cables=tuple(cable for cable in found.cables if not unwanted(cable)))


def renamed(found: Fabric, names: dict[str, str]) -> Fabric:
    """Give HCAs (by guid) other descriptions."""
    hcas = dict(found.hcas)
    for guid, text in names.items():
        words = text.split()
        node, device = (words[0], words[1]) if len(words) == 2 else (None, None)
        hcas[guid] = dataclasses.replace(hcas[guid], description=text, node=node, device=device)
    return dataclasses.replace(found, hcas=hcas)


def of_kind(rails: Rails, kind: str) -> list[Fault]:
    return [fault for fault in rails.faults if fault.kind == kind]


def kinds(rails: Rails) -> set[str]:
    return {fault.kind for fault in rails.faults}


def rail_of(found: Fabric, rails: Rails, node: str) -> dict[str, int | None]:
    return {port.device: port.rail for port in rails.attachments[node]}


def test_a_clean_fabric_has_its_rails_and_units_and_no_fault() -> None:
    rails = find_rails(fabric())
    assert rails.rail_count == 4
    assert [len(unit) for unit in rails.units] == [8, 8]
    assert {entry.description: (entry.unit, entry.rail) for entry in rails.leaves.values()} == {
        f"leaf{index}": (index // 4, index % 4) for index in range(8)
    }
    assert all([port.rail for port in ports] == [0, 1, 2, 3] for ports in rails.attachments.values())
    assert rails.faults == ()


def test_leaves_are_two_cables_apart_through_a_spine() -> None:
    found = fabric()
    rails = find_rails(found)
    assert rails.leaf_distance[leaf(found, "leaf0"), leaf(found, "leaf7")] == 2
    assert rails.leaf_distance[leaf(found, "leaf3"), leaf(found, "leaf3")] == 0
    assert len(rails.leaf_distance) == 64


@given(st.integers(0, 15), st.permutations(range(4)))
def test_swapped_hcas_are_found_wherever_they_are_and_only_they(node: int, order: list[int]) -> None:
    one, other = (f"mlx5_{index}" for index in sorted(order[:2]))
    found = swapped(fabric(), f"n{node}", one, other)
    rails = find_rails(found)
    assert [fault.kind for fault in rails.faults] == ["swapped_hcas"]
    assert rails.faults[0].where == f"n{node}: {one} and {other}"
    assert "7 other nodes" in rails.faults[0].evidence
    assert rail_of(found, rails, f"n{node}")[one] == int(other[-1])  # the rail is that of the cable, not of the name


def test_removing_the_swap_removes_the_finding() -> None:
    assert find_rails(swapped(swapped(fabric(), "n3", "mlx5_0", "mlx5_2"), "n3", "mlx5_0", "mlx5_2")).faults == ()


def test_swaps_in_a_minority_of_a_small_unit_are_found() -> None:
    found = swapped(fabric(nodes=6, leaves=8), "n1", "mlx5_1", "mlx5_3")  # units of 3 nodes
    assert [fault.where for fault in of_kind(find_rails(found), "swapped_hcas")] == ["n1: mlx5_1 and mlx5_3"]


def test_three_hcas_rotated_are_one_finding() -> None:
    found = fabric()
    ids = [hca(found, "n2", f"mlx5_{index}") for index in range(3)]
    leaves = [leaf(found, f"leaf{index}") for index in (1, 2, 0)]
    rails = find_rails(recabled(found, dict(zip(ids, leaves, strict=True))))
    assert [(fault.kind, fault.where) for fault in rails.faults] == [
        ("swapped_hcas", "n2: mlx5_0, mlx5_1 and mlx5_2"),
    ]


def test_an_hca_in_another_unit_is_found_and_joins_no_units() -> None:
    found = fabric()
    rails = find_rails(recabled(found, {hca(found, "n0", "mlx5_1"): leaf(found, "leaf5")}))
    assert [len(unit) for unit in rails.units] == [8, 8]
    assert [fault.where for fault in of_kind(rails, "misplaced_hca")] == ["n0: mlx5_1"]


@pytest.mark.parametrize("names", [("HCA-1", "HCA-2", "HCA-5", "HCA-6"), ("mlx5_0", "mlx5_1", "mlx5_4", "mlx5_5")])
def test_units_that_name_devices_differently_share_their_rails(names: tuple[str, ...]) -> None:
    found = fabric()
    texts = {
        guid: f"{entry.node} {('mlx5_0', 'mlx5_1', 'mlx5_4', 'mlx5_5')[int((entry.device or '')[-1])]}"
        for guid, entry in found.hcas.items()
    }
    for node in range(8, 16):
        texts |= {hca(found, f"n{node}", f"mlx5_{index}"): f"n{node} {name}" for index, name in enumerate(names)}
    rails = find_rails(renamed(found, texts))
    assert rails.rail_count == 4
    assert [port.rail for port in rails.attachments["n12"]] == [0, 1, 2, 3]
    assert rails.faults == ()


def test_a_unit_without_one_leaf_keeps_the_numbers_of_the_others() -> None:
    found = fabric()
    gone = leaf(found, "leaf2")
    cut = without(found, lambda cable: gone in (cable.a_guid, cable.b_guid))
    cut = dataclasses.replace(
        cut,
        switches={guid: entry for guid, entry in cut.switches.items() if guid != gone},
        hcas={guid: entry for guid, entry in cut.hcas.items() if any(cable.b_guid == guid for cable in cut.cables)},
    )
    rails = find_rails(cut)
    assert rail_of(cut, rails, "n0") == {"mlx5_0": 0, "mlx5_1": 1, "mlx5_3": 3}
    assert "rail 2" in of_kind(rails, "missing_leaf")[0].where
    assert len(of_kind(rails, "missing_rail")) == 8
    assert "75%" in of_kind(rails, "missing_rail")[0].cost  # 3 of 4 HCAs


def test_a_node_without_one_hca_is_reported_once() -> None:
    found = fabric()
    lost = hca(found, "n9", "mlx5_3")
    rails = find_rails(
        dataclasses.replace(
            without(found, lambda cable: cable.b_guid == lost),
            hcas={guid: entry for guid, entry in found.hcas.items() if guid != lost},
        )
    )
    assert [(fault.kind, fault.where) for fault in rails.faults] == [("missing_rail", "n9")]


def test_a_leaf_short_of_uplinks_names_the_spine_and_the_loss() -> None:
    found = fabric()
    first, spine = leaf(found, "leaf5"), leaf(found, "spine1")
    dropped = next(cable for cable in found.cables if {cable.a_guid, cable.b_guid} == {first, spine})
    rails = find_rails(without(found, lambda cable: cable == dropped))
    short = of_kind(rails, "leaf_short_of_uplinks")
    assert [fault.kind for fault in rails.faults] == ["leaf_short_of_uplinks"]
    assert "leaf5" in short[0].where
    assert "3 of 4 to spine1" in short[0].evidence
    assert "12%" in short[0].cost  # 7 of 8 uplinks are left


def test_a_slow_and_a_narrow_link_are_told_apart() -> None:
    found = fabric()
    cables = list(found.cables)
    cables[0] = dataclasses.replace(cables[0], speed="HDR", bytes_per_s=25e9)
    cables[1] = dataclasses.replace(cables[1], width=1, bytes_per_s=12.5e9)
    rails = find_rails(dataclasses.replace(found, cables=tuple(cables)))
    assert [(fault.kind, fault.cost) for fault in rails.faults] == [
        ("narrow_link", "25% of the usual bandwidth"),
        ("slow_link", "50% of the usual bandwidth"),
    ]


def test_a_host_on_a_spine_makes_no_leaf_of_it() -> None:
    found = fabric(nodes=32)
    text = {hca(found, "n0", "mlx5_0"): "probe HCA-1"}
    moved = recabled(renamed(found, text), {next(iter(text)): leaf(found, "leaf0")})
    on_spine = dataclasses.replace(
        moved,
        cables=tuple(
            dataclasses.replace(cable, a_guid=leaf(found, "spine0"), a_port=90) if cable.b_guid in text else cable
            for cable in moved.cables
        ),
    )
    rails = find_rails(on_spine)
    assert rails.leaves[leaf(found, "spine0")].off_tier
    assert rails.leaves[leaf(found, "spine0")].role == "management"
    assert rails.leaves[leaf(found, "leaf0")].uplinks == 8
    assert "host_off_tier" in kinds(rails)
    assert "leaf_short_of_uplinks" not in kinds(rails)


def test_storage_servers_make_a_storage_leaf_that_joins_no_units() -> None:
    names = [f"n{index}" for index in range(12)] + [f"oss{index}" for index in range(4)]
    found = rail_optimized_fabric(nodes=16, hcas=2, leaves=8, spines=2, names=names)
    rails = find_rails(found)
    roles = {entry.description: entry.role for entry in rails.leaves.values()}
    assert roles == {f"leaf{index}": "compute" if index < 6 else "storage" for index in range(8)}
    assert set(rails.attachments) == set(names[:12])
    assert rails.host_roles["oss0"] == "storage"


def test_the_site_knows_its_compute_nodes_better() -> None:
    rails = find_rails(fabric(), compute_nodes=["n0", "n1"])
    assert set(rails.attachments) == {"n0", "n1"}


def test_hcas_without_host_name_are_reported_with_their_ports() -> None:
    found = fabric()
    text = "MT4129 ConnectX7   Mellanox Technologies"
    rails = find_rails(renamed(found, {hca(found, "n4", f"mlx5_{index}"): text for index in range(4)}))
    assert "n4" not in rails.attachments
    assert [fault.kind for fault in rails.faults] == ["unnamed_hca"] * 4
    assert "leaf0" in rails.faults[0].where
    assert "port 5" in rails.faults[0].where  # n4 is the fifth node that the generator cabled


def test_names_for_several_machines_are_reported_and_not_placed() -> None:
    found = fabric()
    texts = {
        hca(found, node, f"mlx5_{index}"): f"localhost mlx5_{index}" for node in ("n1", "n2") for index in range(4)
    }
    texts |= {hca(found, "n3", f"mlx5_{index}"): f"n4 mlx5_{index}" for index in range(4)}
    rails = find_rails(renamed(found, texts))
    assert {fault.kind: fault.where for fault in rails.faults} == {
        "generic_host_name": "localhost",
        "duplicate_host_name": "n4",
    }
    assert not {"localhost", "n4"} & rails.attachments.keys()


def test_several_hcas_of_a_node_may_share_a_leaf() -> None:
    rails = find_rails(fabric(hcas=8, leaves=4, cables_per_pair=16))
    assert rails.rail_count == 4
    assert [port.rail for port in rails.attachments["n0"]] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert rails.faults == ()


def test_one_unit_with_shared_leaves_among_others_carries_two_rails_a_leaf() -> None:
    found = fabric()
    moves = {hca(found, f"n{node}", "mlx5_1"): leaf(found, "leaf4") for node in range(8, 16)}
    moves |= {hca(found, f"n{node}", "mlx5_3"): leaf(found, "leaf6") for node in range(8, 16)}
    rails = find_rails(recabled(found, moves))
    carried = {entry.description: entry.carries for entry in rails.leaves.values() if entry.unit == 1}
    assert carried == {"leaf4": (0, 1), "leaf6": (2, 3)}
    assert [port.rail for port in rails.attachments["n8"]] == [0, 1, 2, 3]
    assert not kinds(rails) & {"swapped_hcas", "misplaced_hca", "missing_rail"}


def test_a_classic_tree_with_one_hca_a_node_has_one_rail_and_a_unit_for_each_leaf() -> None:
    rails = find_rails(fabric(hcas=1, leaves=4))
    assert (rails.rail_count, len(rails.units), rails.faults) == (1, 4, ())


def test_two_separate_parts_are_reported() -> None:
    rails = find_rails(fabric(spines=0))
    assert len(of_kind(rails, "isolated_part")) == 7  # 8 leaves that nothing joins


@given(
    st.integers(1, 12), st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4, 8]), st.integers(0, 3), st.integers(1, 2)
)
def test_distance_is_symmetric_and_zero_only_to_itself(
    nodes: int, hcas: int, leaves: int, spines: int, pods: int
) -> None:
    found = rail_optimized_fabric(nodes=nodes, hcas=hcas, leaves=leaves, spines=spines, pods=pods, cores_per_spine=1)
    distance = find_rails(found).leaf_distance
    for (a, b), length in distance.items():
        assert distance[b, a] == length
        assert (length == 0) == (a == b)


@given(st.permutations([f"n{index}" for index in range(16)]))
def test_other_names_give_the_same_rails(names: list[str]) -> None:
    plain = find_rails(fabric())
    other = find_rails(rail_optimized_fabric(**UNITS, names=names))
    assert sorted(map(len, other.units)) == sorted(map(len, plain.units))
    for old, new in zip([f"n{index}" for index in range(16)], names, strict=True):
        assert [port.rail for port in other.attachments[new]] == [port.rail for port in plain.attachments[old]]

"""Storage and management networks that compute nodes have HCAs on: no rails, no units, no faults of their own."""

from __future__ import annotations

import dataclasses

import pytest

from opsk.fabric.networks import find_networks
from opsk.fabric.rails import Rails, find_rails
from tests.fakes.faulty_fabrics import Network, Site, Workshop

SITE = Site(nodes=44, unit_nodes=12, spines=4, cables_per_pair=3)
"""Four units, the last of 8 nodes, of 8 rails."""
THREE_TIERS = Site(nodes=40, unit_nodes=10, spines=5, cables_per_pair=2, pods=2, cores_per_spine=32)

NETWORKS = {
    "apart, leaves of units": Network(leaf_nodes=12),
    "apart, leaves of other groups": Network(leaf_nodes=16),
    "apart, one server": Network(leaf_nodes=12, servers=1),
    "apart, servers without telling names": Network(leaf_nodes=12, server="x{}y", server_hcas=4),
    "apart, many servers without telling names": Network(leaf_nodes=12, server="x{}y", servers=10),
    "apart, servers behind other leaves": Network(leaf_nodes=12, behind=True),
    "apart, named": Network(leaf_nodes=12, servers=0, name="stor-leaf-{}", spine_name="stor-spine-{}"),
    "apart, leaves of other groups, no server": Network(leaf_nodes=16, servers=0),
    "apart, leaves of units, no server": Network(leaf_nodes=12, servers=0),
    "apart, one HCA of each node": Network(leaf_nodes=12, hcas=1),
    "own spines": Network(leaf_nodes=12, joined_to=4),
    "own spines, leaves of other groups": Network(leaf_nodes=16, joined_to=4),
    "own spines, servers behind other leaves": Network(leaf_nodes=12, joined_to=4, behind=True),
    "common spines": Network(leaf_nodes=12, shared_spines=2, servers=6),
    "common spines, leaves of other groups": Network(leaf_nodes=16, shared_spines=4),
    "all spines, leaves of units": Network(leaf_nodes=12, shared_spines=4, servers=6),
    "all spines, leaves of units, named": Network(leaf_nodes=12, shared_spines=4, servers=0, name="stor{}"),
    "common spines, named": Network(leaf_nodes=16, shared_spines=2, servers=0, name="storage-sw{}"),
    "common spines, servers without telling names": Network(leaf_nodes=16, shared_spines=2, server="x{}y", servers=6),
    "common spines, servers behind other leaves": Network(leaf_nodes=16, shared_spines=2, behind=True),
    "common spines, leaves of units, servers behind other leaves": Network(
        leaf_nodes=12, shared_spines=2, behind=True, servers=6
    ),
}


def found_with(network: Network, site: Site = SITE) -> tuple[Workshop, Rails, list[str]]:
    found = Workshop(site)
    leaves = found.add_network(network)
    return found, find_rails(found.fabric()), leaves


@pytest.mark.parametrize(
    ("name", "site"),
    [(name, site) for name, network in NETWORKS.items() for site in (SITE, THREE_TIERS)[bool(network.joined_to) :]],
    ids=lambda value: value if isinstance(value, str) else f"{value.pods} pods",
)
def test_a_storage_network_forms_no_rail_and_no_unit(name: str, site: Site) -> None:
    network = NETWORKS[name]
    found, rails, leaves = found_with(network, site)
    assert rails.rail_count == 8
    assert [len(unit) for unit in rails.units] == [
        min(site.unit_nodes, site.nodes - u * site.unit_nodes) for u in range(4)
    ]
    assert {rails.leaves[leaf].role for leaf in leaves} == {"storage"}
    assert {leaf.role for leaf in rails.leaves.values() if leaf.unit is not None} == {"compute"}
    assert {rails.host_roles[network.server.format(index + 1)] for index in range(network.servers)} <= {"storage"}
    assert all(len(ports) == 8 for ports in rails.attachments.values())
    assert rails.faults == ()
    networks = find_networks(found.fabric(), rails)
    apart = not network.shared_spines and not network.joined_to
    assert [each.role for each in networks] == (["compute", "storage"] if apart else ["compute"])


@pytest.mark.parametrize("name", [name for name in NETWORKS if "no server" not in name and "named" not in name])
def test_a_management_network_is_one(name: str) -> None:
    network = dataclasses.replace(NETWORKS[name], server="login{}")
    found, rails, leaves = found_with(network, THREE_TIERS)
    assert {rails.leaves[leaf].role for leaf in leaves} == {"management"}
    assert (rails.rail_count, rails.faults) == (8, ())
    assert {each.role for each in find_networks(found.fabric(), rails)} - {"compute"} <= {"management"}


@pytest.mark.parametrize("unit", [0, 3])
def test_faults_of_the_rails_are_found_beside_a_storage_network(unit: int) -> None:
    found = Workshop(SITE)
    found.add_network(NETWORKS["apart, leaves of other groups"])
    first = unit * SITE.unit_nodes
    planted = [
        found.swap(found.node(first + 1), 1, 4),
        found.to_other_rail(found.node(first + 2), 2, unit, 3),
        found.lose_hca(found.node(first + 3), 5),
        found.lose_uplinks(found.leaf(unit, 6), found.spine(1)),
    ]
    faults = find_rails(found.fabric()).faults
    assert [fault for fault in planted if not fault.found_in(faults)] == []
    assert {fault.kind for fault in faults} == {fault.kind for fault in planted}


def test_an_hca_for_storage_exchanged_with_one_of_a_rail_is_found() -> None:
    found = Workshop(SITE)
    found.add_network(NETWORKS["apart, leaves of units"])
    node = found.node(5)
    compute = found.hca(node, 1)
    storage = next(guid for guid, hca in found.hcas.items() if (hca.node, hca.device) == (node, "mlx5_1"))
    first, second = found.cable_of(compute), found.cable_of(storage)
    leaf, server = (cable.a_guid if cable.a_guid in found.switches else cable.b_guid for cable in (first, second))
    found.move(compute, server)
    found.move(storage, leaf)
    assert [(fault.kind, fault.where) for fault in find_rails(found.fabric()).faults] == [
        ("swapped_hcas", f"{node}: mlx5_3 and mlx5_1")
    ]


def test_two_planes_with_half_of_the_hcas_each_are_both_compute() -> None:
    found = Workshop(dataclasses.replace(SITE, cables_per_pair=6))
    for unit in range(4):
        for rail in range(8):
            for spine in range(4):
                if (rail < 4) != (spine < 2):
                    found.drop(found.between(found.leaf(unit, rail), found.spine(spine)))
    found.add_host("oss1", found.leaf(0, 0), found.leaf(0, 1))
    rails = find_rails(found.fabric())
    assert rails.rail_count == 8
    assert {leaf.role for leaf in rails.leaves.values()} == {"compute"}
    assert [network.role for network in find_networks(found.fabric(), rails)] == ["compute", "compute"]


@pytest.mark.parametrize("servers", [0, 1, 3])
def test_each_rail_of_a_rail_only_fabric_is_compute_with_servers_on_one(servers: int) -> None:
    found = Workshop(Site(nodes=12, unit_nodes=12, spines=0, cables_per_pair=0))
    for index in range(servers):
        found.add_host(f"oss{index}", found.leaf(0, 3))
    rails = find_rails(found.fabric())
    assert (rails.rail_count, {leaf.role for leaf in rails.leaves.values()}) == (8, {"compute"})
    assert {network.role for network in find_networks(found.fabric(), rails)} == {"compute"}


def test_a_leaf_of_servers_and_a_unit_cut_off_change_no_role() -> None:
    found = Workshop(SITE)
    found.mess()
    found.isolate(1)
    found.cut_off(found.leaf(3, 0))
    rails = find_rails(found.fabric())
    assert {leaf.role for leaf in rails.leaves.values()} == {"compute"}
    assert rails.rail_count == 8


@pytest.mark.parametrize("shared_spines", [0, 2, 4])
def test_a_single_unit_has_a_storage_network_too(shared_spines: int) -> None:
    found = Workshop(Site(nodes=16, unit_nodes=16, spines=4, cables_per_pair=4))
    leaves = found.add_network(Network(leaf_nodes=16, shared_spines=shared_spines, cables_per_pair=4))
    rails = find_rails(found.fabric())
    assert (rails.rail_count, rails.faults) == (8, ())
    assert {leaf.guid for leaf in rails.leaves.values() if leaf.role == "storage"} == set(leaves)


def test_a_rail_with_a_spine_of_its_own_and_servers_stays_one_beside_a_storage_network() -> None:
    found = Workshop(Site(nodes=24, unit_nodes=8, spines=8, cables_per_pair=8))
    for unit in range(3):
        for rail in range(8):
            for spine in set(range(8)) - {rail}:
                found.drop(found.between(found.leaf(unit, rail), found.spine(spine)))
    found.add_host("oss77", found.leaf(2, 0), found.leaf(2, 1))
    leaves = found.add_network(Network(leaf_nodes=12))
    rails = find_rails(found.fabric())
    assert rails.rail_count == 8
    assert {leaf.guid for leaf in rails.leaves.values() if leaf.role == "storage"} == set(leaves)
    assert [network.role for network in find_networks(found.fabric(), rails)] == ["compute"] * 8 + ["storage"]

"""Which part is which fabric: by the site, by names of switches, by who hangs on it; servers on the compute fabric."""

from __future__ import annotations

import dataclasses

import pytest

from opsk.fabric.design import rail_optimized_fabric
from opsk.fabric.fabric import Fabric
from opsk.fabric.networks import Network, find_networks
from opsk.fabric.node.node_topology import Nic, NodeTopology
from opsk.fabric.rails import find_rails

COMPUTE = rail_optimized_fabric(nodes=8, hcas=4, leaves=4, spines=2)


def second(fabric: Fabric, *, names: str = "") -> Fabric:
    """Give every guid another first digit, and every switch a name with a prefix: a part of its own."""
    guids = {guid: f"f{guid[1:]}" for guid in (*fabric.switches, *fabric.hcas)}
    return Fabric(
        switches={
            guids[g]: dataclasses.replace(s, guid=guids[g], description=f"{names}{s.description}")
            for g, s in fabric.switches.items()
        },
        hcas={guids[g]: dataclasses.replace(h, guid=guids[g]) for g, h in fabric.hcas.items()},
        cables=tuple(
            dataclasses.replace(c, a_guid=guids[c.a_guid], b_guid=guids[c.b_guid]) for c in fabric.cables
        ),
    )  # fmt: skip


def renamed(fabric: Fabric, device: str) -> Fabric:
    hcas = {
        guid: dataclasses.replace(hca, description=f"{hca.node} {device}", device=device)
        for guid, hca in fabric.hcas.items()
    }
    return dataclasses.replace(fabric, hcas=hcas)


def both(one: Fabric, other: Fabric) -> Fabric:
    return Fabric(
        switches={**one.switches, **other.switches},
        hcas={**one.hcas, **other.hcas},
        cables=(*one.cables, *other.cables),
    )


def networks(fabric: Fabric, **options: dict[str, set[str]]) -> tuple[Network, ...]:
    return find_networks(fabric, find_rails(fabric), **options)  # type: ignore[arg-type]


HOSTS = [f"n{index}" for index in range(8)]
STORAGE = renamed(
    second(rail_optimized_fabric(nodes=12, hcas=1, leaves=1, spines=0, names=[*HOSTS, "oss1", "oss2", "mds1", "mds2"])),
    "mlx5_8",
)
"""One HCA of each compute node, and four servers."""


def test_a_fabric_of_compute_nodes_is_the_compute_fabric() -> None:
    (only,) = networks(COMPUTE)
    assert (only.role, only.shared, only.link_layer, only.component) == ("compute", (), "infiniband", 0)
    assert (len(only.switches), only.hosts) == (6, tuple(HOSTS))
    assert only.why == "hosts on it: 8 compute"


def test_servers_with_one_hca_of_each_node_are_a_storage_fabric() -> None:
    compute, storage = networks(both(COMPUTE, STORAGE))
    assert (compute.role, compute.shared, compute.component) == ("compute", (), 0)
    assert (storage.role, storage.shared, storage.component) == ("storage", (), 1)
    assert "8 HCAs of compute nodes against 32" in storage.why
    assert len(storage.hosts) == 12


def test_servers_on_the_compute_fabric_share_it() -> None:
    shared = rail_optimized_fabric(nodes=12, hcas=1, leaves=1, spines=0, names=[*HOSTS, "oss1", "oss2", "mds1", "mds2"])
    (only,) = networks(shared)
    assert (only.role, only.shared) == ("compute", ("storage",))
    assert "storage servers hang on leaf0" in only.why


def test_each_rail_of_a_rail_only_fabric_is_compute() -> None:
    found = networks(rail_optimized_fabric(nodes=8, hcas=4, leaves=4, spines=0))
    assert [network.role for network in found] == ["compute"] * 4
    assert [network.component for network in found] == [0, 1, 2, 3]


def test_names_of_switches_tell_where_hosts_do_not() -> None:
    nodes_only = renamed(second(rail_optimized_fabric(nodes=8, hcas=1, leaves=1, spines=0), names="stor-"), "mlx5_8")
    _, storage = networks(both(COMPUTE, nodes_only))
    assert storage.role == "storage"
    assert "stor-leaf0" in storage.why


def test_management_hosts_by_themselves_are_a_management_fabric() -> None:
    hosts = second(rail_optimized_fabric(nodes=2, hcas=1, leaves=1, spines=0, names=["login1", "ufm1"]))
    assert [network.role for network in networks(both(COMPUTE, hosts))] == ["compute", "management"]


def test_the_site_knows_better() -> None:
    fabric = both(COMPUTE, renamed(second(rail_optimized_fabric(nodes=8, hcas=1, leaves=1, spines=0), names="x"), "m"))
    found = networks(fabric, site_roles={"storage": {"xleaf0"}})
    assert [(network.role, network.why) for network in found][1] == (
        "storage",
        "the site says so of 1 of its 1 switches",
    )
    strange = networks(COMPUTE, site_roles={"management": {"n*"}})
    assert [(network.role, network.why) for network in strange] == [
        ("management", "the site says so of all of its hosts")
    ]


def test_switches_without_any_named_host_have_no_role() -> None:
    bare = dataclasses.replace(
        COMPUTE, hcas={guid: dataclasses.replace(hca, node=None) for guid, hca in COMPUTE.hcas.items()}
    )
    assert [(network.role, network.hosts) for network in networks(bare)] == [(None, ())]


def test_an_adapter_without_any_switch_is_no_fabric() -> None:
    alone = dataclasses.replace(COMPUTE, cables=())
    assert {len(network.switches) for network in networks(alone)} == {1}
    assert networks(Fabric(switches={}, hcas=COMPUTE.hcas, cables=())) == ()


@pytest.mark.parametrize(("layer", "count"), [("Ethernet", 1), ("ethernet", 1), ("InfiniBand", 0), (None, 0)])
def test_ethernet_ports_that_nodes_tell_are_a_network_of_their_own(layer: str | None, count: int) -> None:
    nodes = {"n0": NodeTopology(nics=(Nic(name="mlx5_9", link_layer=layer),))}
    found = find_networks(COMPUTE, find_rails(COMPUTE), topologies=nodes)
    assert [(network.link_layer, network.hosts, network.component) for network in found[1:]] == [
        ("ethernet", ("n0",), None)
    ] * count

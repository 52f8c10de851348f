"""Each GPU gets one of its nearest NICs, each NIC as few GPUs as can be; NICs are found again on the fabric."""

from __future__ import annotations

from collections import Counter
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from opsk.fabric.leaves.leaf import Attachment
from opsk.fabric.node.affinity import assign_nics, compute_nic_affinity, find_fabric_nics
from opsk.fabric.node.dialects import read_node
from opsk.fabric.node.node_topology import Gpu, Nic, NodeTopology, PathClass
from tests.fakes.node_dumps import FakeNode, nccl_xml, topo_matrix


def node(rows: list[str], **nics: object) -> NodeTopology:
    """Return a node of path classes, a word a NIC, a row a GPU; NICs are mlx5_0, mlx5_1, ..."""
    paths = [row.split() for row in rows]
    return NodeTopology(
        gpus=tuple(Gpu(index=index) for index in range(len(rows))),
        nics=tuple(Nic(name=f"mlx5_{index}", device=f"mlx5_{index}") for index in range(len(paths[0]))),
        nic_paths={
            (gpu, f"mlx5_{nic}"): PathClass(word) for gpu, row in enumerate(paths) for nic, word in enumerate(row)
        },
    )


def fabric(*devices: str, guids: list[str] | None = None) -> tuple[Attachment, ...]:
    return tuple(
        Attachment(
            node="n", device=device, guid=guids[place] if guids else f"{place:016x}", leaf="l", rail=place,
            bytes_per_s=50e9,
        )
        for place, device in enumerate(devices)
    )  # fmt: skip


def test_the_nearest_nic_serves() -> None:
    assert assign_nics(node(["PIX SYS", "NODE PXB"])) == {0: "mlx5_0", 1: "mlx5_1"}


def test_equally_near_nics_go_round_in_order() -> None:
    """As NCCL's ``ncclTopoGetLocalNet`` goes round by the GPU's number."""
    assert list(assign_nics(node(["NODE NODE"] * 4)).values()) == ["mlx5_0", "mlx5_1", "mlx5_0", "mlx5_1"]


def test_a_gpu_with_a_choice_leaves_the_nic_to_one_without() -> None:
    """A800 with 4 NICs, first socket: GPU 0 and 2 may use both, GPU 1 and 3 are next to one each."""
    rows = ["NODE NODE", "PIX NODE", "NODE NODE", "NODE PIX"]
    assert Counter(assign_nics(node(rows)).values()) == {"mlx5_0": 2, "mlx5_1": 2}
    # greedy would give GPU 0 the first NIC, and GPU 1, 2 have no other
    assert Counter(assign_nics(node(["PIX PIX", "PIX SYS", "PIX SYS"])).values()) == {"mlx5_0": 2, "mlx5_1": 1}
    assert assign_nics(node(["PIX PIX", "PIX SYS"])) == {0: "mlx5_1", 1: "mlx5_0"}


@given(st.integers(1, 4).flatmap(
    lambda width: st.lists(st.lists(st.sampled_from(["PIX", "SYS"]), min_size=width, max_size=width).map(" ".join),
                           min_size=1, max_size=5)
))  # fmt: skip
def test_no_choice_of_nearest_nics_is_more_even(rows: list[str]) -> None:
    """Against every choice there is: the sum of squares of the loads is the least."""
    topology = node(rows)
    served = assign_nics(topology)
    near = [topology.nearest_nics(gpu) for gpu in range(len(rows))]
    assert all(entry is not None and served[gpu] in entry[1] for gpu, entry in enumerate(near))
    best = min(
        sum(count * count for count in Counter(choice).values())
        for choice in product(*(entry[1] for entry in near if entry is not None))
    )
    assert sum(count * count for count in Counter(served.values()).values()) == best


def test_nics_off_the_fabric_serve_nobody() -> None:
    topology = node(["PIX SYS SYS", "SYS PIX SYS"])
    assert assign_nics(topology, ["mlx5_2"]) == {0: "mlx5_2", 1: "mlx5_2"}
    assert assign_nics(topology, ["HCA-1", "HCA-2"]) == {0: "mlx5_0", 1: "mlx5_1"}  # HCA-1 is mlx5_0
    assert assign_nics(topology, ["ib7"]) == {}


def test_without_a_fabric_slow_and_ethernet_ports_are_left_out() -> None:
    nics = (
        Nic(name="eth0", bytes_per_s=1.25e9, link_layer="Ethernet"),
        Nic(name="mlx5_0", bytes_per_s=50e9, link_layer="InfiniBand"),
        Nic(name="mlx5_1", bytes_per_s=50e9, link_layer="Ethernet"),
        Nic(name="mlx5_bond_0", bytes_per_s=25e9, link_layer="Ethernet"),
        Nic(name="mlx5_2", bytes_per_s=50e9, link_layer="InfiniBand", state="DOWN"),
    )
    assert [nic.name for nic in find_fabric_nics(NodeTopology(nics=nics))] == ["mlx5_0", "mlx5_1"]
    assert [nic.name for nic in find_fabric_nics(NodeTopology(nics=nics[:1]))] == ["eth0"]


def test_positions_are_those_of_the_attachments() -> None:
    """A DGX with 4 of its HCAs on the compute fabric: HCA-1, 2, 5, 6 are mlx5_0, 1, 4, 5."""
    rows = [" ".join("PIX" if nic == place else "SYS" for nic in range(6)) for place in (0, 1, 4, 5)]
    affinity = compute_nic_affinity(node(rows), fabric("HCA-1", "HCA-2", "HCA-5", "HCA-6"))
    assert affinity.positions == {0: 0, 1: 1, 2: 2, 3: 3}
    assert affinity.nics == {0: "mlx5_0", 1: "mlx5_1", 2: "mlx5_4", 3: "mlx5_5"}
    assert affinity.problems == ()


def test_a_guid_counts_more_than_a_name() -> None:
    fake = FakeNode(sockets=1, switches=2, gpus_per_switch=1)
    topology = read_node(nccl_xml(fake), source="n")
    crossed = fabric("mlx5_0", "mlx5_1", guids=[fake.guid(1), fake.guid(0)])
    affinity = compute_nic_affinity(topology, crossed)
    assert affinity.positions == {0: 1, 1: 0}
    assert affinity.guids == {0: fake.guid(0), 1: fake.guid(1)}


def test_nics_without_names_are_matched_by_order_and_that_is_said() -> None:
    fake = FakeNode(sockets=1, switches=2, gpus_per_switch=1)
    topology = read_node(nccl_xml(fake, plain=True), source="n")
    affinity = compute_nic_affinity(topology, fabric("mlx5_4", "mlx5_5"))
    assert affinity.positions == {0: 0, 1: 1}
    assert "matched with the fabric's by order" in affinity.problems[0]


def test_other_nics_than_the_fabrics_are_told() -> None:
    topology = read_node(topo_matrix(FakeNode()), source="m")
    strange = compute_nic_affinity(topology, fabric("ibp12s0", "ibp13s0"))
    assert strange.positions == {}
    assert "are not those that the fabric names" in strange.problems[0]
    short = compute_nic_affinity(topology, fabric("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_9"))
    assert "on the fabric but not in the node's topology: mlx5_9" in short.problems[0]
    assert set(short.positions.values()) == {0, 1, 2}

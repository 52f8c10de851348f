"""Every dialect gives the node back that it was written of; cuts and damage never crash a reader."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.errors import InputError
from opsk.fabric.node.dialects import holds_node, read_node
from opsk.fabric.node.infiniband_tree import read_infiniband_tree
from opsk.fabric.node.node_topology import NodeTopology
from tests.fakes.node_dumps import (
    FakeNode,
    lstopo_xml,
    nccl_xml,
    nvlink_status,
    pairs,
    smi_query,
    smi_query_xml,
    sysfs_files,
    topo_matrix,
    ttar,
)

NODES = st.builds(
    FakeNode,
    sockets=st.integers(1, 2),
    switches=st.integers(1, 3),
    gpus_per_switch=st.integers(1, 2),
    nics_per_switch=st.integers(0, 2),
    nvlinks=st.sampled_from([0, 4, 12, 18]),
    domain=st.sampled_from(
        [
            ("00000000-0000-0000-0000-000000000000", "0"),
            ("5f1a2b3c-0000-4000-8000-0123456789ab", "32766"),
            ("N/A", "N/A"),
        ]
    ),
)

WRITERS: dict[str, Callable[[FakeNode], str]] = {
    "matrix": topo_matrix,
    "old_matrix": lambda node: topo_matrix(node, legend=False),
    "query": smi_query,
    "query_xml": smi_query_xml,
    "nvlink": nvlink_status,
    "nccl": nccl_xml,
    "nccl_vm": lambda node: nccl_xml(node, plain=True),
    "lstopo1": lambda node: lstopo_xml(node, version=""),
    "lstopo2": lstopo_xml,
    "lstopo3": lambda node: lstopo_xml(node, version="3.0"),
    "sysfs": lambda node: ttar(sysfs_files(node)),
}


def gpu_paths(topology: NodeTopology) -> dict[tuple[int, int], str]:
    return {pair: str(path) for pair, path in topology.gpu_paths.items()}


@given(NODES, st.booleans())
def test_a_matrix_gives_back_gpus_nics_and_paths(node: FakeNode, legend: bool) -> None:
    read = read_node(topo_matrix(node, legend=legend), source="m")
    assert [(gpu.index, gpu.numa, gpu.cpus) for gpu in read.gpus] == [
        (index, socket, f"{8 * socket}-{8 * socket + 7}") for index, (socket, _) in enumerate(node.gpus)
    ]
    assert [nic.device for nic in read.nics] == [f"mlx5_{index}" for index in range(len(node.nics))]
    assert gpu_paths(read) == {pair: node.gpu_path(*pair) for pair in pairs(node)}
    assert read.nic_paths == {
        (gpu, f"mlx5_{nic}"): node.path(place, other)
        for gpu, place in enumerate(node.gpus)
        for nic, other in enumerate(node.nics)
    }
    assert read.problems == ()


@given(NODES)
def test_query_text_and_xml_say_the_same(node: FakeNode) -> None:
    text, xml = read_node(smi_query(node), source="q"), read_node(smi_query_xml(node), source="q")
    assert text.gpus == xml.gpus
    assert [(gpu.pci, gpu.uuid) for gpu in text.gpus] == [
        (node.gpu_pci(gpu), node.uuid(gpu)) for gpu in range(len(node.gpus))
    ]
    joined = node.domain[0].startswith("5f1a")
    assert text.fabric_domain == (f"{node.domain[0]}.{node.domain[1]}" if joined else None)
    assert text.problems == xml.problems == ()


@given(NODES)
def test_nccl_knows_the_near_nics_and_nvswitches(node: FakeNode) -> None:
    read = read_node(nccl_xml(node), source="n")
    paths = {pair: node.gpu_path(*pair) for pair in pairs(node)}
    # NCCL's file does not list host bridges: what shares a socket is PHB at best.
    assert gpu_paths(read) == {pair: "PHB" if path == "NODE" else path for pair, path in paths.items()}
    assert {pair for pair, path in read.nic_paths.items() if path == "PIX"} == {
        (gpu, f"mlx5_{nic}")
        for gpu, place in enumerate(node.gpus)
        for nic, other in enumerate(node.nics)
        if place == other
    }
    assert {nic.guid for nic in read.nics} == {node.guid(nic) for nic in range(len(node.nics))}
    assert {nic.bytes_per_s for nic in read.nics} <= {50e9}  # 400,000 Mbit/s


@given(NODES)
def test_a_vms_file_pairs_gpus_and_nics_by_the_pci_tree_alone(node: FakeNode) -> None:
    whole, plain = read_node(nccl_xml(node), source="n"), read_node(nccl_xml(node, plain=True), source="n")
    assert [gpu.pci for gpu in plain.gpus] == [gpu.pci for gpu in whole.gpus]
    assert sorted(plain.nic_paths.values()) == sorted(whole.nic_paths.values())
    assert plain.gpu_paths == {}  # NVLink is not told, so neither is how near two GPUs are


@given(NODES, st.sampled_from(["", "2.0", "3.0"]))
def test_lstopo_gives_back_gpus_nics_and_bandwidth(node: FakeNode, version: str) -> None:
    read = read_node(lstopo_xml(node, version=version), source="l")
    assert [(gpu.pci, gpu.uuid, gpu.numa) for gpu in read.gpus] == [
        (node.gpu_pci(gpu), node.uuid(gpu), socket) for gpu, (socket, _) in enumerate(node.gpus)
    ]
    assert {(nic.device, nic.guid) for nic in read.nics} == {
        (f"mlx5_{nic}", node.guid(nic)) for nic in range(len(node.nics))
    }
    assert read.nic_paths == {
        (gpu, f"mlx5_{nic}"): node.path(place, other)
        for gpu, place in enumerate(node.gpus)
        for nic, other in enumerate(node.nics)
    }
    # 25,000 MB/s a link, as written
    rates = {path.bytes_per_s for path in read.gpu_paths.values()}
    assert rates == ({node.nvlinks * 25e9} if node.nvlinks and pairs(node) else set())


@given(NODES)
def test_a_copy_of_sysfs_gives_back_the_nics(node: FakeNode) -> None:
    if not node.nics:
        return
    read = read_node(ttar(sysfs_files(node)), source="s")
    assert [(nic.device, nic.pci, nic.numa, nic.guid, nic.bytes_per_s, nic.state) for nic in read.nics] == [
        (f"mlx5_{nic}", node.nic_pci(nic), socket, node.guid(nic), 50e9, "ACTIVE")
        for nic, (socket, _) in enumerate(node.nics)
    ]
    assert read.host == "n07"
    assert read_infiniband_tree(sysfs_files(node), source="s").nics == read.nics


@given(NODES)
def test_a_captured_file_of_several_commands_is_one_node(node: FakeNode) -> None:
    text = f"$ nvidia-smi -L\n{nvlink_status(node)}\n$ topo -m\n{topo_matrix(node)}\n# q\n{smi_query(node)}"
    read = read_node(text, source="c")
    assert len(read.gpus) == len(node.gpus)
    assert all(gpu.uuid and gpu.pci and gpu.cpus and gpu.nvlinks == node.nvlinks for gpu in read.gpus)
    assert gpu_paths(read) == {pair: node.gpu_path(*pair) for pair in pairs(node)}
    assert read.problems == ()


@pytest.mark.parametrize("name", WRITERS)
@given(node=NODES, share=st.floats(0, 1), seed=st.integers(0, 2**32))
def test_no_cut_and_no_damage_crashes_a_reader(name: str, node: FakeNode, share: float, seed: int) -> None:
    text = WRITERS[name](node)
    cut = text[: int(len(text) * share)]
    at = seed % (len(text) + 1)
    damage = ("\x00", "<", "&lol;", "GPU9999\t", "\n\n\n", "\u202e", "9" * 50, "<system>", "</pci>", "\ud800")[
        seed % 10
    ]
    for damaged in (cut, text[:at] + damage + text[at + seed % 7 :], text[:at] + text[at + seed % 300 :]):
        try:
            whole = read_node(damaged, source="d")
        except InputError as error:
            assert error.message.startswith("d:")  # noqa: PT017
            continue
        indices = {gpu.index for gpu in whole.gpus}
        assert len(indices) == len(whole.gpus)
        assert len({nic.name for nic in whole.nics}) == len(whole.nics)
        assert all(gpu in indices for gpu, _ in whole.nic_paths)
        assert all(first in indices and second in indices for first, second in whole.gpu_paths)
        whole.hb_groups()


@given(st.text(max_size=300))
def test_any_text_is_read_or_refused(text: str) -> None:
    assert holds_node(text) in (True, False)
    try:
        node = read_node(text, source="t")
    except InputError as error:
        assert error.message.startswith("t")  # noqa: PT017
        return
    assert node.source == "t"


@pytest.mark.parametrize("name", WRITERS)
def test_what_is_left_of_a_cut_file_is_sound(name: str) -> None:
    node = FakeNode()
    text = WRITERS[name](node)
    whole = read_node(text, source="w")
    cut = read_node(text[: len(text) * 3 // 5], source="c")
    assert {gpu.uuid for gpu in cut.gpus} <= {gpu.uuid for gpu in whole.gpus} | {None}
    assert {nic.name for nic in cut.nics} <= {nic.name for nic in whole.nics} | {"NIC0", "NIC1", "NIC2", "NIC3"}
    assert all(whole.gpu_paths[pair] == path for pair, path in cut.gpu_paths.items())
    if name not in {"nvlink", "sysfs"}:  # their devices stand one after the other: a cut cannot be seen
        assert cut.problems


def test_a_text_of_something_else_is_refused() -> None:
    assert not holds_node('Switch 36 "S-0002c902004"  # "MF0;sw" enhanced port 0 lid 1 lmc 0\n')
    with pytest.raises(InputError, match="no description of a node"):
        read_node("hello\n", source="x")

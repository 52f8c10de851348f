"""Several files of one node are one node, whatever their order; what they contradict each other in is said."""

from __future__ import annotations

from itertools import permutations

from opsk.fabric.node.dialects import read_node
from opsk.fabric.node.node_topology import Gpu, Nic, NodeTopology, PathClass, merge_nodes
from tests.fakes.node_dumps import FakeNode, lstopo_xml, nccl_xml, smi_query, sysfs_files, topo_matrix, ttar


def test_any_order_of_files_gives_the_same_devices() -> None:
    fake = FakeNode()
    texts = {"q": smi_query(fake), "m": topo_matrix(fake), "s": ttar(sysfs_files(fake))}
    parts = [read_node(text, source=name) for name, text in texts.items()]
    wholes = [merge_nodes(order) for order in permutations(parts)]
    assert all(whole.gpus == wholes[0].gpus and set(whole.nics) == set(wholes[0].nics) for whole in wholes)
    assert all(gpu.uuid and gpu.cpus and gpu.numa is not None for gpu in wholes[0].gpus)
    assert all(nic.guid and nic.label and nic.bytes_per_s for nic in wholes[0].nics)
    assert {whole.problems for whole in wholes} == {()}


def test_a_gpu_is_the_same_by_address_where_the_numbers_differ() -> None:
    """CUDA may number GPUs otherwise than nvidia-smi does."""
    smi = NodeTopology(gpus=(Gpu(index=0, pci="0000:01:00.0"), Gpu(index=1, pci="0000:02:00.0")), dialect="a")
    other = NodeTopology(
        gpus=(Gpu(index=0, pci="0000:02:00.0", numa=1), Gpu(index=1, pci="0000:01:00.0", numa=0)),
        nics=(Nic(name="mlx5_0"),),
        nic_paths={(0, "mlx5_0"): PathClass.PIX, (1, "mlx5_0"): PathClass.SYS},
        dialect="b",
    )
    whole = merge_nodes([smi, other])
    assert [(gpu.index, gpu.numa) for gpu in whole.gpus] == [(0, 0), (1, 1)]
    assert whole.nic_paths == {(0, "mlx5_0"): PathClass.SYS, (1, "mlx5_0"): PathClass.PIX}


def test_a_nic_without_a_name_takes_that_of_its_address() -> None:
    fake = FakeNode()
    whole = merge_nodes([read_node(lstopo_xml(fake), source="l"), read_node(nccl_xml(fake, plain=True), source="n")])
    assert [nic.name for nic in whole.nics] == [f"mlx5_{nic}" for nic in range(4)]


def test_two_nodes_taken_for_one_are_noticed() -> None:
    one, two = Gpu(index=0, uuid="GPU-a"), Gpu(index=0, uuid="GPU-b")
    whole = merge_nodes([NodeTopology(gpus=(one,)), NodeTopology(gpus=(two,))])
    assert whole.gpus == (one,)
    assert "GPU 0 has uuid GPU-a in one file and GPU-b in another" in whole.problems[0]

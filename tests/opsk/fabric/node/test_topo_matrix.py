"""The odd sides of ``nvidia-smi topo -m``: wrapped lines, quotations, tables, cuts, old words, halves that differ."""

from __future__ import annotations

from opsk.fabric.node.node_topology import NodeTopology
from opsk.fabric.node.topo_matrix import holds_matrix, read_topo_matrix

WHOLE = """\
\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV12\tPXB\t0-15\t0
GPU1\tNV12\t X \tSYS\t16-31\t1
NIC0\tPXB\tSYS\t X
"""


def read(text: str) -> NodeTopology:
    topology = read_topo_matrix(text, source="m")
    assert topology is not None
    return topology


def said(topology: NodeTopology) -> tuple[object, ...]:
    return topology.gpus, topology.nics, topology.gpu_paths, topology.nic_paths


def test_lines_that_a_terminal_wrapped_are_put_together() -> None:
    wrapped = """\
GPU0 GPU1
NIC0 CPU Affinity
NUMA Affinity
GPU0 X NV12
PXB 0-15 0
GPU1 NV12 X SYS
16-31 1
NIC0 PXB SYS X
"""
    assert said(read(wrapped)) == said(read(WHOLE))


def test_quotations_and_tables_are_read() -> None:
    quoted = "".join(f"> {line}\n" for line in WHOLE.splitlines())
    table = "".join("| " + line.strip().replace("\t", " | ") + " |\n" for line in WHOLE.splitlines())
    assert said(read(quoted)) == said(read(table)) == said(read(WHOLE))


def test_an_affinity_list_with_blanks_is_one() -> None:
    assert read(WHOLE.replace("0-15", "0-7, 64-71")).gpus[0].cpus == "0-7,64-71"


def test_a_matrix_without_affinity_and_one_of_a_single_gpu_are_read() -> None:
    bare = read("      GPU0  GPU1\nGPU0   X    PIX\nGPU1  PIX   X\n")
    assert {str(path) for path in bare.gpu_paths.values()} == {"PIX"}
    single = read("\tGPU0\tCPU Affinity\nGPU0\t X \t0-7\n")
    assert [gpu.cpus for gpu in single.gpus] == ["0-7"]


def test_words_of_old_drivers_are_understood() -> None:
    """SOC was what SYS is now, before NUMA nodes and sockets were told apart."""
    old = read("\tGPU0\tGPU1\tmlx5_0\nGPU0\t X \tSOC\tPHB\nGPU1\tSOC\t X \tSOC\nmlx5_0\tPHB\tSOC\t X\n")
    assert old.gpu_paths[0, 1].kind == "SYS"
    assert old.nic_paths[0, "mlx5_0"] == "PHB"


def test_the_last_word_of_a_cut_row_is_not_believed() -> None:
    """NV1 of NV12: the other half of the matrix has the whole word, the cut row has half a word."""
    text = "\tGPU0\tGPU1\tGPU2\nGPU0\t X \tNV12\tNV12\nGPU1\tNV12\t X \tNV1"
    cut = read(text[:-4])
    assert {pair: str(path) for pair, path in cut.gpu_paths.items()} == {(0, 1): "NV12", (0, 2): "NV12"}
    assert any("row GPU1 has 2 of 3 cells" in problem for problem in cut.problems)
    assert any("no row GPU2" in problem for problem in cut.problems)


def test_halves_that_differ_are_reported() -> None:
    topology = read(WHOLE.replace("NIC0\tPXB", "NIC0\tPIX"))
    assert topology.nic_paths[0, "NIC0"] == "PXB"
    assert [problem for problem in topology.problems if "other way" in problem]


def test_a_spoilt_line_costs_that_row_only() -> None:
    topology = read(WHOLE.replace("GPU1\tNV12\t X ", "G@U1\tNV12\t X "))
    assert topology.gpu_paths[0, 1].links == 12
    assert topology.nic_paths[1, "NIC0"] == "SYS"  # from the row of the NIC
    assert any("m:3: no row of the matrix" in problem for problem in topology.problems)


def test_peer_to_peer_says_who_cannot() -> None:
    topology = read(" \tGPU0\tGPU1\n GPU0\tX\tCNS\n GPU1\tCNS\tX\n")
    assert (topology.gpu_paths, dict(topology.p2p)) == ({}, {(0, 1): "CNS"})
    assert "GPU 0 and GPU 1 (CNS)" in topology.problems[0]


def test_names_alone_are_no_matrix() -> None:
    assert not holds_matrix("GPU0 is hot\nGPU0 GPU1\n\nnothing\n")


def test_a_hostile_text_of_headers_takes_no_time() -> None:
    assert not holds_matrix("GPU0 GPU1\n" * 50_000)

"""HB domains: a node each, or what a map says."""

from __future__ import annotations

import pytest

from opsk.fabric.hb_domains import HbDomain, find_hb_domains
from opsk.fabric.node.dialects import read_node
from opsk.fabric.node.node_topology import Gpu, GpuPath, NodeTopology, PathClass, merge_nodes
from tests.fakes.node_dumps import FakeNode, smi_query, topo_matrix

RACK = "5f1a2b3c-0000-4000-8000-0123456789ab"
ZERO = "00000000-0000-0000-0000-000000000000"


def test_without_a_map_each_node_is_a_domain() -> None:
    domains, faults = find_hb_domains(["n10", "n2"])
    assert [(domain.name, domain.nodes) for domain in domains] == [("n2", ("n2",)), ("n10", ("n10",))]
    assert faults == ()


def test_a_map_joins_nodes_and_leaves_the_rest_alone() -> None:
    domains, _ = find_hb_domains(["a", "b", "c"], {"rack0": ["a", "b", "not-here"]})
    assert {domain.name: domain.nodes for domain in domains} == {"rack0": ("a", "b"), "c": ("c",)}


def test_a_node_in_two_domains_is_reported_and_stays_in_the_first() -> None:
    domains, faults = find_hb_domains(["a", "b"], {"rack1": ["a"], "rack0": ["a", "b"]})
    assert {domain.name: domain.nodes for domain in domains} == {"rack0": ("a", "b")}
    assert [(fault.kind, fault.where) for fault in faults] == [("node_in_two_hb_domains", "a")]


def told(*, nvlinks: int = 18, domain: tuple[str, str] = (ZERO, "0")) -> NodeTopology:
    """Return a node of 8 GPUs, its NVLinks and its multi-node domain as nvidia-smi tells them."""
    fake = FakeNode(nvlinks=nvlinks, domain=domain)
    return merge_nodes([read_node(smi_query(fake), source="q"), read_node(topo_matrix(fake), source="m")])


def shown(domains: tuple[HbDomain, ...]) -> list[tuple[str, tuple[str, ...], str, int | None]]:
    return [(domain.name, domain.nodes, domain.kind, domain.gpus) for domain in domains]


def test_nodes_of_one_clique_are_one_domain() -> None:
    topologies = {name: told(domain=(RACK, "7")) for name in ("n10", "n2")} | {"n3": told(domain=(RACK, "8"))}
    domains, faults = find_hb_domains([], topologies=topologies)
    assert shown(domains) == [
        (f"{RACK}.7", ("n2", "n10"), "multi_node", 16), (f"{RACK}.8", ("n3",), "multi_node", 8),
    ]  # fmt: skip
    assert faults == ()


def test_the_gpus_of_a_domain_are_not_counted_while_a_node_is_silent() -> None:
    domains, _ = find_hb_domains(["a", "b"], {f"{RACK}.7": ["a", "b"]}, {"a": told(domain=(RACK, "7"))})
    assert shown(domains) == [(f"{RACK}.7", ("a", "b"), "multi_node", None)]


def test_a_uuid_of_zeros_is_a_node_of_its_own() -> None:
    domains, _ = find_hb_domains(["b"], topologies={"a": told()})
    assert shown(domains) == [("a", ("a",), "node", 8), ("b", ("b",), "node", None)]


def test_gpus_without_nvlink_are_domains_of_one() -> None:
    domains, _ = find_hb_domains([], topologies={"a": told(nvlinks=0)})
    assert shown(domains) == [(f"a/gpu{gpu}", ("a",), "none", 1) for gpu in range(8)]


def test_parts_of_a_node_that_nvlink_joins_are_domains() -> None:
    pair = GpuPath(kind=PathClass.NV, links=4)
    paths = {(0, 1): pair, (1, 3): pair, (0, 2): GpuPath(kind=PathClass.SYS)}
    topology = NodeTopology(gpus=tuple(Gpu(index=index) for index in range(4)), gpu_paths=paths)
    domains, _ = find_hb_domains([], topologies={"a": topology})
    assert shown(domains) == [("a/gpu0,1,3", ("a",), "node", 3), ("a/gpu2", ("a",), "none", 1)]


def test_a_node_whose_gpus_name_two_cliques_is_reported() -> None:
    """Most of its GPUs decide where it is."""
    gpus = tuple(Gpu(index=index, fabric_domain=f"{RACK}.{7 if index else 2}") for index in range(4))
    domains, faults = find_hb_domains([], topologies={"a": NodeTopology(gpus=gpus)})
    assert shown(domains) == [(f"{RACK}.7", ("a",), "multi_node", 4)]
    assert [(fault.kind, fault.where, fault.nodes) for fault in faults] == [("node_in_two_hb_domains", "a", ("a",))]


@pytest.mark.parametrize("files", [1, 2, 3])
def test_a_node_whose_files_name_two_domains_is_reported(files: int) -> None:
    """The first file's counts; each further domain is one finding."""
    other = ["00aa2b3c-0000-4000-8000-0123456789ab", "11aa2b3c-0000-4000-8000-0123456789ab"]
    named = [RACK, *other][:files]
    topology = merge_nodes([told(domain=(uuid, "7")) for uuid in named])
    domains, faults = find_hb_domains([], topologies={"a": topology})
    assert shown(domains) == [(f"{RACK}.7", ("a",), "multi_node", 8)]
    assert [(fault.kind, fault.where, fault.evidence) for fault in faults] == [
        ("node_in_two_hb_domains", "a", f"named by {RACK}.7 and by {uuid}.7") for uuid in named[1:]
    ]


def test_a_further_file_that_names_the_same_domain_or_none_is_no_fault() -> None:
    topology = merge_nodes([told(), told(domain=(RACK, "7")), told(domain=(RACK, "7")), told()])
    domains, faults = find_hb_domains([], topologies={"a": topology})
    assert (shown(domains), faults) == ([(f"{RACK}.7", ("a",), "multi_node", 8)], ())


def test_a_node_without_told_links_is_taken_for_one_domain() -> None:
    topology = NodeTopology(gpus=tuple(Gpu(index=index) for index in range(4)))
    domains, _ = find_hb_domains([], topologies={"a": topology})
    assert shown(domains) == [("a", ("a",), "node", 4)]

"""``nvidia-smi -q``: fabric registration, masked and missing values, a report of some GPUs, several reports."""

from __future__ import annotations

import pytest

from opsk.fabric.node.dialects import read_node
from opsk.fabric.node.nvidia_smi import FabricState, read_smi_list
from tests.fakes.node_dumps import FakeNode, nvlink_status, smi_query, smi_query_xml

RACK = "5f1a2b3c-0000-4000-8000-0123456789ab"
ZERO = "00000000-0000-0000-0000-000000000000"


@pytest.mark.parametrize(
    ("state", "cluster", "clique", "domain"),
    [
        ("Completed", RACK, "7", f"{RACK}.7"),
        ("Completed", RACK.upper(), "0", f"{RACK}.0"),
        ("Completed", ZERO, "0", None),
        ("Completed", "N/A", "N/A", None),
        ("N/A", "N/A", "N/A", None),
        ("In Progress", RACK, "7", None),
        ("Completed", RACK, "N/A", None),
        (None, None, None, None),
    ],
)
def test_a_domain_needs_a_registered_gpu_with_a_uuid(
    state: str | None, cluster: str | None, clique: str | None, domain: str | None
) -> None:
    assert FabricState(state=state, status="Success", cluster=cluster, clique=clique).domain == domain


def test_a_registration_that_is_not_done_or_failed_is_told() -> None:
    node = FakeNode(domain=(RACK, "7"))
    for write in (smi_query, smi_query_xml):
        waiting = read_node(write(node).replace("Completed", "In Progress", 1), source="q")
        assert [gpu.fabric_domain is None for gpu in waiting.gpus] == [True] + [False] * 7
        assert "GPU 0" in waiting.problems[0]
        assert "In Progress" in waiting.problems[0]
        failed = read_node(write(node).replace("Success", "Insufficient Resources", 1), source="q")
        assert "ended with Insufficient Resources" in failed.problems[0]


def test_gpus_that_name_two_cliques_are_in_no_one_domain() -> None:
    text = smi_query(FakeNode(domain=(RACK, "7"))).replace(": 7\n", ": 8\n", 1)
    topology = read_node(text, source="q")
    assert topology.fabric_domain is None
    assert topology.fabric_domains == (f"{RACK}.7", f"{RACK}.8")


def test_a_report_without_indentation_or_of_some_gpus_is_read() -> None:
    node = FakeNode()
    flat = "\n".join(line.strip() for line in smi_query(node).splitlines())
    assert read_node(flat, source="q").gpus == read_node(smi_query(node), source="q").gpus
    some = smi_query(node).replace(": 8\n", ": 16\n", 1)
    assert "16 GPUs are attached, 8 are described" in read_node(some, source="q").problems[0]


def test_of_two_reports_in_one_file_the_first_counts() -> None:
    node = FakeNode(domain=(RACK, "7"))
    text = smi_query(node) + smi_query(FakeNode(domain=(RACK, "9")))
    assert read_node(text, source="q").fabric_domain == f"{RACK}.7"


def test_a_masked_uuid_is_no_identity() -> None:
    text = smi_query(FakeNode())
    for gpu in range(8):
        text = text.replace(FakeNode().uuid(gpu), f"GPU-{ZERO}")
    topology = read_node(text, source="q")
    assert len(topology.gpus) == 8
    assert {gpu.uuid for gpu in topology.gpus} == {None}


def test_links_without_a_rate_are_not_active() -> None:
    text = nvlink_status(FakeNode()).replace("26.562 GB/s", "<inactive>", 1).replace("26.562 GB/s", "(new words)", 1)
    topology = read_smi_list(text, source="s")
    assert topology is not None
    assert [gpu.nvlinks for gpu in topology.gpus] == [16] + [18] * 7
    assert topology.gpus[1].nvlink_bytes_per_s == pytest.approx(18 * 26.562e9)
    assert "GPU 0 has 16 active NVLinks, others have 18" in topology.problems[0]

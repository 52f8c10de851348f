"""What the recorded ``sinfo`` of four Slurm releases says of nodes."""

from pathlib import Path

import pytest

from opsk.slurm.commands.node_text import parse_nodes
from opsk.slurm.records import NodeRecord

RECORDED_COLUMNS = [
    "NodeList",
    "StateComplete",
    "StateLong",
    "Gres",
    "GresUsed",
    "CPUsState",
    "AllocMem",
    "Memory",
    "Features",
    "Partition",
    "Reason",
    "Timestamp",
    "User",
    "Comment",
]


@pytest.fixture(params=("22.05", "24.11", "25.11", "26.05"))
def nodes(root: Path, request: pytest.FixtureRequest) -> dict[str, NodeRecord]:
    lines = (root / "tests/data/slurm" / request.param / "sinfo_O.txt").read_text().splitlines()
    text = "".join(line.rstrip() + "|\n" for line in lines)
    return {node.name: node for node in parse_nodes(text, RECORDED_COLUMNS, "|")}


def test_every_node_is_there_with_its_gpus(nodes: dict[str, NodeRecord]) -> None:
    """The cluster had n0 to n7 with ``gpu:h100:8`` each."""
    assert list(nodes) == [f"n{number}" for number in range(8)]
    assert {(node.gpus, node.gpu_type) for node in nodes.values()} == {(8, "h100")}


def test_gpus_in_use_are_told_by_index(nodes: dict[str, NodeRecord]) -> None:
    """``gpu:h100:5(IDX:0-4)`` on n3 in all four recordings."""
    assert (nodes["n3"].gpus_used, nodes["n3"].gpu_indices_used) == (5, (0, 1, 2, 3, 4))


def test_a_drained_node_says_why_and_takes_no_job(nodes: dict[str, NodeRecord]) -> None:
    drained = nodes["n7"]
    assert (drained.state, drained.state_flags) == ("IDLE", ("DRAIN",))
    assert drained.reason == "xid 79: GPU has fallen off the bus (gpu5)"
    assert not drained.is_usable
    assert nodes["n0"].is_usable


def test_the_default_partitions_star_is_no_part_of_its_name(nodes: dict[str, NodeRecord]) -> None:
    assert nodes["n0"].partitions == ("gpu",)


def test_a_node_in_two_partitions_is_one_node() -> None:
    text = "n0|idle|a*|\nn0|idle|b|\n"
    (node,) = parse_nodes(text, ("NodeList", "StateComplete", "Partition"), "|")
    assert node.partitions == ("a", "b")


def test_memory_is_bytes() -> None:
    """Sinfo prints MiB: 100000 MiB are 104,857,600,000 bytes."""
    (node,) = parse_nodes("n0|idle|100000|\n", ("NodeList", "StateComplete", "Memory"), "|")
    assert node.memory_bytes == 104_857_600_000


@pytest.mark.parametrize(
    ("flag", "is_usable"),
    [("MAINTENANCE", False), ("INVALID_REG", False), ("REBOOT_ISSUED", False), ("POWERING_DOWN", False),
     ("PLANNED", True), ("RESERVED", True)],
)  # fmt: skip
def test_a_node_under_maintenance_takes_no_job(flag: str, is_usable: bool) -> None:
    """The words are those of node_state_flag_string; sinfo's short one, MAINT, is not among them."""
    assert NodeRecord(name="n1", state="IDLE", state_flags=(flag,)).is_usable is is_usable

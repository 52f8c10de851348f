"""What partitions are read from scontrol's lines: which is the default one, and how many nodes a job gets at least."""

from __future__ import annotations

import pytest

from opsk.slurm.commands.node_text import parse_partitions
from opsk.slurm.records import PartitionRecord

LINE = (
    "PartitionName={name} AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default={default} QoS=N/A "
    "DefaultTime=01:00:00 DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO MaxNodes=UNLIMITED "
    "MaxTime=UNLIMITED MinNodes={least} LLN=NO MaxCPUsPerNode=UNLIMITED Nodes=n[0-15] State=UP TotalNodes=16"
)


def test_the_default_partition_and_the_least_nodes_are_read() -> None:
    text = "\n".join((LINE.format(name="gpu", default="YES", least=0), LINE.format(name="big", default="NO", least=4)))
    assert parse_partitions(text) == (
        PartitionRecord(name="gpu", is_default=True, min_nodes=1, default_time_s=3600),
        PartitionRecord(name="big", is_default=False, min_nodes=4, default_time_s=3600),
    )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("MaxNodes=4 MaxTime=2-00:00:00 DefaultTime=NONE", (4, 172800, 172800, None, "node")),
        ("MaxNodes=UNLIMITED MaxTime=UNLIMITED DefaultTime=00:30:00", (None, 1800, None, None, "node")),
        # lines of 22.05 to 26.05: DefMemPerNode=UNLIMITED where none is set, MiB where one is
        ("JobDefaults=(null) DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED", (None, None, None, None, "node")),
        ("JobDefaults=(null) DefMemPerNode=1024", (None, None, None, 1 << 30, "node")),
        ("JobDefaults=(null) DefMemPerCPU=2048", (None, None, None, 2 << 30, "cpu")),
        ("JobDefaults=DefCpuPerGPU=14,DefMemPerGPU=4096", (None, None, None, 4 << 30, "gpu")),
        ("JobDefaults=DefMemPerGPU=x DefMemPerCPU=0", (None, None, None, None, "node")),
    ],
)
def test_defaults_and_limits_are_read(words: str, expected: tuple[object, ...]) -> None:
    (part,) = parse_partitions(f"PartitionName=a {words}")
    limits = (part.max_nodes, part.default_time_s, part.max_time_s)
    assert (*limits, part.default_memory_bytes, part.default_memory_each) == expected


def test_what_names_no_partition_is_none() -> None:
    assert parse_partitions("No partitions in the system\n\nPartitionName= MinNodes=3") == ()


def test_a_number_that_is_none_is_one_node() -> None:
    (found,) = parse_partitions("PartitionName=a MinNodes=UNLIMITED")
    assert found == PartitionRecord(name="a")

"""What partitions are read from scontrol's lines: which is the default one, and how many nodes a job gets at least."""

from __future__ import annotations

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
        PartitionRecord(name="gpu", is_default=True, min_nodes=1),
        PartitionRecord(name="big", is_default=False, min_nodes=4),
    )


def test_what_names_no_partition_is_none() -> None:
    assert parse_partitions("No partitions in the system\n\nPartitionName= MinNodes=3") == ()


def test_a_number_that_is_none_is_one_node() -> None:
    (found,) = parse_partitions("PartitionName=a MinNodes=UNLIMITED")
    assert found == PartitionRecord(name="a")

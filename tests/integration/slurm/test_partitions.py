"""Partitions as a real slurmctld tells them: the default one, and the nodes of a job that asks for no number."""

from __future__ import annotations

from typing import Any

import pytest

from opsk.slurm.commands.command import CommandClient

pytestmark = pytest.mark.slurm

LIMITS = ("MaxNodes=3", "DefaultTime=10", "MaxTime=60", "JobDefaults=DefMemPerGPU=4096")


def test_a_job_that_asks_for_no_nodes_has_as_many_as_its_partition_gives(lab: Any) -> None:
    """22.05 counts the partition's ``MinNodes`` as asked for; 24.11 and 26.05 refuse it (``EnforcePartLimits=ALL``)."""
    client = CommandClient(environment=dict(lab.environment))
    (default,) = [part.name for part in client.partitions() if part.is_default]
    made = lab.run("scontrol", "create", "PartitionName=pairs", "Nodes=ALL", "MinNodes=2", "State=UP", *LIMITS)
    assert made.returncode == 0, made.stderr
    try:
        partitions = {part.name: part for part in client.partitions()}
        assert {name: part.min_nodes for name, part in partitions.items()} == {default: 1, "pairs": 2}
        pairs = partitions["pairs"]
        assert (pairs.max_nodes, pairs.default_time_s, pairs.max_time_s) == (3, 600, 3600)
        assert (pairs.default_memory_bytes, pairs.default_memory_each) == (4 << 30, "gpu")
        submitted = lab.run("sbatch", "--parsable", "-p", "pairs", "--hold", "-o", "/dev/null", "--wrap", "true")
        if submitted.returncode:
            assert client.release() >= (24, 11)
            assert "Node count specification invalid" in submitted.stderr
            return
        number = submitted.stdout.strip()
        told = lab.run("scontrol", "show", "job", number).stdout
        lab.run("scancel", number)
        assert "NumNodes=2" in told
        assert "TimeLimit=00:10:00" in told
    finally:
        lab.run("scontrol", "delete", "PartitionName=pairs")

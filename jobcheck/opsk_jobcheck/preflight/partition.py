"""Checks what a job requests against the limits of its partition."""

from __future__ import annotations

from opsk.slurm.records import PartitionRecord
from opsk.text import format_count, format_duration
from opsk_jobcheck.preflight.facts import JobFacts, PreflightFinding

_WAITS = "Slurm refuses the job, or it stays pending"
"""``EnforcePartLimits`` in slurm.conf(5) decides which."""


def check_nodes_of_partition(facts: JobFacts) -> PreflightFinding | None:
    """Return that the job requests more nodes than its partition gives one job (``MaxNodes``)."""
    partition = facts.partition
    if partition is None or partition.max_nodes is None or facts.nodes <= partition.max_nodes:
        return None
    most = format_count(partition.max_nodes, "node")
    what = f"{facts.nodes} nodes are requested, and {_name(partition)} gives a job {most} at most (MaxNodes): {_WAITS}"
    return PreflightFinding(what=what, advice=f"ask for {most}, or for another partition")


def check_time_of_partition(facts: JobFacts) -> PreflightFinding | None:
    """Return that the job requests more time than its partition gives one job (``MaxTime``)."""
    partition, limit_s = facts.partition, facts.time_limit_s
    if partition is None or partition.max_time_s is None or limit_s is None or limit_s <= partition.max_time_s:
        return None
    most = format_duration(partition.max_time_s)
    what = f"a time limit of {format_duration(limit_s)} is requested, and {_name(partition)} allows {most} (MaxTime)"
    return PreflightFinding(what=f"{what}: {_WAITS}", advice=f"ask for {most} or less, or for another partition")


def _name(partition: PartitionRecord) -> str:
    """Return the partition for a sentence."""
    return f"partition {partition.name[:40]}"

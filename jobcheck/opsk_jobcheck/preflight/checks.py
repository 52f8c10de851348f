"""Runs the checks of a job before it starts. To add a check: a function, and a row of the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from opsk_jobcheck.preflight.containers import check_image
from opsk_jobcheck.preflight.facts import JobFacts, PreflightFinding
from opsk_jobcheck.preflight.host import check_cpus, check_host_memory, check_time_limit
from opsk_jobcheck.preflight.nccl_choices import check_algorithm, check_channels, check_protocol
from opsk_jobcheck.preflight.network import (
    check_adapters,
    check_blocking_launches,
    check_infiniband,
    check_interface,
    check_peer_to_peer,
    check_shared_memory,
)
from opsk_jobcheck.preflight.partition import check_nodes_of_partition, check_time_of_partition
from opsk_jobcheck.preflight.precision import check_attention, check_format
from opsk_jobcheck.preflight.processes import check_master, check_nodes, check_parts, check_processes, check_ranks
from opsk_jobcheck.preflight.striping import check_stripes

Check = Callable[[JobFacts], PreflightFinding | None]

CHECKS: tuple[tuple[str, Check], ...] = (
    ("processes", check_processes),
    ("ranks", check_ranks),
    ("gpu-parts", check_parts),
    ("nodes", check_nodes),
    ("master", check_master),
    ("precision", check_format),
    ("attention", check_attention),
    ("peer-to-peer", check_peer_to_peer),
    ("shared-memory", check_shared_memory),
    ("infiniband", check_infiniband),
    ("interface", check_interface),
    ("adapters", check_adapters),
    ("protocol", check_protocol),
    ("algorithm", check_algorithm),
    ("channels", check_channels),
    ("blocking-launches", check_blocking_launches),
    ("container-image", check_image),
    ("striping", check_stripes),
    ("cpus", check_cpus),
    ("host-memory", check_host_memory),
    ("time-limit", check_time_limit),
    ("partition-nodes", check_nodes_of_partition),
    ("partition-time", check_time_of_partition),
)
"""All checks by name, the gravest first; names are part of ``opsk check --json``."""


def find_mistakes(facts: JobFacts) -> tuple[PreflightFinding, ...]:
    """Return what the checks find, in the order of the table."""
    results = ((name, check(facts)) for name, check in CHECKS)
    return tuple(replace(finding, check=name) for name, finding in results if finding is not None)

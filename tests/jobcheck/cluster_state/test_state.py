"""Which nodes are free for a job now."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opsk.slurm.records import NodeRecord, PartitionRecord
from opsk_jobcheck.cluster_state.node_constraints import ANY_NODES, NodeConstraints
from opsk_jobcheck.cluster_state.state import LiveState, is_free
from opsk_jobcheck.cluster_state.state_header import MAX_AGE_S
from opsk_jobcheck.submission.request import SlurmRequest
from tests.fakes.live_cluster import node_records, training_job

NODE = NodeRecord(name="n0", state="IDLE", partitions=("gpu",), gpus=8, gpu_type="h100", cpus=64)


@pytest.mark.parametrize(
    "flag", ["DRAIN", "RESERVED", "PLANNED", "MAINTENANCE", "COMPLETING", "REBOOT_ISSUED", "POWERING_UP", "FAIL", "NEW"]
)
def test_a_node_with_any_word_after_its_state_takes_no_job_at_once(flag: str) -> None:
    assert is_free(NODE, 8)
    assert not is_free(replace(NODE, state_flags=(flag,)), 8)
    assert is_free(replace(NODE, state_flags=("CLOUD",)), 8)


@pytest.mark.parametrize("state", ["ALLOCATED", "DOWN", "COMPLETING", "UNKNOWN", "FUTURE"])
def test_only_idle_and_mixed_nodes_can_be_free(state: str) -> None:
    assert not is_free(replace(NODE, state=state), 8)


def test_a_shared_node_is_free_where_gpus_and_cpus_are_left() -> None:
    mixed = replace(NODE, state="MIXED", gpus_used=4, cpus_used=32)
    assert is_free(mixed, 4)
    assert not is_free(mixed, 5)
    assert not is_free(mixed, 4, is_exclusive=True)
    assert not is_free(replace(mixed, cpus_used=33), 4)


def test_partition_features_type_and_exclusion_count() -> None:
    nodes = (
        replace(NODE, name="a", features=("ib",)),
        replace(NODE, name="b", partitions=("other",)),
        replace(NODE, name="c", gpu_type="a100"),
        replace(NODE, name="d", gpu_type=None),
        replace(NODE, name="e", gpus=4),
    )
    state = LiveState(nodes=nodes)
    assert state.free(ANY_NODES, gpus=8) == ("a", "b", "c", "d")
    assert state.free(ANY_NODES, gpus=8, gpu_type="H100") == ("a", "b", "d")
    assert state.free(NodeConstraints(partitions=("gpu",)), gpus=8) == ("a", "c", "d")
    assert state.free(NodeConstraints(constraint="ib")) == ("a",)
    assert state.free(NodeConstraints(exclude=frozenset({"a"})), gpus=8) == ("b", "c", "d")


def test_where_slurm_counts_no_gpus_whole_nodes_count() -> None:
    nodes = tuple(replace(NODE, name=name, gpus=0, gpu_type=None) for name in ("a", "b"))
    assert LiveState(nodes=nodes).free(ANY_NODES, gpus=8) == ("a", "b")
    assert LiveState(nodes=(*nodes, NODE)).free(ANY_NODES, gpus=8) == ("n0",)


def test_nodes_of_jobs_are_possible_and_not_free() -> None:
    state = LiveState(nodes=node_records([training_job(1, ["n0", "n1"])]))
    assert len(state.possible(ANY_NODES, gpus=8)) == 16
    assert state.free(ANY_NODES, gpus=8) == tuple(f"n{number}" for number in range(2, 16))


def test_a_state_of_some_minutes_ago_says_nothing_of_now() -> None:
    state = LiveState(nodes=())
    assert state.is_fresh
    assert not replace(state, age_s=MAX_AGE_S + 1).is_fresh


LEFT = SlurmRequest(nodes=1, ntasks=8, ntasks_per_node=8, gpus_per_node=8, is_merged=True, is_left_to_partition=True)


@pytest.mark.parametrize(
    ("partition", "site", "slurm", "nodes"),
    [
        ("big", None, None, 4),
        ("big", "small", "small", 4),
        (None, None, "big", 4),
        (None, "small", "big", 1),  # the site's word counts before Slurm's
        (None, "big", "small", 4),
        (None, None, None, 1),
        ("small", None, None, 1),
        ("unheard-of", None, "big", 1),
        ("big,also-big", None, None, 4),
        ("big,small", None, None, None),  # whichever is free first
    ],
)
def test_a_partition_with_least_nodes_gives_them_to_who_asks_for_no_number(
    partition: str | None, site: str | None, slurm: str | None, nodes: int | None
) -> None:
    """slurmctld fills ``min_nodes`` with the partition's where the job has none (``MinNodes`` in slurm.conf(5))."""
    live = LiveState(nodes=(), default_partition=slurm, min_nodes={"big": 4, "also-big": 4})
    asked = live.fill_min_nodes(replace(LEFT, partition=partition), site)
    assert asked.nodes == nodes
    assert asked.gpus_per_node == 8
    assert live.fill_min_nodes(replace(LEFT, partition=partition, is_left_to_partition=False), site).nodes == 1


@pytest.mark.parametrize(
    ("partition", "site", "expected"),
    [
        ("short", None, 600.0),
        (None, "short", 600.0),
        (None, None, 3600.0),
        ("short,gpu", None, None),
        ("x", None, None),
    ],
)
def test_a_partition_gives_its_time_to_who_asks_for_none(
    partition: str | None, site: str | None, expected: float | None
) -> None:
    parts = (PartitionRecord(name="short", default_time_s=600), PartitionRecord(name="gpu", default_time_s=3600))
    live = LiveState(nodes=(), default_partition="gpu", partitions={part.name: part for part in parts})
    assert live.fill_default_time(replace(LEFT, partition=partition), site).default_time_s == expected

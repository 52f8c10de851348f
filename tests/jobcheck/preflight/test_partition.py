"""What a partition gives its jobs by default and at most, where Slurm was queried."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opsk.slurm.records import PartitionRecord
from opsk.units import GIB
from opsk_jobcheck.advice.adviser import Adviser
from opsk_jobcheck.cluster_state.node_constraints import parse_node_constraints
from opsk_jobcheck.cluster_state.state import LiveState
from opsk_jobcheck.scripts.sbatch.resources import build_typed_request
from opsk_jobcheck.scripts.script import read_script
from opsk_jobcheck.submission.request import SlurmRequest
from tests.fakes.launch_scripts import megatron_script
from tests.jobcheck.preflight.test_checks import ADVISER, GLUE, STEPS, script

LIMITS = PartitionRecord(
    name="short", is_default=True, max_nodes=4, default_time_s=3600, max_time_s=86400, default_memory_bytes=GIB
)
LIVE = LiveState(nodes=(), default_partition="short", partitions={"short": LIMITS})
TRAIN = f"srun torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 --rdzv_endpoint $H:29500 {GLUE}"


def check(text: str, adviser: Adviser, request: SlurmRequest) -> dict[str, str]:
    """Return the findings about the partition, as a submission's advice has them."""
    if adviser.live is not None:
        request = adviser.live.fill_default_time(request)
    advice = adviser.advise(read_script(text, file="job.sh", request=request), parse_node_constraints(text, request))
    return {finding.check: finding.what for finding in advice.preflight}


def find(text: str, typed: str = "", partition: PartitionRecord = LIMITS) -> dict[str, str]:
    live = replace(LIVE, partitions={"short": partition})
    return check(text, replace(ADVISER, live=live), build_typed_request(typed.split(), {}))


@pytest.mark.parametrize(
    ("options", "typed", "expected"),
    [
        ("--nodes=8", "", ["partition-nodes"]),
        ("--nodes=4", "", []),
        ("--nodes=4", "--nodes=8", ["partition-nodes"]),
        ("--nodes=8", "--partition=short", ["partition-nodes"]),
        ("--nodes=8", "--partition=other", []),
        ("--nodes=8", "--partition=short,other", []),
        ("--nodes=8", "--qos=long", []),  # its flag PartitionMaxNodes may override the limit
        ("--time=1-00:00:00", "", []),
        ("--time=2-0", "", ["partition-time"]),
        ("--time=2-0", "--time=60", []),
        ("--time=10", "--time=2-0", ["partition-time"]),
    ],
)
def test_a_request_beyond_the_limits_of_its_partition(options: str, typed: str, expected: list[str]) -> None:
    text = script(TRAIN, "--gpus-per-node=8", *options.split())
    findings = find(text, typed)
    assert [name for name in findings if name.startswith("partition")] == expected
    assert not any(name.startswith("partition") for name in check(text, ADVISER, SlurmRequest()))


def test_the_finding_names_request_limit_and_consequence() -> None:
    assert find(script(TRAIN, "--nodes=8", "--gpus-per-node=8"))["partition-nodes"] == (
        "8 nodes are requested, and partition short gives a job 4 nodes at most (MaxNodes): "
        "Slurm refuses the job, or it stays pending"
    )


def test_the_default_time_of_a_partition_ends_a_job_that_asks_for_none() -> None:
    text = megatron_script(STEPS)
    partition = replace(LIMITS, max_nodes=None)
    assert "(DefaultTime of partition short)" in find(text, partition=partition)["time-limit"]
    assert "time-limit" not in find(text, "--time=365-0", replace(partition, max_time_s=None))
    assert "time-limit" not in check(text, ADVISER, SlurmRequest())


# bert-base has 0.11e9 parameters: 8 processes load 1.6 GiB or more
@pytest.mark.parametrize(
    ("each", "options", "is_short"),
    [
        ("node", "", True),
        ("gpu", "", False),
        ("node", "--mem=100G", False),
        ("node", "--mem=0", False),
        ("cpu", "--ntasks-per-node=1 --cpus-per-task=2", False),
        ("cpu", "", False),
    ],
)
def test_the_default_memory_of_a_partition_counts_where_none_is_requested(
    each: str, options: str, is_short: bool
) -> None:
    text = script(f"torchrun --nproc_per_node=8 {GLUE}", "--nodes=1", "--gpus-per-node=8", *options.split())
    findings = find(text, partition=replace(LIMITS, default_memory_each=each))
    assert ("host-memory" in findings) == is_short
    if is_short:
        assert "DefMemPerNode (1.0 GiB) of partition short allows 1.0 GiB" in findings["host-memory"]


def test_a_hook_that_does_not_get_the_memory_says_nothing_about_it() -> None:
    """``job_desc`` of job_submit has no fields for it in every release."""
    text = script(f"torchrun --nproc_per_node=8 {GLUE}", "--nodes=1", "--gpus-per-node=8")
    request = SlurmRequest(nodes=1, gpus_per_node=8, is_merged=True, is_memory_known=False)
    assert "host-memory" not in check(text, replace(ADVISER, live=LIVE), request)

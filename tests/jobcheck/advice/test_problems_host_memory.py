"""What of host memory is asked for is read as Slurm does, and compared with what a job keeps there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.hardware.catalog import cluster
from opsk.workload.workload import Problem
from opsk_jobcheck.advice.adviser import Adviser
from opsk_jobcheck.cluster_state.node_constraints import HostMemoryRequest, parse_memory_request, parse_node_constraints
from opsk_jobcheck.scripts.sbatch.resources import build_typed_request
from opsk_jobcheck.scripts.script import read_script
from opsk_jobcheck.submission.request import SlurmRequest
from tests.fakes.launch_scripts import LLAMA_70B

SUPERPOD = Adviser(cluster=cluster("superpod-h100"))
PLAN = (
    "--tensor-model-parallel-size 8 --sequence-parallel --micro-batch-size 1 --global-batch-size 128 "
    "--use-distributed-optimizer --optimizer-cpu-offload"
)


@pytest.mark.parametrize(
    ("options", "size_bytes", "each"),
    [
        ({"mem": "200G"}, 200 << 30, "node"),
        ({"mem": "4096"}, 4 << 30, "node"),  # MiB, where no letter says otherwise
        ({"mem": "2T"}, 2 << 40, "node"),
        ({"mem": "64gb"}, 64 << 30, "node"),
        ({"mem-per-gpu": "96G"}, 96 << 30, "gpu"),
        ({"mem-per-cpu": "512K"}, 512 << 10, "cpu"),
    ],
)
def test_sizes_are_read_as_slurm_counts_them(options: dict[str, str], size_bytes: int, each: str) -> None:
    found = parse_memory_request(options)
    assert found is not None
    assert (found.size_bytes, found.each) == (size_bytes, each)


@pytest.mark.parametrize(
    "options", [{}, {"mem": "0"}, {"mem": "$MEM"}, {"mem": "half"}, {"mem": "1G", "mem-per-cpu": "1G"}, {"mem": "-1"}]
)
def test_all_of_a_node_and_what_is_no_size_are_none(options: dict[str, str]) -> None:
    assert parse_memory_request(options) is None


@given(st.dictionaries(st.sampled_from(["mem", "mem-per-cpu", "mem-per-gpu"]), st.text(max_size=20)))
def test_any_text_is_a_size_or_none(options: dict[str, str]) -> None:
    asked = parse_memory_request(options)
    assert asked is None or (asked.size_bytes >= 1024 and len([text for text in options.values() if text]) == 1)


def test_memory_by_gpu_and_cpu_is_that_of_all_of_them() -> None:
    by_gpu = HostMemoryRequest(size_bytes=10, each="gpu", words="")
    assert by_gpu.per_node_bytes(gpus_per_node=8, cpus_per_node=None) == 80
    by_cpu = HostMemoryRequest(size_bytes=10, each="cpu", words="")
    # whole cores are given: two CPUs each, as a rule
    assert by_cpu.per_node_bytes(gpus_per_node=8, cpus_per_node=16) == 320
    assert by_cpu.per_node_bytes(gpus_per_node=8, cpus_per_node=None) is None


def shortage(
    line: str, *, flags: str = PLAN, options: tuple[str, ...] = (), request: SlurmRequest | None = None
) -> list[Problem]:
    """Return what is wrong with the host memory that a 70B job on nodes of eight GPUs asks for."""
    head = f"#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=8 {line}\n"
    script = f"{head}srun python pretrain_gpt.py {LLAMA_70B} {flags}\n"
    request = request or build_typed_request(options, {})
    advice = SUPERPOD.advise(
        read_script(script, file="job.sh", request=request), parse_node_constraints(script, request)
    )
    return [problem for problem in advice.problems if "host memory" in problem.what]


@pytest.mark.parametrize("line", ["--mem=150G", "--mem-per-gpu=20G", "--mem-per-cpu=1G --ntasks-per-node=8 -c 4"])
def test_states_that_do_not_fit_into_what_is_asked_for_are_a_problem(line: str) -> None:
    """70.6e9 parameters x 12 bytes of fp32 weights and moments on two nodes: 395 GiB each."""
    (problem,) = shortage(line)
    assert "about 39" in problem.what
    assert line.split()[0] in problem.what
    assert "--mem=0" in problem.hint


@pytest.mark.parametrize(
    "line",
    ["", "--mem=0", "--mem=700G", "--mem=300G", "--mem-per-cpu=1G", "--mem=200G --mem-per-cpu=1G", "--exclusive"],
)
def test_nothing_is_said_of_what_may_fit_or_cannot_be_told(line: str) -> None:
    assert shortage(line) == []


@pytest.mark.parametrize(
    "flags",
    [
        PLAN.replace(" --optimizer-cpu-offload", ""),
        f"{PLAN} --pipeline-model-parallel-size 2",
    ],
)
def test_nothing_is_said_where_it_is_not_known_what_the_host_holds(flags: str) -> None:
    assert shortage("--mem=20G", flags=flags) == []


def test_the_command_line_beats_the_script() -> None:
    assert shortage("--mem=20G", options=("--mem=2T",)) == []
    assert shortage("--mem=2T", options=("--mem=20G",)) != []


def test_the_environment_of_sbatch_counts() -> None:
    assert build_typed_request((), {"SBATCH_MEM_PER_NODE": "20G"}).memory == {"mem": "20G"}


def test_a_line_that_slurm_did_not_merge_is_not_in_force() -> None:
    merged = SlurmRequest(nodes=2, gpus_per_node=8, is_merged=True)
    assert shortage("--mem=20G", request=merged) == []


@pytest.mark.parametrize(
    ("flags", "verdict"),
    [
        (f"{PLAN} --optimizer-offload-fraction $1", "unknown"),
        (f"{PLAN} --optimizer-offload-fraction 0.3", "oom"),
        (f"{PLAN} --optimizer-offload-fraction 1.0", "tight"),
        (f"{PLAN.replace(' --optimizer-cpu-offload', '')} --optimizer-offload-fraction 0.3", "oom"),
    ],
)
def test_a_part_of_the_optimizer_in_host_memory_decides_the_verdict_where_it_is_known(flags: str, verdict: str) -> None:
    script = f"#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=8\nsrun python pretrain_gpt.py {LLAMA_70B} {flags}\n"
    advice = SUPERPOD.advise(read_script(script, file="job.sh"))
    assert str(advice.verdict) == verdict
    assert ("a part of the optimizer" in " ".join(advice.why_unknown)) == (verdict == "unknown")

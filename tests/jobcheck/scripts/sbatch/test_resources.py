"""What a job will get: the script's lines, the request that beats them, and what follows by arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk_jobcheck.scripts.sbatch.comments import Directives, Resources, merge, read_directives
from opsk_jobcheck.scripts.sbatch.directives import read_words
from opsk_jobcheck.scripts.script import read_script
from opsk_jobcheck.submission.request import SlurmRequest


def read(*lines: str) -> Directives:
    return read_directives("\n".join(("#!/bin/bash", *lines)) + "\n", file="job.sbatch")


def merged(*lines: str, **request: object) -> Resources:
    return merge(read(*lines), SlurmRequest(**request) if request else None)  # type: ignore[arg-type]


def test_nodes_times_gpus_per_node_are_all_gpus() -> None:
    found = merged("#SBATCH --nodes=4 --gres=gpu:8")
    assert found.gpus == 32
    entry = next(entry for entry in found.evidence if entry.field == "plan.gpus")
    assert entry.text == "nodes 4 x gpus_per_node 8"
    assert entry.line == 2


@pytest.mark.parametrize(
    ("lines", "nodes", "per_node", "in_all"),
    [
        ("--nodes=4 --gpus=32", 4, 8, 32),
        ("--nodes=3 --gpus=32", 3, None, 32),
        ("--gpus=32 --gpus-per-node=8", 4, 8, 32),
        ("--nodes=2 --ntasks-per-node=8 --gpus-per-task=1", 2, 8, 16),
        ("--nodes=2 --ntasks=2 --gpus-per-task=4", 2, 4, 8),
        ("--ntasks=16 --ntasks-per-node=8 --gpus-per-node=8", 2, 8, 16),
        ("--nodes=2 --ntasks=16 --ntasks-per-gpu=1", 2, 8, 16),
        ("--ntasks=1 --gres=gpu:8", 1, 8, 8),
        ("--ntasks=1 --nodes=1-2 --gres=gpu:8", None, 8, None),
        ("--ntasks=2 --gres=gpu:8", None, 8, None),
        ("--gres=gpu:8", None, 8, None),
        ("--nodes=2-4 --gres=gpu:8", None, 8, None),
    ],
)
def test_arithmetic_fills_what_is_fixed(
    lines: str, nodes: int | None, per_node: int | None, in_all: int | None
) -> None:
    found = merged(f"#SBATCH {lines}")
    assert (found.nodes, found.gpus_per_node, found.gpus) == (nodes, per_node, in_all)


@pytest.mark.parametrize(
    ("lines", "nodes", "in_all"),
    [
        ("--gres=gpu:8", 1, 8),
        ("--gpus-per-node=4 --ntasks-per-node=4", 1, 4),
        ("--gpus-per-node=4 --ntasks=8", None, None),  # Slurm may spread tasks
        ("--gpus-per-node=4 --nodes=2-4", None, None),
        ("--gpus=8", None, 8),
        ("--cpus-per-task=8", None, None),  # nothing is said of GPUs
    ],
)
def test_slurm_gives_one_node_where_none_are_asked_for(lines: str, nodes: int | None, in_all: int | None) -> None:
    found = merge(read_directives(f"#!/bin/bash\n#SBATCH {lines}\n", file="job.sh"), None, is_for_one_node=True)
    assert (found.nodes, found.gpus) == (nodes, in_all)


@pytest.mark.parametrize(
    ("body", "nodes"),
    [
        ("python train.py", 1),
        ("torchrun --nnodes $SLURM_NNODES train.py", None),
        ("python train.py --num_nodes 4", None),
        ("echo $SLURM_JOB_NODELIST\npython train.py", None),
    ],
)
def test_a_script_that_asks_for_its_nodes_gets_their_number_when_it_is_submitted(body: str, nodes: int | None) -> None:
    workload = read_script(f"#!/bin/bash\n#SBATCH --gres=gpu:8\n{body}\n", file="job.sh")
    assert workload.plan.nodes == nodes


def test_the_request_beats_the_script() -> None:
    found = merged("#SBATCH --nodes=4 --gres=gpu:a100:8", nodes=2, gpu_type="h100")
    assert (found.nodes, found.gpus_per_node, found.gpus, found.gpu_type) == (2, 8, 16, "h100")


def test_a_line_that_slurm_was_not_asked_for_is_not_in_force() -> None:
    """``sbatch -N 4-6``, and whatever comes through srun, salloc or slurmrestd: the request has no number."""
    found = merged("#SBATCH --nodes=2 --gpus-per-node=h100:4", is_merged=True, gpus_per_node=8)
    assert (found.nodes, found.gpus_per_node, found.gpus, found.gpu_type) == (None, 8, None, None)
    told = [(entry.field, entry.line) for entry in found.unknown if "Slurm was not asked for" in entry.why]
    assert told == [("plan.nodes", 2), ("gpu", 2)]


def test_a_range_of_nodes_is_why_the_gpus_cannot_be_told() -> None:
    (reason,) = merged("hostname", is_merged=True, gpus_per_node=8).unknown
    assert (reason.field, reason.why) == ("plan.gpus", "how many nodes the job gets is left to Slurm")


def test_what_a_hook_cannot_see_is_still_taken_from_the_script() -> None:
    assert merged("#SBATCH --ntasks-per-gpu=2 --ntasks=8", is_merged=True, ntasks=8).gpus == 4


def test_the_request_tells_what_the_script_cannot() -> None:
    found = merged("#SBATCH --nodes=$N --gres=gpu:8", nodes=2)
    assert (found.nodes, found.gpus, found.unknown) == (2, 16, ())


def test_more_nodes_than_tasks_are_cut_as_sbatch_does() -> None:
    # _opt_verify: "can't run %d processes on %d nodes, setting nnodes to %d"
    found = merged("#SBATCH --nodes=8 --ntasks=2 --gres=gpu:8")
    assert (found.nodes, found.gpus) == (2, 16)
    assert found.problems


def test_contradicting_gpu_counts_are_a_problem() -> None:
    found = merged("#SBATCH --nodes=2 --gpus-per-node=8 --gpus=8")
    assert (found.nodes, found.gpus) == (2, None)
    assert "8 GPUs" in found.problems[0].what


@given(
    script=st.integers(1, 64),
    requested=st.integers(1, 64) | st.none(),
    per_node=st.integers(1, 16),
)
def test_merged_counts_always_multiply(script: int, requested: int | None, per_node: int) -> None:
    found = merged(f"#SBATCH -N {script} --gpus-per-node={per_node}", nodes=requested)
    assert found.nodes == (requested or script)
    assert found.gpus == (requested or script) * per_node


def test_a_steps_one_task_says_nothing_of_the_job() -> None:
    assert merge(read_words(("--ntasks=1",), file="srun"), None).nodes is None

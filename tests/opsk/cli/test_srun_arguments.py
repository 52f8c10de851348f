"""Which command lines of srun may be added to; the options are those of srun(1), all releases."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.cli.place.srun_options import parse_step
from opsk.errors import InputError

JOB = {"SLURM_JOB_NUM_NODES": "4", "SLURM_NNODES": "4", "SLURM_NTASKS": "32", "SLURM_NTASKS_PER_NODE": "8"}


@pytest.mark.parametrize(
    ("words", "nodes", "tasks"),
    [
        ("train", 4, 32),
        ("-n 16 -N 2 train", 2, 16),
        ("-n16 -N2 train", 2, 16),
        ("-N2 -l --ntasks-per-node=1 train", 2, 2),
        ("--ntasks-per-node 1 train -w n7 -x n8", 4, 4),
        ("--nodes=2 --ntasks=4 -- -train", 2, 4),
        ("-K -l -u --mpi=pmix --cpu-bind=cores --output=%j.out train", 4, 32),
        ("-K0 --kill-on-bad-exit=0 --container-image=a:b --container-mounts x:y train", 4, 32),
        ("--label --unbuffered --export ALL,A=b -c 12 -D / train", 4, 32),
    ],
)
def test_nodes_and_tasks_of_a_step(words: str, nodes: int, tasks: int) -> None:
    step = parse_step(words.split(), JOB)
    assert (step.nodes, step.tasks) == (nodes, tasks)


@pytest.mark.parametrize(
    ("words", "places"),
    [
        ("train -N 2", ()),
        ("-l -N 2 train", (2, 3)),
        ("-N2 train", (1,)),
        ("--nodes=2 -n 4 train", (1,)),
        ("-n 4 --nodes 2 train", (3, 4)),
        ("-N 3 -N2 train", (1, 2, 3)),
    ],
)
def test_the_words_that_say_nodes_are_found(words: str, places: tuple[int, ...]) -> None:
    assert parse_step(words.split(), JOB).nodes_at == places


@pytest.mark.parametrize(
    "words",
    [
        "-w n1 train", "-wn1 train", "--nodelist=n1 train", "-x n1 train", "--exclude n1 train", "-m cyclic train",
        "--distribution=block train", "--distrib=block train", "-r1 train", "--relative=1 train", "-F f train",
        "--nodefile=f train", "--overlap train", "-s train", "--multi-prog f", "--het-group=0 train",
        "--pack-group=0 train", "--pty bash", "-N 1-4 train", "-N 1- train", "-n 1k train", "--jobid=5 train",
        "--exact train", "--exclusive train", "-G 4 train", "--gpus=4 train", "--ntasks-per-gpu=1 train",
        "-lw n1 train", "-lN2 train", "-n1 a : -n2 b", "--label=yes train", "--unknown=3 train", "-n", "--ntasks",
        "", "-n4", "-Z train", "--ntasks-per-socket=1 train", "-C gpu train", "--spread-job train",
        "--nod=2 train", "- train -n",
    ],
)  # fmt: skip
def test_any_doubt_leaves_srun_alone(words: str) -> None:
    if words.startswith("- "):  # a lone dash is a command's name to getopt
        assert parse_step(words.split(), JOB).tasks == 32
        return
    with pytest.raises(InputError):
        parse_step(words.split(), JOB)


@pytest.mark.parametrize("name", ["SLURM_HOSTFILE", "SLURM_DISTRIBUTION", "SLURM_OVERLAP"])
def test_variables_that_seat_tasks_leave_srun_alone(name: str) -> None:
    with pytest.raises(InputError, match=name):
        parse_step(["train"], {**JOB, name: "x"})


def test_a_heterogeneous_job_is_left_alone() -> None:
    with pytest.raises(InputError, match="heterogeneous"):
        parse_step(["train"], {**JOB, "SLURM_HET_SIZE": "2"})


@given(st.lists(st.text(max_size=12), max_size=8))
def test_no_words_are_too_odd(words: list[str]) -> None:
    with suppress(InputError):
        parse_step(words, JOB)

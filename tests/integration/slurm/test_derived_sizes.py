"""Does slurmctld make of a request the nodes, GPUs and tasks that opsk says it does? On each release."""

from __future__ import annotations

import re

import pytest

from opsk.hostlist import expand
from tests.fakes.slurm_sizes import REFUSED_BY_NEWER, SIZES, RequestedSizes
from tests.integration.conftest import RunningLab, Slurm

pytestmark = pytest.mark.slurm

_NODES = re.compile(r"on nodes (\S+) in partition")
_NEW = (26, 5)


def count_nodes(lab: RunningLab, sizes: RequestedSizes) -> int:
    """Return the nodes that the job would get now that all are free."""
    said = lab.run("sbatch", "--test-only", *sizes.options.split(), "--wrap", "true")
    match = _NODES.search(said.stderr)
    assert match is not None, (sizes, said.stderr)
    return len(expand(match[1]))


def read_held_job(lab: RunningLab, sizes: RequestedSizes) -> tuple[int, int, int]:
    """Return nodes, GPUs and tasks of a job that waits, in which 22.05 counts one node at times."""
    made = lab.run("sbatch", "--parsable", "--hold", "-o", "/dev/null", *sizes.options.split(), "--wrap", "true")
    assert made.returncode == 0, (sizes, made.stderr)
    job = lab.run("scontrol", "show", "job", made.stdout.strip()).stdout
    lab.run("scancel", made.stdout.strip())
    tasks = re.search(r"NumTasks=(\d+)", job)
    counts = re.search(r"TRES=\S*?node=(\d+)\S*?gres/gpu=(\d+)", job)
    assert tasks is not None, job
    assert counts is not None, job
    return int(counts[1]), int(counts[2]), int(tasks[1])


def test_slurmctld_gives_the_sizes_that_opsk_derives(lab: RunningLab) -> None:
    wrong = {}
    for sizes in SIZES:
        if sizes.nodes is not None and (nodes := count_nodes(lab, sizes)) != sizes.nodes:
            wrong[sizes.options] = f"{nodes} nodes"
        waiting_nodes, gpus, tasks = read_held_job(lab, sizes)
        if sizes.gpus is not None and (sizes.nodes in (waiting_nodes, None)) and gpus != sizes.gpus:
            wrong[sizes.options] = f"{gpus} GPUs"
        if sizes.ntasks is not None and tasks != sizes.ntasks:
            wrong[sizes.options] = f"{tasks} tasks"
    assert not wrong


def test_of_two_counts_of_a_nodes_gpus_the_larger_is_taken_or_both_are_refused(lab: RunningLab, slurm: Slurm) -> None:
    if slurm.release < _NEW:
        assert read_held_job(lab, REFUSED_BY_NEWER)[1] == REFUSED_BY_NEWER.gpus
        return
    said = lab.run("sbatch", "--hold", *REFUSED_BY_NEWER.options.split(), "--wrap", "true")
    assert "mutually exclusive" in said.stderr

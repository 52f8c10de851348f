"""Tests that a script with ``opsk launch`` counts the nodes that are used, without the spares."""

from __future__ import annotations

import pytest

from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.script import read_script

HEAD = "#!/bin/bash\n#SBATCH --nodes=9 --gpus-per-node=8\n"
PROGRAM = (
    "pretrain_gpt.py --bf16 --num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 "
    "--max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 128 --vocab-size 50257\n"
)


def read(line: str, before: str = "") -> Workload:
    return read_script(f"{HEAD}{before}{line} {PROGRAM}", file="job.sh")


def test_spares_run_no_ranks() -> None:
    found = read("opsk launch --nodes 8 --per-node -- torchrun --nproc-per-node 8")
    assert (found.plan.nodes, found.plan.gpus_per_node, found.plan.gpus) == (8, 8, 64)
    assert not found.problems
    assert found.launcher == "opsk launch + torchrun"
    assert {(entry.field, entry.line) for entry in found.evidence} >= {("plan.nodes", 3), ("plan.gpus", 3)}


@pytest.mark.parametrize(
    "words", ["--nodes=8 --", "--tasks-per-node 8 --nodes 8 --", "--srun=--cpu-bind=none --nodes 8 --"]
)
def test_each_gpu_has_a_task_unless_torchrun_starts_them(words: str) -> None:
    found = read(f"/apps/opsk/bin/opsk launch {words} python")
    assert (found.plan.nodes, found.plan.gpus) == (8, 64)
    assert found.launcher == "opsk launch, one task per GPU"


def test_all_nodes_are_used_where_none_is_spared() -> None:
    found = read("opsk launch --per-node -- torchrun --nproc-per-node 8")
    assert (found.plan.nodes, found.plan.gpus) == (9, 72)
    assert not found.problems


def test_torchruns_own_number_is_compared_with_the_nodes_that_are_used() -> None:
    assert not read("opsk launch --nodes 8 --per-node -- torchrun --nnodes 8 --nproc-per-node 8").problems
    found = read("opsk launch --nodes 8 --per-node -- torchrun --nnodes 9 --nproc-per-node 8")
    assert "--nnodes 9 and 8 nodes" in found.problems[0].what


def test_a_number_from_outside_is_not_guessed() -> None:
    found = read('opsk launch --nodes "$USED" -- python', before="source settings.sh\n")
    assert (found.plan.nodes, found.plan.gpus) == (None, None)
    assert "USED" in next(entry.why for entry in found.unknown if entry.field == "plan.nodes")


def test_a_number_from_the_script_is_known() -> None:
    assert read("opsk launch --nodes $((SLURM_NNODES - 1)) -- python").plan.nodes == 8


def test_flags_of_the_program_are_not_those_of_the_launcher() -> None:
    assert read("opsk launch --nodes 8 -- python wrap.py --nodes 3").plan.nodes == 8


def test_more_nodes_than_there_are_change_nothing() -> None:
    assert read("opsk launch --nodes 12 -- python").plan.nodes == 9

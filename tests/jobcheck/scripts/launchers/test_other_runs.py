"""Where a test decides which of several commands trains, only what they agree on is stated."""

from __future__ import annotations

import pytest

from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.script import read_script

HEAD = "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --gpus-per-node=8\n"


def megatron(*, layers: int, micro: int, more: str = "") -> str:
    return (
        f"srun torchrun --nnodes 4 --nproc-per-node 8 pretrain_gpt.py --num-layers {layers} --hidden-size 768 "
        f"--num-attention-heads 12 --seq-length 1024 --micro-batch-size {micro} --global-batch-size 128 {more}"
    )


SMALL, LARGE = megatron(layers=12, micro=2), megatron(layers=80, micro=2, more="--bf16")


def read(body: str) -> Workload:
    return read_script(HEAD + body + "\n", file="job.sh")


@pytest.mark.parametrize(
    "body",
    [
        f"case $SLURM_ARRAY_TASK_ID in 0) {SMALL};; 1) {LARGE};; esac",
        f"if [ $SLURM_ARRAY_TASK_ID -eq 0 ]; then {SMALL}; else {LARGE}; fi",
        f"[ -f x ] && {SMALL} || {LARGE}",
        f"small() {{ {SMALL}; }}\nlarge() {{ {LARGE}; }}\nif [ -f x ]; then large; else small; fi",
    ],
)
def test_what_the_commands_have_differently_cannot_be_told(body: str) -> None:
    workload = read(body)
    assert (workload.model.layers, workload.model.hidden, workload.plan.micro_batch) == (None, 768, 2)
    assert "which command runs" in next(entry.why for entry in workload.unknown if entry.field == "model.layers")


def test_a_command_that_certainly_runs_is_read_whatever_else_may_run() -> None:
    workload = read(f"if [ -f x ]; then {megatron(layers=4, micro=1)}; fi\n{LARGE}")
    assert (workload.model.layers, workload.plan.micro_batch) == (80, 2)


def test_a_command_behind_an_exit_is_none_of_them() -> None:
    workload = read(f"{SMALL}\nexit 0\n{LARGE} --tensor-model-parallel-size 8")
    assert (workload.model.layers, workload.plan.tp) == (12, None)


def test_groups_without_their_switch_are_doubted_where_it_may_hide() -> None:
    """Megatron-LM reads --num-query-groups beside --group-query-attention alone."""
    hidden = read(f"{SMALL} --num-query-groups 4 $EXTRA")
    plain = read(f"{SMALL} --num-query-groups 4 --data-path $(cat d.txt)")
    assert hidden.model.kv_heads is None
    assert plain.model.kv_heads is None
    assert "--group-query-attention" in next(entry.why for entry in hidden.unknown if entry.field == "model.kv_heads")


def test_a_number_of_experts_for_each_layer_is_not_one_number() -> None:
    assert read(f"{SMALL} --num-experts 64 64 128").model.experts is None
    assert read(f"{SMALL} --num-experts 64 --bf16").model.experts == 64

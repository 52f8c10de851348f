"""Replicas are not taken from GPUs that no rank uses."""

from __future__ import annotations

import pytest

from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.script import read_script

HF = "run_clm.py --model_name_or_path gpt2 --per_device_train_batch_size 4 --gradient_accumulation_steps 2 --bf16"
MEGATRON = (
    "pretrain_gpt.py --num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length 1024 "
    "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 1 --micro-batch-size 1 --global-batch-size 128"
)


def read(body: str, *lines: str, nodes: int = 1) -> Workload:
    head = [f"#SBATCH --nodes={nodes}", "#SBATCH --gpus-per-node=8", *lines]
    return read_script("\n".join(["#!/bin/bash", *head, body, ""]), file="job.sh")


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        (f"torchrun {HF}", ()),
        (f"srun -n 4 python {HF}", ()),
        (f"srun python {MEGATRON}", ("#SBATCH --ntasks-per-node=1",)),
        (f"srun python -u {MEGATRON}", ("#SBATCH --ntasks-per-node=4",)),
        (f"mpirun -np 4 python {MEGATRON}", ()),
        ("litgpt finetune_full meta-llama/Llama-3.2-1B --devices 4", ()),
        ("litgpt finetune_full meta-llama/Llama-3.2-1B", ()),
        ("tune run full_finetune_single_device --config llama3_2/1B_full_single_device", ()),
    ],
)
def test_fewer_ranks_than_gpus_leave_the_replicas_open(body: str, lines: tuple[str, ...]) -> None:
    workload = read(body, *lines)
    assert workload.plan.dp is None
    assert any("GPUs" in problem.what for problem in workload.problems)


@pytest.mark.parametrize(
    ("body", "lines", "dp"),
    [
        (f"torchrun --nproc_per_node 8 {HF}", (), 8),
        (f"export PET_NPROC_PER_NODE=8\ntorchrun {HF}", (), 8),
        (f"srun python {MEGATRON}", ("#SBATCH --ntasks-per-node=8",), 4),
        (f"srun python {MEGATRON}", (), 4),
        ("litgpt finetune_full meta-llama/Llama-3.2-1B --devices 8", (), 8),
        (f"mpirun -np 8 python {MEGATRON}", (), 4),
        (f"srun accelerate launch --multi_gpu --num_processes 8 {HF}", ("#SBATCH --ntasks-per-node=1",), 8),
    ],
)
def test_a_rank_for_each_gpu_leaves_no_doubt(body: str, lines: tuple[str, ...], dp: int) -> None:
    assert read(body, *lines).plan.dp == dp


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("python -m trlx.sweep -y --config c.yml --num_gpus 16 examples/ppo_sentiments.py", (2, None)),
        ("torchrun --nproc_per_node 8 train.py --num_nodes 4 --nproc_per_node 3", (2, 8)),
    ],
)
def test_flags_of_the_program_itself_say_nothing_of_the_launcher(body: str, expected: tuple[int, int | None]) -> None:
    script = f"#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --exclusive\n{body}\n"
    plan = read_script(script, file="job.sh").plan
    assert (plan.nodes, plan.gpus_per_node) == expected

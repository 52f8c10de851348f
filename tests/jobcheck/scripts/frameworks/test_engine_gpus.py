"""Which GPUs train where an inference engine has GPUs of its own beside them.

TRL before 0.16: ``vllm_device`` of trl/trainer/grpo_config.py ("auto" is the GPU after those that train); later ones
start a server: trl/scripts/vllm_serve.py.
"""

from __future__ import annotations

import pytest

from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.script import read_script

FLAGS = "--model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 2 --bf16 true --max_completion_length 1024"
GRPO = f"accelerate launch --multi_gpu --num_processes {{ranks}} trl/scripts/grpo.py {FLAGS} --use_vllm"
SERVED = GRPO.format(ranks=6)
IN_BACKGROUND = "CUDA_VISIBLE_DEVICES=6,7 {server} &\nCUDA_VISIBLE_DEVICES=0,1,2,3,4,5 " + SERVED


def read(command: str, nodes: int = 1) -> Workload:
    return read_script(f"#!/bin/bash\n#SBATCH --nodes={nodes}\n#SBATCH --gpus-per-node=8\n{command}\n", file="job.sh")


@pytest.mark.parametrize(
    "command",
    [
        GRPO.format(ranks=7) + " --vllm_device auto",
        GRPO.format(ranks=7),
        f"torchrun --nproc_per_node 7 trl/scripts/grpo.py {FLAGS} --use_vllm",
    ],
)
def test_the_gpu_after_those_that_train_is_the_engines(command: str) -> None:
    workload = read(command)
    plan, options = workload.plan, dict(workload.options)
    assert (plan.gpus, plan.gpus_per_node, plan.nodes, plan.dp) == (7, 7, 1, 7)
    assert (options["rollout.place"], options["engine.gpus"]) == ("other-gpus", "1")
    assert workload.problems == ()


@pytest.mark.parametrize(
    "server",
    [
        "trl vllm-serve --model Qwen/Qwen2.5-7B",
        "apptainer exec --nv a.sif trl vllm-serve-async --model Qwen/Qwen2.5-7B",
        "vllm serve Qwen/Qwen2.5-7B",
        "python -m vllm.entrypoints.openai.api_server --model Qwen/Qwen2.5-7B",
        "swift rollout --model Qwen/Qwen2.5-7B",
        "python serve_rewards.py",  # whatever it is: it has GPUs of its own
    ],
)
def test_a_command_in_the_background_has_the_gpus_that_it_is_given(server: str) -> None:
    workload = read(IN_BACKGROUND.format(server=server) + " --vllm_mode server")
    assert (workload.plan.gpus, workload.plan.dp) == (6, 6)
    assert workload.problems == ()


def test_whole_nodes_may_serve() -> None:
    workload = read("srun " + GRPO.format(ranks=24).replace("launch", "launch --num_machines 4"), nodes=4)
    assert (workload.plan.gpus, workload.plan.nodes, workload.plan.gpus_per_node) == (24, 3, 8)


@pytest.mark.parametrize("mode", ["colocate", "server"])
def test_gpus_without_an_engine_are_reported_as_before(mode: str) -> None:
    workload = read(f"{SERVED} --vllm_mode {mode}")
    assert [problem.what.partition(",")[0] for problem in workload.problems] == ["DP 6 is stated (--num_processes 6)"]

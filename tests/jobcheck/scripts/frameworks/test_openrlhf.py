"""What launch scripts of OpenRLHF say of the trained model and of the models beside it.

Names and defaults: the parsers in openrlhf/cli of OpenRLHF 0.9 and of 2026.
"""

from __future__ import annotations

import pytest

from opsk.workload.plan import Precision, Recompute, Sharding
from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.script import read_script

HEAD = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gpus-per-node=8\n"
PPO = (
    "ray job submit --address=http://127.0.0.1:8265 -- python3 -m openrlhf.cli.train_ppo_ray "
    "--pretrain Qwen/Qwen2.5-7B --reward_pretrain meta-llama/Meta-Llama-3-8B "
    "--actor_num_nodes 1 --actor_num_gpus_per_node 8 --zero_stage 3 --bf16 "
    "--micro_train_batch_size 4 --micro_rollout_batch_size 8 --prompt_max_len 1024 --generate_max_len 2048 "
    "--vllm_num_engines 4 --vllm_tensor_parallel_size 2 --gradient_checkpointing"
)
NEW = (
    "python3 -m openrlhf.cli.train_ppo_ray --actor.model_name_or_path Qwen/Qwen2.5-7B --ds.zero_stage 3 "
    "--train.micro_batch_size 4 --data.max_len 3072 --vllm.num_engines 4 --vllm.tensor_parallel_size 2 "
    "--train.colocate_all --vllm.enable_sleep --vllm.gpu_memory_utilization 0.5 --ds.enable_sleep"
)
DPO = (
    "deepspeed --module openrlhf.cli.train_dpo --pretrain Qwen/Qwen2.5-7B --micro_train_batch_size 1 --max_len 8192 "
    "--zero_stage 3 --bf16 --gradient_checkpointing"
)


def read(command: str) -> Workload:
    """Read a script with one command."""
    return read_script(f"{HEAD}{command}\n", file="job.sh")


def options(command: str) -> dict[str, str]:
    """Return the options of a command's workload."""
    return dict(read(command).options)


def test_the_actor_is_read_in_both_dialects() -> None:
    for command in (PPO, NEW):
        workload = read(command)
        assert (workload.framework, workload.model.name, workload.model.seq) == ("openrlhf", "Qwen/Qwen2.5-7B", 3072)
        assert (workload.plan.micro_batch, workload.plan.sharding) == (4, Sharding.ZERO3)
    plan = read(PPO).plan
    assert (plan.precision, plan.recompute) == (Precision.BF16, Recompute.FULL)
    assert read(NEW).plan.recompute is Recompute.NONE


@pytest.mark.parametrize(
    ("command", "option", "value"),
    [
        (PPO, "roles.method", "ppo"),
        (PPO, "rollout.place", "other-gpus"),
        (PPO, "rollout.memory_share", "0.95"),
        (PPO, "roles.reference", "other-gpus"),
        (PPO, "roles.critic", "other-gpus"),
        (PPO, "roles.critic.model", "meta-llama/Meta-Llama-3-8B"),
        (PPO, "roles.log_probs.sequences", "8"),
        (f"{PPO} --colocate_actor_ref", "roles.reference", "gpu"),
        (f"{PPO} --colocate_all_models", "roles.critic", "gpu"),
        (f"{PPO} --colocate_all_models --ref_reward_offload", "roles.reference", "host"),
        (f"{PPO} --init_kl_coef 0", "roles.reference", None),
        (f"{PPO} --advantage_estimator group_norm", "roles.critic", None),
        (f"{PPO} --remote_rm_url http://x", "roles.reward", None),
        (f"{PPO} --vllm_enable_sleep", "rollout.sleeps", "false"),  # it sleeps only beside the actor
        (f"{PPO} --adam_offload", "optimizer.offload", "cpu"),
        (f"{PPO} --actor_num_gpus_per_node 4", "roles.actor.gpus", "4"),
        (NEW, "rollout.sleeps", "true"),
        (NEW, "rollout.place", "gpu"),
        (NEW, "roles.actor.rests", "optimizer"),
        (f"{NEW} --train.dynamic_batch_enable", "roles.tokens", "16192"),
        (DPO, "roles.sequences", "2"),
        (DPO, "roles.reference", "gpu"),
        (DPO.replace("train_dpo", "train_rm"), "roles.scores", "true"),
        (DPO.replace("train_dpo", "train_kto"), "roles.sequences", None),
        (DPO.replace("train_dpo", "train_sft"), "roles.method", None),
        (f"{DPO} --lora_rank 16 --load_in_4bit", "adapters.base_bits", "4"),
    ],
)
def test_each_role_is_read_from_its_flags(command: str, option: str, value: str | None) -> None:
    assert options(command).get(option) == value


def test_an_unknown_share_leaves_the_memory_unknown() -> None:
    found = options(f"{NEW} --vllm.gpu_memory_utilization $SHARE")
    assert "vllm.gpu_memory_utilization" in found["trainable"]
    assert "roles.method" not in found

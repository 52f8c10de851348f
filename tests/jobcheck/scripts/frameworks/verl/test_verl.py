"""What launch scripts of verl say of the actor and of the models beside it.

Names and defaults: verl/trainer/config/_generated_ppo_trainer.yaml of verl 0.7.
"""

from __future__ import annotations

import pytest

from opsk.workload.completion import complete
from opsk.workload.plan import Recompute, Sharding, Software, States
from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import find_unknown_reason
from opsk_jobcheck.scripts.script import read_script

HEAD = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gpus-per-node=8\n"
GRPO = (
    "algorithm.adv_estimator=grpo data.max_prompt_length=512 data.max_response_length=1024 "
    "actor_rollout_ref.model.path=Qwen/Qwen2-7B-Instruct actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=40 "
    "actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.rollout.name=vllm "
    "actor_rollout_ref.rollout.gpu_memory_utilization=0.6 "
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=20 trainer.n_gpus_per_node=8 trainer.nnodes=1"
)


MEGATRON = "--config-name=ppo_megatron_trainer.yaml actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2"


def read(
    more: str = "", *, run: str = "python3 -m verl.trainer.main_ppo", given: str = GRPO, end: str = ""
) -> Workload:
    """Read a script with one command."""
    return read_script(f"{HEAD}{run} {given} {more} {end}\n", file="job.sh")


def test_the_actor_is_sharded_over_all_gpus_and_trains_prompt_and_answer() -> None:
    workload = read()
    assert (workload.framework, workload.is_training, workload.model.name) == ("verl", True, "Qwen/Qwen2-7B-Instruct")
    assert (workload.model.seq, workload.plan.micro_batch, workload.plan.gpus) == (1536, 40, 8)
    assert (workload.plan.tp, workload.plan.pp) == (1, 1)


@pytest.mark.parametrize(
    ("more", "option", "value"),
    [
        ("", "roles.method", "grpo"),
        ("", "rollout.memory_share", "0.6"),
        ("", "rollout.tp", "2"),
        ("", "rollout.sleeps", "true"),
        ("", "roles.log_probs.sequences", "20"),
        ("", "roles.reference", "perhaps"),
        ("", "roles.critic", None),
        ("actor_rollout_ref.rollout.free_cache_engine=False", "rollout.sleeps", "false"),
        ("actor_rollout_ref.rollout.tensor_model_parallel_size=4", "rollout.tp", "4"),
        ("actor_rollout_ref.rollout.name=hf", "rollout.engine", "generate"),
        ("actor_rollout_ref.actor.use_kl_loss=False", "roles.reference", None),
        ("actor_rollout_ref.ref.fsdp_config.param_offload=True", "roles.reference", "host"),
        ("actor_rollout_ref.model.lora_rank=32", "roles.reference", None),
        ("actor_rollout_ref.model.lora_rank=32", "adapters.rank", "32"),
        ("actor_rollout_ref.actor.fsdp_config.param_offload=True", "roles.actor.rests", "weights"),
        ("algorithm.adv_estimator=gae critic.model.path=Qwen/Qwen2-7B-Instruct", "roles.critic", "gpu"),
        ("algorithm.adv_estimator=gae critic.ppo_micro_batch_size_per_gpu=3", "roles.critic.micro_batch", "3"),
        ("critic.enable=True", "roles.critic", "gpu"),
        ("reward_model.enable=True reward_model.model.path=/m/Skywork", "roles.reward.model", "Skywork"),
        ("actor_rollout_ref.actor.use_dynamic_bsz=True", "roles.tokens", "16384"),
    ],
)
def test_each_role_is_read_from_its_section(more: str, option: str, value: str | None) -> None:
    assert dict(read(more).options).get(option) == value


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ("actor_rollout_ref.actor.strategy=veomni", "verl on veomni"),
        (f"{MEGATRON} actor_rollout_ref.ref.megatron.tensor_model_parallel_size=4", "differs from the actor's"),
        (f"{MEGATRON} actor_rollout_ref.model.lora.rank=16", "adapters on Megatron"),
        ("--config-name=mine", "the settings are in mine"),
        ("actor_rollout_ref.rollout.gpu_memory_utilization=$UTIL", "gpu_memory_utilization"),
        ("actor_rollout_ref.rollout.tensor_model_parallel_size=$1", "tensor_model_parallel_size"),
        ("$MORE", "words that cannot be told"),
    ],
)
def test_what_is_not_known_leaves_the_memory_unknown_and_the_values_read(more: str, reason: str) -> None:
    workload = read(more)
    assert reason in (find_unknown_reason(workload.options) or "")
    assert workload.plan.micro_batch == 40
    assert not [name for name, _ in workload.options if name.startswith(("roles.", "rollout."))]


def test_on_megatron_all_models_are_split_as_the_actor_is() -> None:
    """Names and defaults: verl/trainer/config/engine/megatron.yaml of verl 0.7, legacy_ppo_megatron_trainer.yaml."""
    axes = "actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=2"
    workload = read(f"{MEGATRON} {axes}")
    plan, options = workload.plan, dict(workload.options)
    assert (plan.tp, plan.pp, plan.cp, plan.ep, plan.vpp) == (2, 2, 1, 1, None)
    assert (plan.sequence_parallel, plan.sharding, plan.recompute) == (True, Sharding.ZERO1, Recompute.NONE)
    assert (options["roles.reference"], options["roles.reference.bits"]) == ("gpu", "16")
    complete_plan = complete(workload).plan
    assert complete_plan is not None
    assert (complete_plan.software, complete_plan.states) == (Software.MEGATRON_CORE, States.MIXED)
    assert "trainable" not in options


@pytest.mark.parametrize(
    ("more", "name", "value"),
    [
        ("actor_rollout_ref.actor.megatron.param_offload=True", "roles.actor.rests", "weights"),
        ("actor_rollout_ref.actor.megatron.optimizer_offload=True", "roles.actor.rests", "optimizer"),
        ("actor_rollout_ref.actor.fsdp_config.param_offload=True", "roles.actor.rests", None),
        ("actor_rollout_ref.ref.megatron.param_offload=True", "roles.reference", "host"),
        ("algorithm.adv_estimator=gae critic.megatron.param_offload=True", "roles.critic.rests", "weights"),
        ("actor_rollout_ref.actor.megatron.expert_tensor_parallel_size=1", "expert.tensor", "1"),
    ],
)
def test_what_rests_in_host_memory_on_megatron(more: str, name: str, value: str | None) -> None:
    more = f"{MEGATRON} {more.replace('algorithm.', 'critic.enable=True algorithm.')}"
    assert dict(read(more).options).get(name) == value


def test_what_megatron_recomputes_is_in_its_own_section() -> None:
    setting = "actor_rollout_ref.actor.megatron.override_transformer_config.recompute_granularity=full"
    assert read(f"{MEGATRON} +{setting}").plan.recompute is Recompute.FULL
    assert read(f"{MEGATRON} actor_rollout_ref.model.enable_gradient_checkpointing=True").plan.recompute is not None


def test_arguments_that_are_passed_on_add_nothing_to_a_job_without_arguments() -> None:
    assert read(end='"$@"').options == read().options == read(end="$@").options


@pytest.mark.parametrize(
    "run",
    [
        "ray job submit --address=http://127.0.0.1:8265 -- python3 -m verl.trainer.main_ppo",
        "srun --overlap --nodes=1 --ntasks=1 apptainer run --nv x.sif python3 -m verl.trainer.main_ppo",
        "python3 -m recipe.dapo.main_dapo",
    ],
)
def test_whatever_starts_it_is_seen_through(run: str) -> None:
    assert read(run=run).options == read().options


def test_the_batch_of_all_gpus_is_divided_over_them() -> None:
    old = GRPO.replace("ppo_micro_batch_size_per_gpu=40", "ppo_micro_batch_size=64")
    assert read(given=old).plan.micro_batch == 8

"""What trainers on preferences, and GRPO, hold beside the model that is trained.

Names and defaults: trl/trainer/*_config.py of TRL 1.0, hparams of LLaMA-Factory 0.9, swift/arguments of ms-swift 4.
"""

from __future__ import annotations

import pytest

from opsk_jobcheck.scripts.script import read_script

HEAD = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gpus-per-node=8\n"
FLAGS = "--model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 2 --max_length 2048 --bf16 true"
DPO, GRPO = f"trl dpo {FLAGS}", f"accelerate launch --num_processes 8 trl/scripts/grpo.py {FLAGS}"
VLLM = f"{GRPO} --max_completion_length 1024 --use_vllm"
SWIFT = "swift rlhf --model Qwen/Qwen2.5-7B --train_type full --max_length 2048 --deepspeed zero3"
RECIPE = "model_name_or_path: Qwen/Qwen2.5-7B\nstage: dpo\nfinetuning_type: full\ncutoff_len: 2048\n"


def options(command: str, recipe: str = "") -> dict[str, str]:
    """Return the options of a command's workload."""
    return dict(read_script(f"{HEAD}{command}\n", file="job.sh", files={"r.yaml": recipe}).options)


@pytest.mark.parametrize(
    ("command", "option", "value"),
    [
        (DPO, "roles.method", "dpo"),
        (DPO, "roles.sequences", "2"),
        (DPO, "roles.reference", "gpu"),
        (DPO, "roles.reference.bits", "32"),
        (f"{DPO} --torch_dtype bfloat16", "roles.reference.bits", "16"),
        (f"{DPO} --precompute_ref_log_probs true", "roles.reference", None),
        (f"{DPO} --torch_dtype bfloat16 --use_peft --lora_r 16", "roles.reference", None),
        (f"{DPO} --torch_dtype bfloat16 --use_peft --lora_r 16", "adapters.rank", "16"),
        (f"accelerate launch run_orpo.py {FLAGS}", "roles.reference", None),
        (f"accelerate launch run_orpo.py {FLAGS}", "roles.sequences", "2"),
        (f"trl kto {FLAGS}", "roles.sequences", None),
        (f"trl kto {FLAGS}", "roles.reference", "gpu"),
        (f"trl reward {FLAGS}", "roles.scores", "true"),
        (f"trl sft {FLAGS}", "roles.method", None),
        (GRPO, "rollout.engine", "generate"),
        (GRPO, "roles.reference", "perhaps"),  # the default of beta changed from 0.04 to 0
        (f"{GRPO} --beta 0.0", "roles.reference", None),
        (f"{GRPO} --beta 0.04", "roles.reference", "gpu"),
        (VLLM, "rollout.place", "perhaps"),
        (f"{VLLM} --vllm_mode colocate", "rollout.place", "gpu"),
        (f"{VLLM} --vllm_mode colocate", "rollout.memory_share", "0.3"),
        (f"{VLLM} --vllm_mode colocate --vllm_enable_sleep_mode true", "rollout.sleeps", "true"),
        (f"{VLLM} --vllm_mode server", "rollout.engine", None),
        (f"{SWIFT} --rlhf_type dpo", "roles.sequences", "2"),
        (f"{SWIFT} --rlhf_type dpo", "roles.reference.bits", "16"),
        (f"{SWIFT} --rlhf_type grpo --use_vllm true --vllm_mode colocate", "rollout.memory_share", "0.9"),
        (f"{SWIFT} --rlhf_type grpo --offload_optimizer true", "roles.actor.rests", None),
        (SWIFT.replace("full", "lora"), "adapters.rank", "8"),
        (f"{SWIFT} --rlhf_type gkd", "roles.method", None),
    ],
)
def test_each_trainer_holds_what_its_loss_needs(command: str, option: str, value: str | None) -> None:
    assert options(command).get(option) == value


@pytest.mark.parametrize(
    ("more", "option", "value"),
    [
        ("", "roles.sequences", "2"),
        ("", "roles.reference", "gpu"),
        ("pref_loss: simpo", "roles.reference", None),
        ("pref_loss: simpo", "roles.sequences", "2"),
        ("lora_rank: 8", "roles.reference", "gpu"),
    ],
)
def test_the_stage_of_a_recipe_of_llama_factory_decides(more: str, option: str, value: str | None) -> None:
    assert options("llamafactory-cli train r.yaml", f"{RECIPE}{more}\n").get(option) == value


def test_a_stage_that_only_a_fork_has_may_hold_other_models() -> None:
    """``stage`` of LLaMA-Factory is one of pt, sft, rm, ppo, dpo and kto."""
    recipe = RECIPE.replace("stage: dpo", "stage: oreo").replace("full", "lora")
    read = options("llamafactory-cli train r.yaml", recipe)
    assert read["trainable"] == "unknown: other models may be in memory too (stage oreo)"
    assert "adapters.rank" not in read
    assert "trainable" not in options("llamafactory-cli train r.yaml", recipe.replace("oreo", "sft"))


def test_a_teacher_or_ppo_of_trl_stays_unknown() -> None:
    assert "in memory too" in options(f"trl gkd {FLAGS}")["trainable"]
    assert "in memory too" in options(f"trl ppo {FLAGS}")["trainable"]


def test_grpo_trains_prompt_and_answer() -> None:
    text = f"{HEAD}{VLLM} --max_prompt_length 256\n"
    assert read_script(text, file="job.sh").model.seq == 1280


PYTHON = """from trl import {name}Config, {name}Trainer
args = {name}Config(output_dir="o", per_device_train_batch_size=2, {settings})
{name}Trainer(model="Qwen/Qwen2.5-7B", args=args, {more}).train()
"""


@pytest.mark.parametrize(
    ("name", "settings", "more", "option", "value"),
    [
        ("DPO", "max_length=2048", "", "roles.sequences", "2"),
        ("DPO", "max_length=2048, precompute_ref_log_probs=True", "", "roles.reference", None),
        ("ORPO", "max_length=2048", "", "roles.reference", None),
        ("GRPO", "use_vllm=True, vllm_mode='colocate'", "", "rollout.memory_share", "0.3"),
        ("GRPO", "beta=0.0", "", "roles.reference", None),
        ("GRPO", "beta=0.0", "reward_funcs='org/reward-model'", "roles.method", None),
        ("PPO", "response_length=53", "", "roles.method", None),
    ],
)
def test_a_trainer_that_a_python_file_makes_is_read_from_it(
    name: str, settings: str, more: str, option: str, value: str | None
) -> None:
    text = PYTHON.format(name=name, settings=settings, more=more)
    read = read_script(f"{HEAD}torchrun --nproc_per_node 8 train_it.py\n", file="job.sh", files={"train_it.py": text})
    assert dict(read.options).get(option) == value


COPY = (
    "from trl import DPOConfig, DPOTrainer, ModelConfig, TrlParser\n"
    "args, model_args = TrlParser((DPOConfig, ModelConfig)).parse_args_and_config()\n"
    "kind = choose(model_args)\n"
    "model = AutoModelForCausalLM.from_pretrained(model_args.model_name_or_path, torch_dtype=kind())\n"
    "peft_config = get_peft_config(model_args)\n"
    "DPOTrainer(model, None, args=args, peft_config=peft_config).train()\n"
)


def test_a_reference_of_a_format_that_is_computed_has_32_bits_at_most() -> None:
    command = f"python align.py {FLAGS} --use_peft --lora_r 8 --gradient_checkpointing"
    workload = read_script(f"{HEAD}{command}\n", file="job.sh", files={"align.py": COPY})
    found = dict(workload.options)
    assert found["roles.method"] == "dpo"
    assert found["roles.reference.bits"] == "32"
    assert "only adapters are trained" in found["trainable"]


def test_adapters_do_not_hide_that_other_models_are_not_known() -> None:
    source = COPY.replace("DPO", "GRPO").replace("args=args", "args=GRPOConfig(use_vllm=ask())")
    workload = read_script(f"{HEAD}python align.py {FLAGS} --use_peft\n", file="job.sh", files={"align.py": source})
    assert "its models (grpo)" in dict(workload.options)["trainable"]

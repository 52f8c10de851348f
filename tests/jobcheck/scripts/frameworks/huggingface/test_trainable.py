"""Which commands train only a part of a model, or hold more than one: settings as training programs name them."""

from __future__ import annotations

import pytest

from opsk_jobcheck.scripts.bash.values import Invocation, literal, unknown
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import OPTION, find_unknown_reason, read_trainable
from opsk_jobcheck.scripts.script import read_script
from opsk_jobcheck.scripts.settings.arguments import iterate_settings
from opsk_jobcheck.scripts.settings.config_file import read_config_file
from opsk_jobcheck.scripts.settings.findings import Findings


def reason(command: str, config: str = "", form: str = "yaml") -> str | None:
    """Return why the trainable part of a command is unknown."""
    findings = Findings("job.sh")
    settings = iterate_settings(read_config_file(config, path=f"config.{form}")) if config else ()
    words = tuple(literal(word, 3) for word in command.split())
    read_trainable(Invocation(words=words, line=3), findings, settings=settings)
    return find_unknown_reason(findings.options.items())


@pytest.mark.parametrize(
    "command",
    [
        "torchrun finetune.py --use_peft --lora_r 16",
        "torchrun finetune.py --enable_fsdp --use_peft True --peft_method lora",
        "torchrun finetune.py --lora-rank 8",
        "llamafactory-cli train --finetuning_type lora",
        "swift sft --train_type qlora",
        "python pretrain.py model.peft.peft_scheme=lora",
        "tune run --nproc_per_node 8 lora_finetune_distributed --config c.yaml",
        "tune run full_finetune_distributed quantize_base=True",
        "pretrain_gpt.py --freeze-LM",
        "train.py --freeze_backbone true",
        "train.py --load_in_4bit",
        "finetuning.py --quantization 4bit",
        "pretrain_gpt.py --export-kd-teacher-load /ckpt",
        "accelerate launch scripts/dpo.py",
        "trl grpo --model_name m",
        "python -m verl.trainer.main_ppo",
        "llamafactory-cli train --stage ppo",
        "train.py --reward_model rm",
    ],
)
def test_a_part_that_is_not_known_is_said_with_its_place(command: str) -> None:
    found = reason(command)
    assert found is not None
    assert "job.sh:3" in found


def test_a_part_that_a_second_script_states_is_said_with_its_place_there() -> None:
    files = {"tune.sh": "#!/bin/bash\npython train.py \\\n  --load_in_4bit\n"}
    workload = read_script("#!/bin/bash\n#SBATCH --gpus=1\nbash tune.sh\n", file="job.sh", files=files)
    assert "tune.sh:3" in dict(workload.options)["trainable"]


@pytest.mark.parametrize(
    "command",
    [
        "pretrain_gpt.py --num-layers 32 --data-path /data/lora/text --save /ckpt/dpo",
        "finetune.py --use_peft false --lora_r 16 --lora_alpha 32",
        "llamafactory-cli train --finetuning_type full --lora_target all",
        "python pretrain.py model.peft.peft_scheme=null",
        "train.py --lora-rank 0 --freeze-layers 0 --load_in_8bit false",
        "tune run full_finetune_distributed --config lora.yaml",
        "deepspeed train.py --stage 3 --zero-stage 1",
        "sft.py --dataset trl-lib/dpo --quantization fp8",
        "train.py --adapter none",
        "train.py --freeze_gc --gc_freeze true --freeze_step 400",  # Python's memory; DeepSpeed's 1-bit Adam
        "llamafactory-cli train --finetuning_type full --freeze_trainable_layers 2",
        "",
    ],
)
def test_training_all_of_one_model_is_not_doubted(command: str) -> None:
    assert reason(command) is None


@pytest.mark.parametrize(
    ("config", "place"),
    [
        ("base_model: m\nadapter: qlora\n", "adapter qlora, config.yaml:2"),
        ("model:\n  m: 1\npeft:\n  peft_scheme: lora\n", "peft.peft_scheme lora, config.yaml:4"),
        ("rl: dpo\n", "rl dpo, config.yaml:1"),
        ("load_in_8bit: false\nload_in_4bit: true\n", "load_in_4bit True, config.yaml:2"),
        ("unfrozen_parameters: all\n", "unfrozen_parameters all, config.yaml:1"),
    ],
)
def test_files_say_it_too(config: str, place: str) -> None:
    found = reason("accelerate launch train.py", config)
    assert found is not None
    assert place in found


@pytest.mark.parametrize(
    "config", ["adapter:\nlora_r: 16\nload_in_8bit: false\n", "use_peft: false\nlora_r: 8\n", "- 1\n"]
)
def test_a_file_may_switch_it_off(config: str) -> None:
    assert reason("accelerate launch train.py", config) is None


def test_a_switch_that_cannot_be_told_is_taken_for_on() -> None:
    findings = Findings("job.sh")
    words = (literal("--lora_r", 1), unknown("R comes from $1", 1, filled=True))
    read_trainable(Invocation(words=words, line=1), findings)
    assert findings.options[OPTION].startswith("unknown: only adapters")

"""Which framework and which launcher a script uses, by the words that it runs."""

from __future__ import annotations

import pytest

from opsk_jobcheck.scripts.bash.evaluate import run
from opsk_jobcheck.scripts.bash.values import Invocation
from opsk_jobcheck.scripts.frameworks.recognition import (
    find_framework,
    find_launcher,
    looks_like_training,
    refine_framework,
)
from opsk_jobcheck.scripts.script import read_script


def invocations(script: str) -> tuple[Invocation, ...]:
    """Return what a script runs."""
    return tuple(run(script, given={}).invocations)


@pytest.mark.parametrize(
    ("script", "name"),
    [
        ("srun axolotl train config.yml", "axolotl"),
        ("accelerate launch -m axolotl.cli.train x.yml", "axolotl"),
        ("llamafactory-cli train x.yaml", "llama-factory"),
        ("srun torchrun -m torchtitan.train --job.config_file x.toml", "torchtitan"),
        ("torchrun /opt/nanotron/run_train.py", "nanotron"),
        ("composer llm-foundry/scripts/train/train.py x.yaml", "composer"),
        ("accelerate launch scripts/sft.py", "trl"),
        ("python run_clm.py --model_name_or_path gpt2", "hf-trainer"),
        ("litgpt pretrain tiny", "litgpt"),
        ("python lightning_train.py", "lightning"),
        ("srun tune run x", "torchtune"),
        ("python -m verl.trainer.main_ppo actor.fsdp_config.x=1", "verl"),
        ("torchrun -m verl.trainer.fsdp_sft_trainer data.train_files=x", "verl"),
        ("deepspeed --module openrlhf.cli.train_sft --max_len 2048", "openrlhf"),
        ("torchrun scripts/train.py configs/x.yaml --save_folder=/runs/OLMo/x --fsdp.wrapping_strategy=size", "olmo"),
        ("srun python -m open_clip_train.main --model ViT-B-32", "open-clip"),
        ("cd /opt/Megatron-Bridge; python run.py", "megatron-bridge"),
        ("python pack.py --tokenizer EleutherAI/gpt-neox-20b", None),
        ("python ./deepy.py train.py cfg.yml", "gpt-neox"),
        ("cd /opt/Megatron-LM; python pretrain_gpt.py $ARGS", "megatron-lm"),
    ],
)
def test_a_framework_is_known_by_its_words(script: str, name: str | None) -> None:
    assert find_framework(invocations(script)) == name


def test_what_is_only_said_names_no_framework() -> None:
    assert find_framework(invocations("echo torchtitan; printf axolotl.cli; hostname")) is None


@pytest.mark.parametrize(
    "script", ["srun torchrun x.py", "python pretrain_gpt.py", "sh train.sh", "bash train_all-it.sh", "deepspeed a.py"]
)
def test_trainers_look_like_training(script: str) -> None:
    assert looks_like_training(invocations(script))


@pytest.mark.parametrize(
    "script",
    [
        "srun hostname",
        "pip install accelerate",
        "python -m pip install --no-deps accelerate deepspeed",
        "conda install -y deepspeed",
        "uv pip install torchrun",
        "python restrain.py.txt",
        "python evaluate_finetuned.py",
        "python score_pretrained.py",
        "echo torchrun",
        "cp train.py /tmp",
        "",
    ],
)
def test_other_work_does_not(script: str) -> None:
    assert not looks_like_training(invocations(script))


@pytest.mark.parametrize(
    ("script", "ntasks_per_node", "launcher"),
    [
        ("srun torchrun x.py", 1, "srun + torchrun"),
        ("srun /opt/venv/bin/torchrun x.py", None, "srun + torchrun"),
        (
            "srun singularity exec i.sif python -m torch.distributed.run x.py",
            1,
            "srun + singularity + torch.distributed.run",
        ),
        ("srun accelerate launch x.py", 1, "srun + accelerate launch"),
        ("deepspeed x.py", None, "deepspeed"),
        ("srun tune run --nproc_per_node 8 full_finetune_distributed", 1, "srun + tune run"),
        ("mpirun -np 8 python x.py", 8, "mpirun"),
        ("srun python x.py", 8, "srun, one task per GPU"),
        ("srun python x.py", 1, "srun"),
        ("python x.py", 1, None),
        ("echo srun torchrun", 8, None),
    ],
)
def test_the_launcher_is_named_in_words(script: str, ntasks_per_node: int | None, launcher: str | None) -> None:
    assert find_launcher(invocations(script), ntasks_per_node=ntasks_per_node) == launcher


@pytest.mark.parametrize(
    ("framework", "script", "name"),
    [
        ("megatron-lm", "srun python3 /opt/bionemo2/esm2/train_esm2.py", "bionemo"),
        ("megatron-lm", "srun python3 /opt/Megatron-LM/pretrain_gpt.py", "megatron-lm"),
        ("hf-trainer", "deepspeed --module openrlhf.cli.train_dpo", "openrlhf"),
        ("nemo", "python megatron_gpt_pretraining.py", "nemo"),
    ],
)
def test_who_takes_the_flags_of_another_is_called_by_his_own_name(framework: str, script: str, name: str) -> None:
    assert refine_framework(framework, invocations(script)) == name


@pytest.mark.parametrize(
    ("command", "framework"),
    [
        ("NPROC_PER_NODE=8 swift sft --model Qwen/Qwen2.5-7B", "ms-swift"),
        ("megatron pt --model Qwen/Qwen2.5-7B", ""),
        ("srun xtuner train conf.py --launcher slurm", "xtuner"),
        ("fabric run --devices 8 main.py", "lightning"),
        ("fairseq-train data-bin --arch transformer", ""),
        ("nnUNetv2_train 27 3d_fullres 0", "nnunet"),
        ("yolo detect train data=coco.yaml", "ultralytics"),
        ("uv run oumi train -c x.yaml", "oumi"),
        ("dp train input.json", ""),
        ("swift upload container file", None),
        ("yolo predict model=yolo11n.pt", None),
        ("xtuner convert pth_to_hf a b c", None),
        ("dp test -m graph.pb", None),
    ],
)
def test_commands_of_frameworks_that_train_are_training(command: str, framework: str | None) -> None:
    workload = read_script(f"#!/bin/bash\n#SBATCH --gres=gpu:8\n{command}\n", file="job.sh")
    assert (workload.framework, workload.is_training) == (framework or None, framework is not None)


@pytest.mark.parametrize(
    ("command", "trains"),
    [
        ("make train-sft", True),
        ("make -j4 CONFIG=a.yml train", True),
        ("just llm-finetune", True),
        ("wandb agent me/project/abc123", True),
        ("srun python -m wandb agent abc123", True),
        ("make all", False),
        ("make test-train", False),
        ("make evaluate", False),
        ("wandb sync runs", False),
    ],
)
def test_rules_and_sweeps_that_train_are_seen(command: str, *, trains: bool) -> None:
    assert looks_like_training(invocations(command)) is trains


@pytest.mark.parametrize(
    ("flags", "trains"),
    [
        ("--config conf.py --mode train", True),  # score-based models of Song et al.
        ("--mode=training", True),
        ("--phase finetune", True),
        ("--mode eval", False),
        ("--mode offline", False),
        ("--mode $1", False),
    ],
)
def test_a_mode_says_whether_a_program_of_many_tasks_trains(flags: str, *, trains: bool) -> None:
    found = read_script(f"#!/bin/bash\n#SBATCH --gres=gpu:1\nsrun python main.py {flags}\n", file="job.sh")
    assert found.is_training is trains


def test_a_trainer_whose_mode_is_another_does_not_train() -> None:
    script = "#!/bin/bash\n#SBATCH --gres=gpu:1\npython train.py --mode {}\n"
    assert not read_script(script.format("test"), file="job.sh").is_training
    assert read_script(script.format("fast"), file="job.sh").is_training

"""What is read of published training programs: their flags, and the defaults of their parsers where none is given."""

from __future__ import annotations

import pytest

from opsk.workload.plan import Precision, Recompute, Sharding
from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.frameworks.huggingface.trainable import OPTION as TRAINABLE
from opsk_jobcheck.scripts.script import read_script

HEAD = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gpus-per-node=4\n"
RUN = "torchrun --nproc_per_node=4"
SD = "stable-diffusion-v1-5/stable-diffusion-v1-5"
SDXL = "stabilityai/stable-diffusion-xl-base-1.0"
TIMM = "--sched cosine --aa rand-m9 --lr 0.1"
TORCHVISION = "--lr-scheduler cosineannealinglr --auto-augment ta_wide --data-path /data"


def read(body: str, files: dict[str, str] | None = None) -> Workload:
    """Read a script with the usual first lines."""
    return read_script(f"{HEAD}{body}\n", file="job.sh", files=files)


@pytest.mark.parametrize(
    ("command", "framework", "model", "batch", "precision"),
    [
        # pytorch-image-models/train.py: resnet50, 128 a GPU, fp32
        (f"{RUN} train.py /d {TIMM}", "timm", "resnet50", 128, "fp32"),
        (f"{RUN} train.py /d --model convnext_base -b 64 --amp {TIMM}", "timm", "convnext_base", 64, "fp16"),
        (f"{RUN} train.py /d --model resnet50 --amp --amp-dtype bfloat16 {TIMM}", "timm", "resnet50", 128, "bf16"),
        (f"./distributed_train.sh 4 /d --model resnet50 --amp {TIMM}", "timm", "resnet50", 128, "fp16"),
        # references/classification/train.py: resnet18, 32 a GPU
        (f"{RUN} train.py {TORCHVISION}", "torchvision", "resnet18", 32, "fp32"),
        (f"{RUN} train.py --model vit_b_16 -b 512 --amp {TORCHVISION}", "torchvision", "vit_b_16", 512, "fp16"),
        # deit/main.py: 64 a GPU, autocast is always on
        (
            f"{RUN} main.py --model deit_small_patch16_224 --data-path /d --drop-path 0.1 --mixup 0.8",
            *("deit", "deit_small_patch16_224", 64, "fp16"),
        ),
        # mae/main_finetune.py: names without the size of images
        (
            f"{RUN} main_finetune.py --model vit_base_patch16 --blr 5e-4 --layer_decay 0.65 --dist_eval",
            *("mae", "vit_base_patch16_224", 64, "fp16"),
        ),
        # open_clip_train: 64 a GPU
        (
            "srun -n4 python -m open_clip_train.main --train-data d --dataset-type csv --model ViT-B-32"
            " --precision amp_bf16",
            *("open-clip", "openclip-ViT-B-32", 64, "bf16"),
        ),
        (
            "srun -n4 python -m training.main --train-data d --imagenet-val v --precision amp --batch-size 320",
            *("open-clip", "openclip-RN50", 320, "fp16"),
        ),
        # diffusers/examples: 16 a GPU for text_to_image, 4 for dreambooth
        (
            "accelerate launch --mixed_precision fp16 train_text_to_image.py --resolution=512"
            f" --pretrained_model_name_or_path={SD}",
            *("diffusers", SD, 16, "fp16"),
        ),
        (
            f"accelerate launch train_dreambooth_lora_sdxl.py --pretrained_model_name_or_path {SDXL}"
            " --instance_data_dir d --mixed_precision bf16 --resolution 1024",
            *("diffusers", SDXL, 4, "bf16"),
        ),
        # DiT/train.py: 256 samples on all GPUs
        (
            f"{RUN} train.py --model DiT-XL/2 --image-size 256 --num-classes 1000 --global-seed 0",
            *("dit", "DiT-XL/2", 64, "fp32"),
        ),
    ],
)
def test_flags_and_defaults_are_read(command: str, framework: str, model: str, batch: int, precision: str) -> None:
    workload = read(command)
    plan = workload.plan
    assert (workload.framework, workload.model.name) == (framework, model)
    assert (plan.micro_batch, plan.precision, plan.tp, plan.pp) == (batch, Precision(precision), 1, 1)
    assert plan.sharding is Sharding.NONE


def test_the_batch_of_the_imagenet_example_is_that_of_a_node() -> None:
    # "this is the total batch size of all GPUs on the current node when using Data Parallel or DDP"
    flags = "--dist-url tcp://127.0.0.1:1 --dist-backend nccl --world-size 1 --rank 0 /data"
    workload = read(f"python main.py -a resnet50 -b 1024 --multiprocessing-distributed {flags}")
    assert (workload.framework, workload.model.name, workload.plan.micro_batch) == ("pytorch-ddp", "resnet50", 256)
    shared = read(f"python main.py -a resnet50 -b 1024 {flags}")
    assert shared.plan.micro_batch is None


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        ("--model-ema", {"weights.average": "true"}),
        ("--img-size 384", {"input.size": "384"}),
        ("--opt adamw", {"optimizer.name": "adamw_torch_fused"}),
        ("--opt sgd", {"optimizer.name": "sgd"}),
        ("--opt lamb", {"optimizer.name": "adamw_torch_fused"}),
    ],
)
def test_settings_of_memory_are_noted(flags: str, options: dict[str, str]) -> None:
    workload = read(f"{RUN} train.py /d --model resnet50 {flags} {TIMM}")
    assert options.items() <= dict(workload.options).items()


def test_checkpoints_and_adapters_are_read() -> None:
    command = f"accelerate launch train_text_to_image_lora.py --pretrained_model_name_or_path={SD} --rank 8"
    workload = read(f"{command} --gradient_checkpointing --train_batch_size 1 --resolution 512")
    assert workload.plan.recompute is Recompute.FULL
    options = dict(workload.options)
    assert (options["adapters"], options["adapters.rank"], options["input.size"]) == ("lora", "8", "512")


@pytest.mark.parametrize("flag", ["--lock-image", "--lock-text"])
def test_a_locked_tower_is_not_predicted(flag: str) -> None:
    workload = read(f"{RUN} -m open_clip_train.main --train-data d --dataset-type csv --model ViT-B-32 {flag}")
    assert dict(workload.options)[TRAINABLE].startswith("unknown:")


def test_a_transformer_on_larger_images_has_more_patches() -> None:
    workload = read(f"{RUN} train.py /d --model vit_base_patch16_224 --img-size 384 {TIMM}")
    assert workload.model.seq == 24 * 24 + 1


def test_settings_of_a_file_are_below_those_of_the_command() -> None:
    command = f"{RUN} train.py /d --config c.yaml --amp {TIMM}"
    workload = read(command, {"c.yaml": "model: resnet101\nbatch_size: 96\n"})
    assert (workload.model.name, workload.plan.micro_batch) == ("resnet101", 96)
    unread = read(command)
    assert unread.plan.micro_batch is None
    assert any("c.yaml" in path for path in unread.missing_files)


@pytest.mark.parametrize(
    "command",
    [
        f"{RUN} train.py --model resnet50 --batch-size 64",
        f"{RUN} train.py --config c.yaml",
        "python main.py --model gpt2",
        f"{RUN} train_text_to_image.py --lr 1",
    ],
)
def test_a_program_of_that_name_with_other_flags_is_not_taken_for_it(command: str) -> None:
    assert read(command).framework not in ("timm", "torchvision", "deit", "diffusers", "pytorch-ddp")


def test_a_model_that_is_not_known_is_named() -> None:
    workload = read(f"{RUN} train.py /d --model my_own_net {TIMM}")
    assert workload.model.name is None
    assert any("my_own_net" in entry.why for entry in workload.unknown)


def test_a_flag_that_the_program_refuses_shows_that_it_is_another_one() -> None:
    """``argparse`` ends timm's ``train.py`` at a flag that is not its own: a user's program has the others."""
    flags = "--model vit_tiny_patch16_224 --aa rand --cutmix 0.8 --reprob 0.2"
    assert read(f"{RUN} train.py {flags}").framework == "timm"
    assert read(f"{RUN} train.py {flags} --gelu_budget 3").framework != "timm"


def test_a_number_format_in_which_releases_differ_is_not_stated() -> None:
    assert read("srun -n4 python -m open_clip_train.main --train-data d --dataset-type csv").plan.precision is None

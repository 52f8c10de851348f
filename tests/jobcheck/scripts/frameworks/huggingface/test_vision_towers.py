"""Whether the tower of a model of images and text is frozen: by the framework's default, or by a setting.

Defaults: ``finetuning_args.py`` of LLaMA-Factory and ``tuner_args.py`` of ms-swift freeze it, the Trainer does not.
"""

from __future__ import annotations

import pytest

from opsk.workload.completion import complete
from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.script import read_script

MODEL = "Qwen/Qwen2.5-VL-7B-Instruct"
HEAD = "#!/bin/bash\n#SBATCH --nodes=1 --gpus-per-node=8\n"
SWIFT = f"swift sft --model {MODEL} --train_type full --torch_dtype bfloat16 --max_length 4096 --dataset d.json"
TRAINER = (
    f"torchrun --nproc_per_node 8 tune.py --model_name_or_path {MODEL} --bf16 --per_device_train_batch_size 1"
    " --model_max_length 4096 --output_dir o"
)
FACTORY = f"model_name_or_path: {MODEL}\nstage: sft\nfinetuning_type: full\ncutoff_len: 2048\nbf16: true\n"
LLAVA = (
    "deepspeed llava/train/train_mem.py --model_name_or_path lmsys/vicuna-7b-v1.5 --bf16 True --output_dir o"
    " --vision_tower openai/clip-vit-large-patch14-336 --model_max_length 2048 --per_device_train_batch_size 4"
)


def read(command: str, file: str = "") -> Workload:
    return read_script(f"{HEAD}{command}\n", file="job.sh", files={"t.yaml": file} if file else {})


def count_frozen(workload: Workload) -> int | None:
    """Return the parameters of the frozen tower; ``None`` where there is no verdict on the model."""
    model = complete(workload).model
    is_known = model is not None and "trainable" not in dict(workload.options)
    return model.frozen_parameters if is_known and model is not None else None


@pytest.mark.parametrize(
    ("workload", "frozen"),
    [
        (read(SWIFT), 676_000_000),
        (read(f"{SWIFT} --freeze_vit true --freeze_aligner false"), 676_000_000),
        (read(f"{SWIFT} --freeze_vit false"), None),
        (read(f"{SWIFT} --freeze_llm true"), None),
        (read("llamafactory-cli train t.yaml", file=FACTORY), 676_000_000),
        (read("llamafactory-cli train t.yaml", file=f"{FACTORY}freeze_vision_tower: true\n"), 676_000_000),
        (read("llamafactory-cli train t.yaml", file=f"{FACTORY}freeze_vision_tower: false\n"), None),
        (read(TRAINER), None),
        (read(f"{TRAINER} --tune_mm_vision False --tune_mm_llm True"), 676_000_000),
        (read(f"{TRAINER} --tune_mm_vision True"), None),
        (read(LLAVA), 303_507_456),
        (read(f"{LLAVA} --unfreeze_mm_vision_tower True"), None),
        (read(f"{LLAVA} --tune_mm_mlp_adapter True"), None),
        (read(f"{LLAVA} --mm_tunable_parts mm_vision_tower,mm_mlp_adapter,mm_language_model"), None),
    ],
)
def test_the_tower_is_frozen_for_sure_or_nothing_is_said(workload: Workload, frozen: int | None) -> None:
    assert workload.is_training
    assert count_frozen(workload) == frozen


def test_the_reason_names_the_tower() -> None:
    assert "vision tower" in dict(read(TRAINER).options)["trainable"]

"""Jobs that train adapters: a verdict, and advice that knows that the base is frozen."""

from __future__ import annotations

import pytest

from opsk.costmodel.uncertainty.verdict import Verdict
from opsk.hardware.catalog import cluster
from opsk_jobcheck.advice.advice import Advice
from opsk_jobcheck.advice.adviser import Adviser
from opsk_jobcheck.advice.rendering.sections import headline
from opsk_jobcheck.advice.search import WasteKind
from opsk_jobcheck.scripts.script import read_script

ADVISER = Adviser(cluster=cluster("superpod-h100"), cluster_from="test")
HEAD = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gpus-per-node={gpus}\n"
TRAIN = (
    "llamafactory-cli train --stage sft --do_train true --model_name_or_path meta-llama/Llama-2-7b-hf --bf16 true"
    " --cutoff_len 2048 --per_device_train_batch_size 2 --gradient_accumulation_steps 4"
)


def analysis(flags: str, *, gpus: int = 1) -> Advice:
    return ADVISER.advise(read_script(f"{HEAD.format(gpus=gpus)}{TRAIN} {flags}\n", file="job.sh"))


def memory_gib(flags: str) -> float:
    prediction = analysis(flags).prediction
    assert prediction is not None
    return float(prediction.memory.total_bytes.expected) / 2**30


def test_adapters_get_a_verdict_and_are_named_first() -> None:
    advice = analysis("--finetuning_type lora --lora_rank 16 --lora_target all --quantization_bit 4")
    assert (advice.verdict, advice.why_unknown) == (Verdict.FITS, ())
    assert headline(advice).text.endswith("LoRA rank 16, 4-bit base")


def test_a_frozen_base_takes_less_than_a_trained_one_and_a_quantised_one_least() -> None:
    # 6.7 billion weights of the base: 16 against 4.127 bits (QLoRA), and 2 + 2 + 4 bytes a weight to train them
    lora, quantised = (memory_gib(f"--finetuning_type lora {more}") for more in ("", "--quantization_bit 4"))
    full = memory_gib("--finetuning_type full --pure_bf16 true")
    weights = 6.6e9 / 2**30
    assert lora - quantised == pytest.approx(weights * (16 - 4.127) / 8, rel=0.15)
    assert full - lora > weights * 5


def test_replicas_of_a_base_that_fits_are_no_waste() -> None:
    kinds = {entry.kind for entry in analysis("--finetuning_type lora", gpus=8).waste}
    assert WasteKind.SHARDING not in kinds

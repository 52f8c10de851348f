"""Settings that decide memory, as transformers, TRL, LLaMA-Factory and axolotl name them."""

import pytest

from opsk.workload.completion import complete
from opsk.workload.plan import Loss, Offload, Plan
from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.script import read_script

HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n"
TRAIN = "srun torchrun --nnodes 2 --nproc_per_node 8 train.py --num_train_epochs 1"
MODEL = "--model_name_or_path meta-llama/Llama-2-7b-hf"


def read(flags: str) -> Workload:
    fixed = "--bf16 true --block_size 2048 --per_device_train_batch_size 1 --gradient_accumulation_steps 1"
    return read_script(f"{HEAD}{TRAIN} {MODEL} {fixed} {flags}\n", file="job.sh")


def planned(flags: str) -> Plan:
    found = complete(read(flags))
    assert found.plan is not None
    return found.plan


@pytest.mark.parametrize("flag", ["use_liger_kernel true", "use_liger", "cut_cross_entropy true"])
def test_a_fused_loss_keeps_no_logits(flag: str) -> None:
    assert planned(f"--{flag}").loss is Loss.FUSED


def test_the_loss_is_plain_unless_asked_otherwise() -> None:
    assert planned("--use_liger_kernel false").loss is Loss.PLAIN


@pytest.mark.parametrize(
    ("flag", "is_fused"),
    [("eager", False), ("sdpa", True), ("flash_attention_2", True), ("kernels-community/flash-attn3", True)],
)
def test_attention_is_what_is_asked_for(flag: str, *, is_fused: bool) -> None:
    assert read(f"--attn_implementation {flag}").model.flash_attention is is_fused


def test_attention_that_is_left_to_the_model_is_not_stated() -> None:
    assert read("--attn_implementation auto").model.flash_attention is None


def test_offloaded_activations_and_compiled_modules_are_counted() -> None:
    plan = planned("--activation_offloading true --torch_compile true")
    assert (plan.offload, plan.compiled) == (Offload.ACTIVATIONS, True)


def test_what_is_not_counted_is_named() -> None:
    found = complete(read("--torch_empty_cache_steps 4 --use_galore true"))
    named = {entry.field: entry.why for entry in found.assumed}
    assert "never given back" in named["torch_empty_cache_steps"]
    assert "states" in named["use_galore"]

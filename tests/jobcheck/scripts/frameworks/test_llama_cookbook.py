"""What launch scripts of llama-cookbook say: every rule on a small script of its own."""

from __future__ import annotations

import pytest

from opsk.workload.plan import Precision, Recompute, Sharding
from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.script import read_script

HEAD = "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gpus-per-node=4\n"
RUN = "srun torchrun --nproc_per_node 4 finetuning.py --enable_fsdp --use_fast_kernels"


def trained(flags: str = "", *, run: str = RUN) -> Workload:
    """Read a script whose one command trains with these flags."""
    return read_script(f"{HEAD}{run} {flags}\n", file="job.sh")


@pytest.mark.parametrize(
    ("flags", "part", "field", "value"),
    [
        ("", "plan", "tp", 1),
        ("", "plan", "pp", 1),
        ("", "plan", "dp", 4),
        ("--enable_fsdp False", "plan", "tp", None),
        ("--enable_fsdp=True", "plan", "tp", 1),
        ("--batch_size_training 4", "plan", "micro_batch", 4),
        ("--batch_size_training 4", "plan", "global_batch", None),
        ("--batch_size_training 4 --gradient_accumulation_steps 2", "plan", "global_batch", 32),
        ("--batch_size_training 8 --micro_batch_size 2", "plan", "micro_batch", 2),
        ("--batch_size_training 8 --micro_batch_size 2", "plan", "global_batch", 32),
        ("--batch_size_training 4 --gradient_accumulation_steps $1", "plan", "global_batch", None),
        ("--context_length=4096", "model", "seq", 4096),
        ("--pure_bf16", "plan", "precision", Precision.BF16),
        ("--fsdp_config.pure_bf16 True", "plan", "precision", Precision.BF16),
        ("--fsdp_config.pure_bf16 False", "plan", "precision", None),
        ("--use_fp16", "plan", "precision", Precision.FP16),
        ("--fsdp_config.sharding_strategy SHARD_GRAD_OP", "plan", "sharding", Sharding.ZERO2),
        ("--fsdp_config.fsdp_activation_checkpointing False", "plan", "recompute", Recompute.NONE),
        ("--fsdp_activation_checkpointing", "plan", "recompute", Recompute.FULL),
        ("--model_name meta-llama/Llama-2-7b-hf", "model", "name", "meta-llama/Llama-2-7b-hf"),
    ],
)
def test_flags_state_fields(flags: str, part: str, field: str, value: object) -> None:
    assert getattr(getattr(trained(flags), part), field) == value


@pytest.mark.parametrize(
    "run",
    [
        "torchrun --nproc_per_node 4 -m llama_recipes.finetuning --enable_fsdp",
        "torchrun --nproc_per_node 4 -m llama_cookbook.finetuning --enable_fsdp",
        "torchrun --nproc_per_node 4 llama_finetuning.py --enable_fsdp --low_cpu_fsdp",
        "torchrun --nproc_per_node 4 recipes/quickstart/finetuning/finetuning.py --enable_fsdp --batch_size_training 1",
        "python getting-started/finetuning/finetuning.py --enable_fsdp --dist_checkpoint_folder x",
    ],
)
def test_programs_are_recognised(run: str) -> None:
    workload = trained(run=run)
    assert (workload.framework, workload.plan.dp) == ("llama-cookbook", 4)


def test_adapters_are_read() -> None:
    options = dict(trained("--use_peft --peft_method lora --quantization 4bit").options)
    assert (options["adapters"], options["adapters.base_bits"]) == ("lora", "4")


def test_other_adapters_leave_the_trainable_part_unknown() -> None:
    options = dict(trained("--use_peft --peft_method llama_adapter").options)
    assert options["trainable"].startswith("unknown")


def test_an_unknown_shape_says_why() -> None:
    reasons = {entry.field: entry.why for entry in trained("--model_name $MODEL").unknown}
    assert "checkpoint" in reasons["model.layers"]


@pytest.mark.parametrize("run", ["python finetuning.py --lr 1", "python finetune.py --enable_fsdp", "python x.py"])
def test_few_flags_of_that_kind_are_some_other_program(run: str) -> None:
    assert trained(run=run).plan.tp is None


@pytest.mark.parametrize("value", ["\x1b]0;x\x07", "9" * 4000, "0", "four"])
def test_hostile_numbers_are_no_numbers(value: str) -> None:
    assert trained(f"--batch_size_training '{value}'").plan.micro_batch is None


def test_a_folder_of_a_model_is_read() -> None:
    config = '{"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8}'
    body = f"{HEAD}{RUN} --model_name ./mine/small\n"
    workload = read_script(body, file="job.sh", files={"mine/small/config.json": config})
    assert (workload.model.layers, workload.model.hidden) == (4, 512)
    assert read_script(body, file="job.sh").missing_files == ("mine/small/config.json",)

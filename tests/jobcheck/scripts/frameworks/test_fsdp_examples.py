"""What launch scripts of AWS's FSDP example say: every rule on a small script of its own."""

from __future__ import annotations

import pytest

from opsk.workload.plan import Precision, Recompute, Sharding
from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.script import read_script
from tests.fakes.workloads import evidence, why

HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n"
SHAPE = "--max_context_width=4096 --hidden_width=2048 --num_layers=24 --num_heads=16 --train_batch_size=3"


def read(body: str) -> Workload:
    """Read a script with the usual first lines."""
    return read_script(HEAD + body, file="job.sh")


def trained(flags: str = "") -> Workload:
    """Read a script whose one command trains with these flags."""
    return read(f"srun torchrun --nnodes=2 --nproc_per_node=8 ../src/train.py {SHAPE} {flags}\n")


def test_offloading_of_activations_is_noted() -> None:
    assert ("activations.offload", "cpu") in trained("--offload_activations=1").options
    assert "activations.offload" not in dict(trained("--offload_activations=0").options)


@pytest.mark.parametrize(
    ("flags", "part", "field", "value"),
    [
        ("", "model", "seq", 4096),
        ("", "model", "hidden", 2048),
        ("", "model", "layers", 24),
        ("", "model", "heads", 16),
        ("--num_key_value_heads=4", "model", "kv_heads", 4),
        ("--num_key_value_heads 4", "model", "kv_heads", 4),
        ("--intermediate_size=5504", "model", "ffn", 5504),
        ("--llama_intermediate_size=5504 --model_type llama_v2", "model", "ffn", 5504),
        ("--intermediate_size=5504 --model_type=gpt_neox", "model", "ffn", 8192),
        ("--model_type=gpt_neox", "model", "gated_mlp", False),
        ("--model_type=llama_v3", "model", "gated_mlp", True),
        ("--model_type=mixtral", "model", "experts", 8),
        ("--model_type=mixtral", "model", "top_k", 2),
        ("--model_type=mixtral --intermediate_size=14336", "model", "expert_ffn", 14336),
        ("--model_type=mistral", "model", "experts", None),
        ("--vocab_size=32000", "model", "vocab", 32000),
        ("", "plan", "micro_batch", 3),
        ("", "plan", "tp", 1),
        ("", "plan", "pp", 1),
        ("", "plan", "dp", 16),
        ("", "plan", "global_batch", 48),
        ("", "plan", "precision", None),
        ("--bf16=1", "plan", "precision", Precision.BF16),
        ("--bf16=0", "plan", "precision", Precision.FP32),
        ("--sharding_strategy=full", "plan", "sharding", Sharding.ZERO3),
        ("--sharding_strategy=hybrid", "plan", "sharding", Sharding.ZERO3),
        ("--activation_checkpointing=1", "plan", "recompute", Recompute.FULL),
        ("--activation_checkpointing=0", "plan", "recompute", Recompute.NONE),
        ("--activation_checkpointing=0 --activation_checkpointing=1", "plan", "recompute", Recompute.FULL),
    ],
)
def test_flags_state_fields(flags: str, part: str, field: str, value: object) -> None:
    assert getattr(getattr(trained(flags), part), field) == value


def test_the_framework_is_named_after_what_the_program_uses() -> None:
    assert trained().framework == "pytorch-fsdp"


def test_flags_in_an_array_with_comments_between_are_read() -> None:
    body = (
        "declare -a ARGS=(\n  --max_context_width=8192 # long\n  --hidden_width=1024\n  --num_layers=8\n"
        "  --num_heads=8\n  --train_batch_size=1\n  # --train_batch_size=9\n)\n"
        'srun torchrun --nproc_per_node 8 train.py "${ARGS[@]}"\n'
    )
    workload = read(body)
    assert (workload.model.seq, workload.plan.micro_batch, workload.plan.global_batch) == (8192, 1, 16)


def test_evidence_cites_the_line_that_the_flag_is_written_on() -> None:
    workload = read(f"BATCH=5\nsrun torchrun train.py {SHAPE} \\\n  --train_batch_size=$BATCH\n")
    entry = evidence(workload, "plan.micro_batch")
    assert (entry.value, entry.line) == (5, 4)


def test_an_unknown_batch_leaves_the_global_batch_open() -> None:
    workload = trained("--train_batch_size=$1")
    assert workload.plan.micro_batch is None
    assert workload.plan.global_batch is None
    assert why(workload, "plan.micro_batch")


def test_a_batch_that_is_no_number_is_not_believed() -> None:
    assert trained("--train_batch_size=many").plan.micro_batch is None


def test_a_width_that_the_kind_of_model_ignores_is_not_stated() -> None:
    workload = trained("--intermediate_size=$1 --model_type=gpt_neox")
    assert workload.model.ffn == 4 * 2048


def test_tensor_parallelism_of_model_parallel_v2_is_read() -> None:
    workload = trained("--tensor_parallel_degree=4 --hybrid_shard_degree 2")
    assert (workload.plan.tp, workload.plan.pp, workload.plan.dp) == (4, 1, 4)
    assert workload.plan.global_batch == 12


def test_model_parallel_v2_without_a_degree_may_take_it_from_elsewhere() -> None:
    workload = trained("--use_smp_implementation=1")
    assert (workload.plan.tp, workload.plan.dp) == (None, None)


def test_few_flags_of_that_kind_are_some_other_program() -> None:
    workload = read("srun python train.py --num_layers=2 --model_type=x --max_context_width=5\n")
    assert (workload.framework, workload.model.seq) == (None, None)


def test_offloading_of_the_optimizer_is_noted() -> None:
    assert ("optimizer.offload", "cpu") in trained("--cpu_offload=1").options


@pytest.mark.parametrize("value", ["\x1b[31m9", "9" * 4000, "-3", "0", "1e3", "８"])
def test_hostile_numbers_are_no_numbers(value: str) -> None:
    workload = trained(f"--train_batch_size='{value}'")
    assert workload.plan.micro_batch is None
    assert workload.plan.global_batch is None


def test_the_number_format_may_be_called_mixed_precision() -> None:
    flags = "--max_context_width 512 --hidden_width 64 --num_heads 4 --model_type llama_v2 --train_batch_size 1"
    text = f"#!/bin/bash\ntorchrun train.py {flags} --mixed_precision=bf16\n"
    precision = read_script(text, file="job.sh").plan.precision
    assert precision is Precision.BF16

"""What launch scripts of LitGPT and the YAML files that they name say."""

from __future__ import annotations

import pytest

from opsk.workload.plan import Precision
from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.script import read_script

HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=4\n#SBATCH --ntasks-per-node=4\n"
RUN = "srun litgpt pretrain --config x.yaml"
FILE = """model_name: tiny-llama-1.1b
model_config:
precision: bf16-mixed
train:
  global_batch_size: 512
  micro_batch_size: 4
  max_seq_length: 2048
devices: auto
num_nodes: 2
"""


def trained(more: str = "", *, file: str | None = FILE, run: str = RUN) -> Workload:
    """Read a script whose one command trains with a file and these settings."""
    return read_script(f"{HEAD}{run} {more}\n", file="job.sh", files={"x.yaml": file} if file is not None else {})


def test_the_file_states_the_plan() -> None:
    workload = trained()
    plan = workload.plan
    assert (plan.tp, plan.pp, plan.dp, plan.micro_batch, plan.global_batch) == (1, 1, 8, 4, 512)
    assert (workload.framework, plan.precision, workload.model.seq) == ("litgpt", Precision.BF16, 2048)


@pytest.mark.parametrize(
    ("precision", "dtype"), [("bf16-true", "bf16"), ("16-true", "fp16"), ("bf16-mixed", None), ("32-true", None)]
)
def test_weights_are_kept_in_16_bits_where_the_precision_is_true(precision: str, dtype: str | None) -> None:
    options = dict(trained(f"--precision {precision}").options)
    assert options.get("weights.dtype") == dtype


def test_the_length_that_training_sets_beats_that_of_the_model() -> None:
    file = FILE.replace("model_config:\n", "model_config:\n  block_size: 8192\n")
    assert trained(file=file).model.seq == 2048
    assert trained(file=file.replace("  max_seq_length: 2048\n", "")).model.seq == 8192


@pytest.mark.parametrize(("devices", "ranks"), [("4", "8"), ("2", "4"), ("auto", None)])
def test_the_file_says_how_many_ranks_there_are(devices: str, ranks: str | None) -> None:
    workload = trained(file=FILE.replace("devices: auto", f"devices: {devices}"))
    assert dict(workload.options).get("launcher.ranks") == ranks


def test_the_file_names_the_model() -> None:
    assert trained().model.name == "tiny-llama-1.1b"


@pytest.mark.parametrize(
    ("more", "field", "value"),
    [
        ("--train.micro_batch_size 8", "micro_batch", 8),
        ("--train.global_batch_size=64", "global_batch", 64),
        ("--precision 32-true", "precision", Precision.FP32),
        ("--precision 16-mixed", "precision", Precision.FP16),
        ("--precision odd", "precision", None),
        ("--train.micro_batch_size $1", "micro_batch", None),
    ],
)
def test_flags_beat_the_file(more: str, field: str, value: object) -> None:
    assert getattr(trained(more).plan, field) == value


@pytest.mark.parametrize(
    ("run", "name"),
    [
        ("litgpt pretrain pythia-160m --train.micro_batch_size 2", "pythia-160m"),
        ("litgpt finetune_full checkpoints/meta-llama/Llama-2-7b-hf --train.micro_batch_size 2",
         "meta-llama/Llama-2-7b-hf"),
        ("litgpt finetune full --checkpoint_dir checkpoints/mistralai/Mistral-7B-v0.1", "mistralai/Mistral-7B-v0.1"),
        ("litgpt pretrain --model_name Llama-3-8B", "Llama-3-8B"),
        ("litgpt pretrain $MODEL", None),
    ],
)  # fmt: skip
def test_the_model_is_named_on_the_command_line(run: str, name: str | None) -> None:
    assert trained(run=run, file=None).model.name == name


@pytest.mark.parametrize(
    ("run", "is_unknown"),
    [
        ("litgpt finetune_lora X --config missing.yaml", True),
        ("litgpt finetune_adapter_v2 X", True),
        ("litgpt finetune_lora X", False),
        ("litgpt finetune_full X", False),
        ("litgpt pretrain X", False),
    ],
)
def test_adapters_that_cannot_be_told_leave_the_trainable_part_unknown(run: str, *, is_unknown: bool) -> None:
    options = dict(trained(run=run, file=None).options)
    assert options.get("trainable", "").startswith("unknown") == is_unknown


@pytest.mark.parametrize(
    ("run", "found"),
    [
        ("litgpt finetune X", {}),
        ("litgpt finetune lora --checkpoint_dir X", {}),
        ("litgpt finetune_lora X --lora_r 32 --lora_mlp true", {"adapters.rank": "32", "adapters.targets": "all"}),
        ("litgpt finetune_lora X --quantize bnb.nf4-dq", {"adapters.base_bits": "4"}),
    ],
)
def test_adapters_are_read(run: str, found: dict[str, str]) -> None:
    options = dict(trained(run=run, file=None).options)
    assert {name: options[name] for name in options if name.startswith("adapters")} == {"adapters": "lora"} | found


def test_a_shape_of_its_own_is_read() -> None:
    own = "model_config:\n  n_layer: 12\n  n_embd: 768\n  n_head: 6\n  n_query_groups: 2\n  block_size: 512\n"
    model = trained(file=FILE.replace("model_config:\n", own).replace("  max_seq_length: 2048\n", "")).model
    assert (model.layers, model.hidden, model.heads, model.kv_heads, model.seq) == (12, 768, 6, 2, 512)


def test_a_file_that_was_not_read_is_wanted() -> None:
    workload = trained(file=None)
    assert workload.missing_files == ("x.yaml",)
    assert (workload.plan.micro_batch, workload.plan.tp, workload.plan.dp) == (None, None, None)


@pytest.mark.parametrize("run", ["litgpt download X", "litgpt chat X", "litgpt"])
def test_other_commands_are_no_training(run: str) -> None:
    assert trained(run=run).plan.tp is None


@pytest.mark.parametrize("file", ["", "train: 3\n", "train: {micro_batch_size: {}}\n", "&a *a"])
def test_damaged_files_state_no_batch(file: str) -> None:
    assert trained(file=file).plan.micro_batch is None

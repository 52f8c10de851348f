"""What launch scripts of OLMo and the YAML files that they name say."""

from __future__ import annotations

import pytest

from opsk.workload.plan import Precision, Recompute, Sharding
from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.script import read_script

HEAD = "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --gpus-per-node=8\n"
RUN = "srun torchrun --nnodes 4 --nproc-per-node 8 scripts/train.py configs/OLMo-7B.yaml"
FILE = """model:
  d_model: 4096
  n_heads: 32
  n_layers: 32
  mlp_hidden_size: 22016
  weight_tying: false
  flash_attention: true
  activation_type: swiglu
  max_sequence_length: 2048
  vocab_size: 50280
  embedding_size: 50304
global_train_batch_size: 1024
device_train_microbatch_size: 2
precision: amp_bf16
fsdp:
  sharding_strategy: FULL_SHARD
  precision: mixed
activation_checkpointing: null
"""


def trained(more: str = "", *, file: str | None = FILE, run: str = RUN) -> Workload:
    """Read a script whose one command trains with a file and these settings."""
    files = {"configs/OLMo-7B.yaml": file} if file is not None else {}
    return read_script(f"{HEAD}{run} {more}\n", file="job.sh", files=files)


def test_the_file_states_the_plan() -> None:
    plan = trained().plan
    assert (plan.tp, plan.pp, plan.dp, plan.micro_batch, plan.global_batch) == (1, 1, 32, 2, 1024)
    assert (plan.sharding, plan.precision) == (Sharding.ZERO3, Precision.BF16)


def test_the_file_states_the_model_and_halves_the_width_of_a_gated_mlp() -> None:
    model = trained().model
    assert (model.layers, model.hidden, model.ffn, model.heads, model.seq) == (32, 4096, 11008, 32, 2048)
    assert (model.vocab, model.gated_mlp, model.tied_embeddings) == (50304, True, False)
    assert trained().framework == "olmo"


@pytest.mark.parametrize(
    ("more", "part", "field", "value"),
    [
        ("--device_train_microbatch_size=4", "plan", "micro_batch", 4),
        ("--global_train_batch_size=512", "plan", "global_batch", 512),
        ("--model.n_layers=16", "model", "layers", 16),
        ("--model.n_kv_heads=8", "model", "kv_heads", 8),
        ("--model.multi_query_attention=true", "model", "kv_heads", 1),
        ("--model.activation_type=gelu", "model", "ffn", 22016),
        ("--fsdp.sharding_strategy=SHARD_GRAD_OP", "plan", "sharding", Sharding.ZERO2),
        ("--distributed_strategy=ddp", "plan", "sharding", Sharding.NONE),
        ("--activation_checkpointing=whole_layer", "plan", "recompute", Recompute.FULL),
        ("--activation_checkpointing=one_in_two", "plan", "recompute", None),
        ("--precision=fp32", "plan", "precision", Precision.FP32),
        ("--save_overwrite --run_name=x", "plan", "micro_batch", 2),
    ],
)
def test_flags_behind_the_file_beat_it(more: str, part: str, field: str, value: object) -> None:
    assert getattr(getattr(trained(more), part), field) == value


def test_a_ratio_gives_the_width() -> None:
    assert trained(file=FILE.replace("mlp_hidden_size: 22016", "mlp_ratio: 8")).model.ffn == 4 * 4096


def test_a_file_that_was_not_read_is_wanted() -> None:
    workload = trained(file=None)
    assert workload.missing_files == ("configs/OLMo-7B.yaml",)
    assert (workload.model.layers, workload.plan.tp) == (None, None)


def test_another_scripts_train_is_left_alone() -> None:
    assert trained(run="srun python scripts/train.py configs/x.yaml").framework is None


@pytest.mark.parametrize(
    "run",
    [
        "srun torchrun OLMo-core/src/scripts/train/OLMo2-7B.py train run01 cluster",
        "torchrun -m olmo_core.launch.x run",
    ],
)
def test_the_successor_has_its_settings_in_python(run: str) -> None:
    workload = trained(run=run)
    assert (workload.framework, workload.model.layers) == ("olmo-core", None)
    assert any("Python" in entry.why for entry in workload.unknown)


@pytest.mark.parametrize("file", ["", "model: []\n", "model: {d_model: x}\n", "\x1b[31m"])
def test_damaged_files_state_no_model(file: str) -> None:
    assert trained(file=file).model.hidden is None


def test_its_flags_name_it_in_any_folder() -> None:
    run = "torchrun --nproc_per_node=8 scripts/train.py mine.yaml --fsdp.sharding_strategy=FULL_SHARD\n"
    script = f"#!/bin/bash\n#SBATCH --nodes=1 --gpus-per-node=8\n{run}"
    assert read_script(script, file="job.sh").framework == "olmo"

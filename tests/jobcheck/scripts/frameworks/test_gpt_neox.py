"""GPT-NeoX's launch scripts: several YAML files, joined."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from opsk.workload.plan import Precision, Recompute, Sharding
from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.script import read_script

HEAD = "#!/bin/bash\n#SBATCH --nodes=12 --gpus-per-node=8\n"
MODEL = """{
  # parallelism settings
  "pipe-parallel-size": 4,
  "model-parallel-size": 2,
  "num-layers": 44,
\t"hidden-size": 6144,
  "num-attention-heads": 64,
  "seq-length": 2048,
  "pos-emb": "rotary",
  "no-weight-tying": true,
  "zero_optimization": {"stage": 1},
  "train_micro_batch_size_per_gpu": 4,
  "gradient_accumulation_steps": 32,
  "checkpoint-activations": true,
  "fp16": {"fp16": true, "enabled": true, "loss_scale": 0},
}
"""


def read(script: str, files: Mapping[str, str] | None = None) -> Workload:
    return read_script(HEAD + script + "\n", file="job.sh", files=files or {})


COMMAND = "python ./deepy.py train.py configs/20B.yml configs/slurm.yml"


def test_files_are_wanted_and_joined() -> None:
    assert read(COMMAND).missing_files == ("configs/20B.yml", "configs/slurm.yml")
    workload = read(COMMAND, {"configs/20B.yml": MODEL, "configs/slurm.yml": '{"launcher": "slurm"}'})
    model, plan = workload.model, workload.plan
    assert workload.framework == "gpt-neox"
    assert (model.layers, model.hidden, model.heads, model.seq, model.tied_embeddings) == (44, 6144, 64, 2048, False)
    assert (plan.tp, plan.pp, plan.dp, plan.micro_batch, plan.global_batch) == (2, 4, 12, 4, 4 * 32 * 12)
    assert (plan.sharding, plan.precision, plan.recompute) == (Sharding.ZERO1, Precision.FP16, Recompute.FULL)
    sources = {entry.field: (entry.file, entry.line) for entry in workload.evidence}
    assert sources["model.layers"] == ("configs/20B.yml", 5)


def test_a_file_that_was_not_read_may_hold_what_the_other_does_not() -> None:
    workload = read(COMMAND, {"configs/20B.yml": MODEL})
    assert workload.model.layers == 44
    assert "configs/slurm.yml" in {entry.field: entry.why for entry in workload.unknown}["model.kv_heads"]


@pytest.mark.parametrize(
    "command",
    [
        "python deepy.py train.py -d configs 20B",
        "python deepy.py train.py --conf_dir configs 20B.yml",
        "cd neox\npython $X/deepy.py $X/train.py -d ../configs 20B",
        "export X=/opt; python /opt/gpt-neox/deepy.py /opt/gpt-neox/train.py configs/20B",
    ],
)
def test_files_are_named_in_several_ways(command: str) -> None:
    assert read(command, {"configs/20B.yml": MODEL}).model.layers == 44


def test_no_pipeline_is_one_stage() -> None:
    workload = read(COMMAND, {"configs/20B.yml": MODEL.replace('size": 4', 'size": 0'), "configs/slurm.yml": ""})
    assert workload.plan.pp == 1


@pytest.mark.parametrize(
    ("setting", "precision"),
    [
        ('"precision": "bfloat16"', Precision.BF16),
        ('"fp16": {"enabled": true, "type": "bfloat16"}', Precision.BF16),
        ('"bf16": {"enabled": true}', Precision.BF16),
        ('"fp16": {"enabled": false}', None),
    ],
)
def test_number_formats(setting: str, precision: Precision | None) -> None:
    files = {"configs/20B.yml": "{" + setting + "}", "configs/slurm.yml": "{}"}
    assert read(COMMAND, files).plan.precision is precision


def test_the_training_files_text_may_come_from_the_script() -> None:
    script = 'LAYERS=12\ncat > c.yml <<EOF\n{"num_layers": $LAYERS, "hidden_size": $H, "seq_length": 8}\nEOF\n'
    workload = read(script + "python deepy.py train.py c.yml")
    assert (workload.model.layers, workload.model.hidden, workload.model.seq) == (12, None, 8)
    assert "H is not set in the script" in {entry.field: entry.why for entry in workload.unknown}["model.hidden"]


@pytest.mark.parametrize("command", ["python deepy.py evaluate.py c.yml", "python deepy.py train.py"])
def test_what_names_no_training_states_nothing(command: str) -> None:
    assert read(command, {"c.yml": MODEL}).model.layers is None


def test_the_value_of_a_flag_is_no_configuration() -> None:
    workload = read("python deepy.py train.py c.yml --save out/run1 --load=x", {"c.yml": MODEL})
    assert workload.missing_files == ()
    assert workload.model.layers == 44

"""What launch scripts of picotron and the JSON files that they name say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from opsk.workload.plan import Precision
from opsk.workload.workload import Workload
from opsk_jobcheck.scripts.script import read_script
from tests.fakes.workloads import evidence, why

HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n"
RUN = "srun torchrun --nproc_per_node=8 --nnodes=2 /picotron/train.py --config conf/config.json\n"
FILE: dict[str, dict[str, Any]] = {
    "distributed": {"tp_size": 2, "cp_size": 1, "pp_size": 2, "dp_size": 4, "pp_engine": "1f1b"},
    "model": {"name": "HuggingFaceTB/SmolLM-360M", "num_hidden_layers": 16, "num_attention_heads": 16,
              "num_key_value_heads": 4, "dtype": "bfloat16", "use_flash_attention": True},
    "training": {"seq_length": 1024, "micro_batch_size": 8, "gradient_accumulation_steps": 4},
}  # fmt: skip


def trained(file: str | None, *, run: str = RUN) -> Workload:
    """Read a script whose one command trains with a file."""
    return read_script(HEAD + run, file="job.sh", files={"conf/config.json": file} if file is not None else {})


def changed(section: str, key: str, value: object) -> Workload:
    """Read the script with one setting of the file changed."""
    return trained(json.dumps(FILE | {section: FILE[section] | {key: value}}, indent=1))


def test_the_file_states_plan_and_model() -> None:
    workload = trained(json.dumps(FILE))
    plan, model = workload.plan, workload.model
    assert (plan.tp, plan.pp, plan.cp, plan.dp, plan.micro_batch, plan.global_batch) == (2, 2, 1, 4, 8, 128)
    assert (model.layers, model.heads, model.kv_heads, model.seq) == (16, 16, 4, 1024)
    assert (workload.framework, plan.precision) == ("picotron", Precision.BF16)


def test_the_width_is_that_of_a_model_elsewhere() -> None:
    workload = trained(json.dumps(FILE))
    assert (workload.model.name, why(workload, "model.hidden")) == ("HuggingFaceTB/SmolLM-360M", "")
    workload = changed("model", "name", "mine/SmolLM-361M")
    assert (workload.model.name, workload.model.hidden) == ("mine/SmolLM-361M", None)
    assert why(workload, "model.hidden")


@pytest.mark.parametrize(
    ("section", "key", "value", "field", "expected"),
    [
        ("training", "micro_batch_size", None, "global_batch", None),
        ("training", "gradient_accumulation_steps", "x", "global_batch", None),
        ("training", "micro_batch_size", "3", "global_batch", 48),
        ("distributed", "tp_size", True, "tp", None),
        ("distributed", "tp_size", -1, "tp", None),
        ("distributed", "tp_size", 10**30, "tp", None),
        ("model", "dtype", "float32", "precision", Precision.FP32),
        ("model", "dtype", "x", "precision", None),
    ],
)
def test_settings_state_fields(section: str, key: str, value: object, field: str, expected: object) -> None:
    assert getattr(changed(section, key, value).plan, field) == expected


def test_a_layout_that_the_gpus_do_not_fit_is_a_problem() -> None:
    assert any("DP 9" in problem.what for problem in changed("distributed", "dp_size", 9).problems)


def test_a_file_that_was_not_read_is_wanted() -> None:
    workload = trained(None)
    assert workload.missing_files == ("conf/config.json",)
    assert (workload.plan.tp, workload.plan.dp) == (None, None)


def test_the_name_of_the_file_says_nothing() -> None:
    workload = trained(None, run=RUN.replace("conf/", "conf/llama-1B-tp2/"))
    assert workload.plan.tp is None


def test_a_folder_may_tell_the_program() -> None:
    workload = trained(json.dumps(FILE), run="cd picotron && torchrun train.py --config ../conf/config.json\n")
    assert workload.plan.tp == 2


def test_evidence_cites_the_line_of_the_file() -> None:
    workload = trained(json.dumps(FILE, indent=1))
    entry = evidence(workload, "plan.tp")
    assert (entry.file, entry.line, entry.text) == ("conf/config.json", 3, '"tp_size": 2,')


@pytest.mark.parametrize("file", ["", "[]", "{", '{"distributed": 3}', '{"distributed": {"tp_size": []}}', "\0"])
def test_damaged_files_state_nothing(file: str) -> None:
    assert trained(file).plan.tp is None

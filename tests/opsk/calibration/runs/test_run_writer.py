"""Is a job of one's own read back from a table of runs as what it was?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opsk.calibration.runs.run_writer import COLUMNS, JobRun, append_run, build_run_row
from opsk.calibration.runs.runs import parse_runs, read_runs
from opsk.errors import InputError
from opsk.hardware import catalog
from opsk.workload.plan import Loss, Plan, Precision, Recompute, Sharding, Software, StateFormat, States
from opsk.workload.public_models.lookup import public_model


def job(name: str = "llama3-70b", **changes: object) -> JobRun:
    model = public_model(name)
    assert model is not None
    plan = Plan(
        tp=4, pp=4, dp=4, global_batch=512, sharding=Sharding.ZERO1, recompute=Recompute.SELECTIVE,
        sequence_parallel=True,
    )  # fmt: skip
    return JobRun(
        name="own-1", model=model, plan=replace(plan, **changes), cluster=catalog.cluster("superpod-h100"), step_s=12.5
    )


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("llama3-8b", {}),
        ("llama3-70b", {"loss": Loss.CHUNKED}),
        ("mixtral-8x7b", {"ep": 4}),
        ("deepseek-v3", {"pp": 1, "dp": 16, "states": States.MIXED_16BIT_GRADIENTS}),
        ("llama3-8b", {"software": Software.PYTORCH, "states": States.AUTOCAST, "lora_rank": 16, "base_bits": 4}),
        ("llama3-8b", {"software": Software.DEEPSPEED, "states": States.MIXED_16BIT_GRADIENTS}),
        ("llama3-8b", {"software": Software.PYTORCH, "states": States.PURE_16BIT, "compiled": True}),
        ("llama3-8b", {"moment_format": StateFormat.BF16, "master_format": StateFormat.BF16}),
        ("llama3-8b", {"precision": Precision.FP8_CURRENT, "fp8_weights": False, "loss": Loss.MEGATRON_FUSED}),
        ("llama3-8b", {"software": Software.PYTORCH, "tp": 2, "distributed_tensors": True, "states": States.AUTOCAST}),
        ("llama3-8b", {"software": Software.PYTORCH, "states": States.AUTOCAST, "loss": Loss.RECOMPUTED_FP32}),
        ("llama3-8b", {"precision": Precision.TF32, "states": States.AUTOCAST, "software": Software.PYTORCH}),
        ("llama3-8b", {"recompute": Recompute.FULL, "recompute_layers": 2}),
        (
            "deepseek-v3",
            {"recompute": Recompute.SELECTIVE, "recompute_modules": "moe_act mla_up_proj", "pp": 1, "dp": 16},
        ),
        ("deepseek-v3", {"offload_modules": "core_attn expert_fc1", "pp": 1, "dp": 16}),
    ],
)
def test_model_plan_and_time_come_back(name: str, changes: dict[str, Any]) -> None:
    asked = job(name, **changes)
    row = build_run_row(asked)
    (run,) = parse_runs(",".join(COLUMNS) + "\n" + ",".join(f'"{row[each]}"' for each in COLUMNS)).runs
    assert run.plan == asked.plan
    assert run.measured.step_s == 12.5
    assert run.states_time_inputs


def test_what_no_column_can_say_is_refused() -> None:
    with pytest.raises(InputError, match="frozen_fraction"):
        build_run_row(job(frozen_fraction=0.5))


def test_rows_go_below_the_columns_that_are_there(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(",".join(("mfu", *reversed(COLUMNS))))
    append_run(path, job())
    append_run(path, job("llama3-8b"))
    assert [run.model.name for run in read_runs(path).runs] == ["llama-3-70b", "llama-3-8b"]


def test_a_table_of_an_older_release_takes_rows_that_say_nothing_newer(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    newer = ("recompute_modules", "recompute_method", "recompute_layers", "offload_modules", "fp8_params")
    path.write_text(",".join(name for name in COLUMNS if name not in newer))
    append_run(path, job())
    assert len(read_runs(path).runs) == 1
    with pytest.raises(InputError, match="no column recompute_modules"):
        append_run(path, job(recompute=Recompute.SELECTIVE, recompute_modules="mlp"))


def test_another_table_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    path.write_text("id,colour\n1,red\n")
    with pytest.raises(InputError, match="has no column"):
        append_run(path, job())
    assert path.read_text() == "id,colour\n1,red\n"


@pytest.mark.parametrize("name", ["nemotron-h-8b", "bamba-9b"])
def test_a_hybrid_comes_back_by_columns_of_its_own(name: str, tmp_path: Path) -> None:
    asked, path = job(name, pp=1, dp=16), tmp_path / "runs.csv"
    append_run(path, asked)
    (run,) = read_runs(path).runs
    for field in ("mixer", "mixer_layers", "mlp_layers", "mixer_heads", "mixer_groups", "mixer_state", "layers"):
        assert getattr(run.model, field) == getattr(asked.model, field), field


def test_a_table_without_columns_of_mixers_takes_no_hybrid(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    append_run(path, job())
    with pytest.raises(InputError, match="mixer_layers"):
        append_run(path, job("bamba-9b", pp=1, dp=16))

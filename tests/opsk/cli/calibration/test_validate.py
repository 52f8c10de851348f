"""The command opsk validate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from opsk.cli.calibration.validate import validate
from tests.fakes.tables_of_runs import row, table

CONTRACT = ("step_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu", "hfu", "verdict", "memory_bytes", "memory")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A table with a measured row, one without a measurement, and one that cannot be."""
    path = tmp_path / "runs.csv"
    path.write_text(
        table(
            row(id="a-1", iter_time_s="1.42", peak_mem_gb="40", mem_definition="device"),
            row(id="a-2", vocab="", micro_batch=""),
            row(id="a-3", layers="\x1b[31mmany"),
        ),
        encoding="utf-8",
    )
    return path


def test_columns_and_values_that_are_not_known_are_said(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(table(row(attention_kernel="flash9", colour="red\x1b[31m")), encoding="utf-8")
    said = CliRunner().invoke(validate, [str(path)]).stdout
    assert "columns that are not known and say nothing: colour" in said
    assert "1 row: attention_kernel is 'flash9', must be one of" in said
    assert json.loads(CliRunner().invoke(validate, [str(path), "--json"]).stdout)["unknown_columns"] == ["colour"]


def test_json_has_what_the_contract_names(runs: Path) -> None:
    result = CliRunner().invoke(validate, [str(runs), "--json"])
    document = json.loads(result.stdout)
    assert [entry["id"] for entry in document["rows"]] == ["a-1", "a-2", "a-3"]
    for entry in document["rows"]:
        assert set(CONTRACT) <= entry["predicted"].keys()
        assert entry["predicted"]["memory"].keys() == {"allocated_bytes", "reserved_bytes", "device_bytes"}
        assert isinstance(entry["assumed"], list)
    assert {"field", "value", "why"} == document["rows"][1]["assumed"][0].keys()
    for group in ("by_gpu", "by_arch", "by_source"):
        (summary,) = document["summary"][group].values()
        assert {"median_absolute_error", "p90_absolute_error"} <= summary["time"].keys()


def test_people_see_the_errors_and_what_could_not_be_predicted(runs: Path) -> None:
    result = CliRunner().invoke(validate, [str(runs)])
    assert result.exit_code == 0
    assert "2 of 3 rows predicted" in result.stdout
    assert "not predicted  a-3" in result.stdout


def test_what_a_cell_holds_never_reaches_the_terminal_as_control(runs: Path) -> None:
    assert "\x1b[31mmany" not in CliRunner().invoke(validate, [str(runs)]).stdout
    assert "\x1b" not in CliRunner().invoke(validate, [str(runs), "--json"]).stdout


def test_a_table_of_impossible_rows_is_bad_news(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(table(row(layers="-1")), encoding="utf-8")
    assert CliRunner().invoke(validate, [str(path)], standalone_mode=False).return_value == 1


def test_a_table_without_rows_is_no_bad_news(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(table(row()).splitlines()[0] + "\n", encoding="utf-8")
    assert CliRunner().invoke(validate, [str(path)], standalone_mode=False).return_value == 0


def test_a_table_that_cannot_be_read_is_wrong_usage(tmp_path: Path) -> None:
    result = CliRunner().invoke(validate, [str(tmp_path / "none.csv")])
    assert result.exception is not None
    assert getattr(result.exception, "exit_status", None) == 2


@pytest.mark.shared
def test_all_measured_runs_are_answered(runs_of_the_fit: Path) -> None:
    result = CliRunner().invoke(validate, [str(runs_of_the_fit), "--json"])
    document = json.loads(result.stdout)
    assert len(document["rows"]) == 620
    assert all(entry["predicted"]["step_s"] for entry in document["rows"])


def test_efficiencies_of_a_file_replace_the_shipped_ones(runs: Path, tmp_path: Path) -> None:
    slow = tmp_path / "slow.toml"
    slow.write_text('fit = "a slow machine"\n[gpu.ampere]\nmatmul_fraction = 0.1\n', encoding="utf-8")
    shipped = json.loads(CliRunner().invoke(validate, [str(runs), "--json"]).stdout)
    chosen = json.loads(CliRunner().invoke(validate, [str(runs), "--efficiency", str(slow), "--json"]).stdout)
    assert chosen["efficiency"] == "a slow machine"
    assert chosen["rows"][0]["predicted"]["step_s"] > 2 * shipped["rows"][0]["predicted"]["step_s"]

"""Does ``opsk throughput`` answer by contract, and show people the same?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from opsk.cli.main import opsk
from opsk.cli.throughput.report import render_sparkline
from opsk.errors import InputError
from tests.fakes.progress_logs import megatron_line


def run(*arguments: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(opsk, ["throughput", *map(str, arguments)], input=stdin, standalone_mode=False)


def document(*arguments: object, stdin: str | None = None) -> dict[str, Any]:
    result = run(*arguments, "--json", stdin=stdin)
    assert result.exception is None, result.exception
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "slurm-1.out"
    lines = [megatron_line(1, step_ms=60000, tflops=10), *(megatron_line(step, tflops=400) for step in range(2, 12))]
    path.write_text("using world size: 64\n seq_length .... 4096\n" + "".join(f"{line}\n" for line in lines))
    return path


def test_the_keys_of_the_contract(log: Path) -> None:
    """Ten steps of 2 s and 512 samples of 4,096 tokens behind a first of 60 s."""
    found = document(log)
    assert (found["framework"], found["first_iteration"], found["last_iteration"]) == ("megatron-lm", 1, 11)
    assert found["restarts"] == 0
    assert found["median"]["step_s"] == 2.0
    assert found["median"]["tokens_per_s"] == 512 * 4096 / 2
    assert found["median"]["tflops_per_gpu"] == 400
    assert [each["step_s"] for each in found["steps"]] == [60.0, *[2.0] * 10]
    assert found["steady"]["warm_up_records"] == 1
    assert set(found["derived"]) == {"samples_per_s", "tokens_per_s", "tokens_per_s_per_gpu"}


def test_warm_up_may_count(log: Path) -> None:
    assert document(log, "--no-skip-warmup")["steady"]["warm_up_records"] == 0


def test_a_loss_that_is_no_number_is_bad_news(log: Path) -> None:
    with log.open("a") as file:
        file.write(megatron_line(12).replace("2.000000E+00", "nan") + "\n")
    result = run(log, "--json")
    found = json.loads(result.stdout)
    assert result.return_value == 1
    assert (found["loss"]["last"], found["loss"]["finite"]) == ("nan", False)
    assert found["steps"][-1]["loss"] is None
    assert found["steps"][-1]["not_finite"] == {"loss": "nan"}


def test_a_log_without_progress_is_an_answer(tmp_path: Path) -> None:
    path = tmp_path / "kern.log"
    path.write_text("NVRM: Xid 79\n")
    result = run(path, "--json")
    found = json.loads(result.stdout)
    assert result.return_value == 0
    assert (found["framework"], found["first_iteration"], found["steps"]) == (None, None, [])
    assert "no known progress lines" in run(path).stdout


def test_no_log_that_can_be_read_is_wrong_usage(tmp_path: Path) -> None:
    result = run(tmp_path / "nothing")
    assert isinstance(result.exception, InputError)
    assert "nothing" in result.exception.message


def test_one_log_of_two_is_enough(log: Path, tmp_path: Path) -> None:
    found = document(log, tmp_path / "nothing")
    assert found["last_iteration"] == 11
    assert "No such file" in found["logs"][1]["problem"]


def test_standard_input(log: Path) -> None:
    assert document("-", stdin=log.read_text())["last_iteration"] == 11


def test_people_see_the_same(log: Path) -> None:
    shown = run(log).stdout
    assert "megatron-lm, step 1 to 11 of 1,000" in shown
    assert "400 TFLOP/s/GPU" in shown
    assert "median of 10 records after 1 of warm-up" in shown


def test_a_hostile_name_cannot_reach_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "a\x1b[2J[red]b"
    path.write_text("nothing here\n")
    shown = run(path).stdout
    assert "\x1b" not in shown
    assert "[red]b" in shown.replace("\n", "")


def test_a_run_that_only_sums_itself_up(tmp_path: Path) -> None:
    """0.64 steps a second are 1.5625 s a step; 0.007 is too coarse to tell."""
    path = tmp_path / "log"
    path.write_text("{'train_runtime': 273.0, 'train_samples_per_second': 3.66, 'train_steps_per_second': 0.64}\n")
    found = document(path)["median"]
    assert (found["step_s"], found["samples_per_s"], found["from"]) == (1.5625, 3.66, "summary")
    path.write_text("{'train_runtime': 273.0, 'train_samples_per_second': 3.66, 'train_steps_per_second': 0.007}\n")
    assert document(path)["median"]["step_s"] is None


def test_the_sparkline() -> None:
    assert render_sparkline([1.0]) == ""
    assert render_sparkline([1.0, 2.0, float("nan"), 8.0]) == "▃▆ █", "one and a half times the median is the top"
    assert len(render_sparkline([1.0] * 1000)) == 60

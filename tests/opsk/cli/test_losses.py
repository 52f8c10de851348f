"""Does ``opsk losses`` tell from files what holds a job up, and add only sound jobs to a table of runs?"""

from __future__ import annotations

import getpass
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from opsk.calibration.calibration import select_timed_runs
from opsk.calibration.runs.runs import read_runs
from opsk.cli.main import opsk
from opsk.diagnosis.losses.step_times import MIN_STEPS
from opsk.errors import InputError
from opsk.slurm.records import JobRecord
from opsk.workload.advice_record import AdviceRecord, Verdict
from tests.fakes.losing_causes import simulated
from tests.fakes.losing_files import write_log, write_plan, write_scrapes
from tests.fakes.losing_jobs import Simulated


def run(*arguments: object) -> Result:
    return CliRunner().invoke(opsk, ["losses", *map(str, arguments)], standalone_mode=False)


def files_of(folder: Path, job: Simulated) -> list[object]:
    scrapes = [word for name in write_scrapes(folder, job) for word in ("--scrape", name)]
    return ["--log", write_log(folder / "job.out", job), "--plan", write_plan(folder / "plan.toml", job), *scrapes]


def document(*arguments: object) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exception is None, result.exception
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.mark.parametrize(
    "cause", ["straggler", "thermal_cap", "power_cap", "congested_link", "data_loading", "checkpointing"]
)
def test_the_cause_is_told_from_logs_and_scrapes(tmp_path: Path, cause: str) -> None:
    """The same job as values and as files: Megatron-LM prints no time of what happens between steps."""
    job = simulated(21, cause)
    found = document(*files_of(tmp_path, job))
    named = [each["cause"] for each in found["findings"] if each["cause"] not in ("unknown", "recompute", "wrong_plan")]
    assert named[:1] == [cause]
    assert sum(each["share"] for each in found["findings"]) == pytest.approx(found["gap"])
    assert found["seen"]["gpus"] == len(job.gpus)
    assert found["expected_step_s"] == pytest.approx(job.expected_s, rel=1e-3)


def test_a_cause_is_bad_news_and_the_picture_names_place_and_numbers(tmp_path: Path) -> None:
    job = simulated(21, "thermal_cap")
    result = run(*files_of(tmp_path, job))
    assert result.return_value == 1
    assert "thermal cap" in result.stdout
    assert job.nodes[job.truth[0].node] in result.stdout
    assert "MFU" in result.stdout


def test_without_a_prediction_the_evidence_alone_is_told(tmp_path: Path) -> None:
    job = simulated(21, "thermal_cap")
    scrapes = [word for name in write_scrapes(tmp_path, job) for word in ("--scrape", name)]
    found = document("--log", write_log(tmp_path / "job.out", job), *scrapes)
    assert found["expected_step_s"] is None
    assert [each["cause"] for each in found["findings"]] == ["thermal_cap"]


def test_a_log_without_steps_says_so(tmp_path: Path) -> None:
    path = tmp_path / "empty.out"
    path.write_text("hello\n")
    result = run("--log", path)
    assert result.return_value == 0
    assert "waiting for the first progress line" in result.stdout
    assert document("--log", path)["awaits"] == {"step_times": 0, "needed": MIN_STEPS}


@pytest.mark.parametrize("lines", [1, 2, 5, 6, 7])
def test_it_is_said_how_many_step_times_an_answer_waits_for(tmp_path: Path, lines: int) -> None:
    """The first line of a start is warm-up, as soon as there is another."""
    path = tmp_path / "job.out"
    line = " iteration {step:8d}/ 900 | elapsed time per iteration (ms): 1500.0 | lm loss: 3.1E+00 |\n"
    path.write_text("".join(line.format(step=step) for step in range(1, lines + 1)))
    step_times = max(lines - 1, 1)
    is_enough = step_times >= MIN_STEPS
    found = document("--log", path)
    assert found["awaits"] == (None if is_enough else {"step_times": step_times, "needed": MIN_STEPS})
    assert (found["measured_step_s"] is not None) == is_enough
    shown = run("--log", path).stdout
    assert (f"measuring: {step_times} of {MIN_STEPS} step times" in shown) != is_enough


def test_a_file_that_is_no_scrape_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    log.write_text("\x1b[31mx\n")
    result = run("--log", log, "--scrape", f"n1={log}")
    assert isinstance(result.exception, InputError)
    assert "no series of opsk's exporters" in result.exception.message


def test_text_of_scrapes_reaches_the_terminal_harmless(tmp_path: Path) -> None:
    job = simulated(21, "thermal_cap")
    node = job.nodes[job.truth[0].node]
    scrapes = [
        word for name in write_scrapes(tmp_path, job) for word in ("--scrape", name.replace(f"{node}=", "n\x1b[31mx="))
    ]
    result = run("--log", write_log(tmp_path / "job.out", job), *scrapes)
    assert "\x1b[31m" not in result.stdout


def test_a_sound_job_becomes_a_run_to_calibrate_with_and_a_held_up_one_does_not(tmp_path: Path) -> None:
    table = tmp_path / "runs.csv"
    sound = simulated(31)
    assert run(*files_of(tmp_path, sound), "--as-run", table).exception is None
    assert run(*files_of(tmp_path, sound), "--as-run", table).exception is None
    held_up = run(*files_of(tmp_path, simulated(21, "thermal_cap")), "--as-run", table)
    assert held_up.return_value == 1
    runs = select_timed_runs(read_runs(table).runs)
    assert len(runs) == 2
    assert runs[0].plan == sound.kind.plan
    typical = sorted(seconds for _, seconds, _ in sound.steps)[len(sound.steps) // 2]
    assert runs[0].step_s == pytest.approx(typical, rel=0.01)
    assert runs[0].source == "own"


class OneJob:
    """Slurm, which knows one job."""

    def __init__(self, job: JobRecord) -> None:
        self._job = job

    def job(self, job_id: str) -> JobRecord:
        assert job_id == str(self._job.id)
        return self._job


def test_log_and_prediction_come_from_slurms_record_of_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = write_log(tmp_path / "slurm-7.out", simulated(21, "checkpointing"))
    record = JobRecord(
        id=7,
        label="7",
        name="train",
        user=getpass.getuser(),
        state="RUNNING",
        partition="gpu",
        std_out=str(log),
        admin_comment=AdviceRecord(verdict=Verdict.FITS, step_s=0.4, mfu=0.5).render(),
    )
    monkeypatch.setattr("opsk.cli.losses.slurm_client", lambda: OneJob(record))
    found = document("7")
    assert (found["expected_step_s"], found["expected_mfu"]) == (0.4, 0.5)
    assert "checkpointing" in [each["cause"] for each in found["findings"]]


@pytest.mark.parametrize("told", [None, "/dev/zero"])
def test_what_is_no_log_to_read_is_refused(told: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    record = JobRecord(id=7, label="7", name="x", user="nobody", state="RUNNING", partition="gpu", std_out=told)
    monkeypatch.setattr("opsk.cli.losses.slurm_client", lambda: OneJob(record))
    assert isinstance(run("7").exception, InputError)


def test_nothing_found_without_a_prediction_is_not_called_fast(tmp_path: Path) -> None:
    result = run("--log", write_log(tmp_path / "job.out", simulated(31)))
    assert "unknown: no cause was found, and there is no prediction" in result.stdout
    assert "not seen: gpus, ports, hosts" in result.stdout

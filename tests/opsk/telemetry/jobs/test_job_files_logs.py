"""Is Slurm's pattern of a log read as slurmstepd reads it? Expected names are those that 22.05 to 26.05 gave files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opsk.telemetry.jobs.job_files import JobFile, resolve_log_paths

DIRECTORY = "/home/ann/run"


def job_file(**said: Any) -> JobFile:
    return JobFile(
        **{"job_id": "13", "user": "ann", "node": "n0.site", "work_dir": DIRECTORY, **said}, written_unix_s=1.0
    )


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("/data/out.log", "/data/out.log"),
        ("out.log", f"{DIRECTORY}/out.log"),
        ("log-%j-%N-%n-%t-%s-%J.out", f"{DIRECTORY}/log-13-n0-0-0-batch-13.out"),
        ("/data/%5j.%u.%%.out", "/data/00013.ann.%.out"),
        ("/data/%5u", "/data/ann"),
        ("/data/100%.log", "/data/100%.log"),
        ("/data/%x.log", "/data/pre train.log"),
    ],
)
def test_symbols_stand_for_what_slurm_puts_there(pattern: str, path: str) -> None:
    assert resolve_log_paths(job_file(stdout=pattern, name="pre train"), "13") == (Path(path),)


def test_a_task_of_an_array_has_its_place(tmp_path: Path) -> None:
    assert resolve_log_paths(job_file(stdout="/data/%A_%3a.%j"), "10_27") == (Path("/data/10_027.13"),)
    (tmp_path / "7").touch()
    assert resolve_log_paths(job_file(stdout=f"{tmp_path}/%b"), "10_27") == (tmp_path / "7",)


def test_what_may_be_of_an_array_counts_only_if_it_is_there(tmp_path: Path) -> None:
    """A job that is in no array has its own number, and Slurm's "no value" as its place: 2**32 - 2."""
    log = tmp_path / "13_4294967294.4"
    said = job_file(stdout="%A_%a.%b", work_dir=str(tmp_path))
    assert resolve_log_paths(said, "13") == ()
    log.touch()
    assert resolve_log_paths(said, "13") == (log,)


def test_what_slurm_does_not_tell_is_its_default_if_that_is_there(tmp_path: Path) -> None:
    said = job_file(work_dir=str(tmp_path))
    assert resolve_log_paths(said, "13") == ()
    (tmp_path / "slurm-13.out").touch()
    (tmp_path / "slurm-10_3.out").touch()
    assert resolve_log_paths(said, "13") == (tmp_path / "slurm-13.out",)
    assert resolve_log_paths(said, "10_3") == (tmp_path / "slurm-10_3.out",)


def test_errors_are_told_beside_and_once() -> None:
    assert resolve_log_paths(job_file(stdout="%j.out", stderr="%j.err"), "13") == (
        Path(DIRECTORY, "13.out"),
        Path(DIRECTORY, "13.err"),
    )
    assert resolve_log_paths(job_file(stdout="%j.out", stderr=f"{DIRECTORY}/13.out"), "13") == (
        Path(DIRECTORY, "13.out"),
    )
    assert resolve_log_paths(job_file(stdout="/dev/null", stderr="e"), "13") == (Path(DIRECTORY, "e"),)


@pytest.mark.parametrize(
    "said",
    [
        {"stdout": "/data/%x.log"},
        {"stdout": "/data/%q.log"},
        {"stdout": "/data/%N.log", "node": None},
        {"stdout": "/data/a\\%j.log"},
        {"stdout": "a\0b"},
        {"stdout": "a" * 5000},
        {"stdout": "relative", "work_dir": None},
        {"stdout": "relative", "work_dir": "also"},
        {"stdout": "/dev/null"},
        {"stdout": None, "work_dir": "/nonexistent"},
    ],
)
def test_what_cannot_be_told_is_left_to_the_processes(said: dict[str, Any]) -> None:
    assert resolve_log_paths(job_file(**said), "13") == ()

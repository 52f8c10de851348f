"""The command that measures: does it renew one result alone, and keep the others whatever happens to one?"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import catalogue, report, results
from benchmarks.catalogue import BENCHMARKS, Benchmark, find_benchmark
from benchmarks.found import Found
from benchmarks.machine import this_machine
from benchmarks.results import Result, read_results, write_result

HANDS_OVER = """
import argparse
from benchmarks.found import Found, NotRunError, arguments, run
def measure(asked):
    print("measuring", flush=True)
    {what}
    return Found(figures={{"up_s": 123456.789, "down_s": 1.0}})
run(measure, arguments(None))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Results, page and picture of our own."""
    monkeypatch.setattr(report, "read_results", lambda: read_results(tmp_path))
    monkeypatch.setattr(report, "write_result", lambda name, result: write_result(name, result, tmp_path))
    monkeypatch.setattr(report, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(report, "PICTURE", tmp_path / "growth.svg")
    earlier = Result(
        date="2026-01-01", machine=this_machine(), load=0.0, took_s=1.0,
        found=Found(figures={"up_s": 4.0, "down_s": 1.0}, curves={"nodes": [(1, 1.0)]}), said=("earlier",),
    )  # fmt: skip
    write_result("lab_up", earlier, tmp_path)
    return tmp_path


def does(monkeypatch: pytest.MonkeyPatch, what: str, *, most_s: float = 60.0) -> Benchmark:
    """Let the benchmark of the lab do something else."""

    def command(benchmark: Benchmark, found: Path, *, is_short: bool) -> list[str]:
        return [sys.executable, "-P", "-c", HANDS_OVER.format(what=what), "--found", str(found)]

    monkeypatch.setattr(report, "build_command", command)
    monkeypatch.setattr(Benchmark, "most_s", most_s)
    return find_benchmark("lab_up")


def test_one_result_is_renewed_and_its_neighbours_stay(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(read_results(folder)["lab_up"], found=Found(figures={}))
    write_result("calibrate_speed", other, folder)
    assert report.measure([does(monkeypatch, "pass")], is_short=False) == []
    kept = read_results(folder)
    assert kept["lab_up"].found.figures["up_s"] == 123500.0, "four digits are what a measurement has"
    assert kept["lab_up"].said == ("measuring",)
    assert kept["calibrate_speed"] == other
    page = (folder / "page.md").read_text(encoding="utf-8")
    assert "measuring" in page
    assert "earlier" in page


@pytest.mark.parametrize(
    ("what", "why"),
    [("raise NotRunError('no such program')", "not run: no such program"), ("raise SystemExit(9)", "status 9")],
)
def test_a_result_stays_where_no_new_one_came(
    folder: Path, monkeypatch: pytest.MonkeyPatch, what: str, why: str
) -> None:
    (said,) = report.measure([does(monkeypatch, what)], is_short=False)
    assert why in said
    assert read_results(folder)["lab_up"].said == ("earlier",)


def test_a_benchmark_that_takes_too_long_is_ended_and_changes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (said,) = report.measure([does(monkeypatch, "import time; time.sleep(60)", most_s=0.1)], is_short=False)
    assert "ended with status" in said
    assert read_results(folder)["lab_up"].said == ("earlier",)


def test_what_is_ended_takes_down_first_what_it_started(tmp_path: Path) -> None:
    left = tmp_path / "left"
    code = f"""
import pathlib, time
try:
    print("up", flush=True)
    time.sleep(60)
finally:
    pathlib.Path({str(left)!r}).touch()"""
    process = subprocess.Popen([sys.executable, "-P", "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    report.end(process)
    process.communicate()
    assert left.exists()


def test_the_short_form_keeps_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert report.measure([does(monkeypatch, "pass")], is_short=True) == []
    assert read_results(folder)["lab_up"].said == ("earlier",)
    assert not (folder / "page.md").exists()


def test_a_result_is_read_as_it_was_written(folder: Path) -> None:
    kept = read_results(folder)["lab_up"]
    write_result("lab_up", kept, folder)
    assert read_results(folder)["lab_up"] == kept


def test_all_that_run_together_take_under_half_an_hour() -> None:
    # what wants a path of somebody's own, or a whole test run, is not among them
    usual = [each for each in BENCHMARKS if not each.wants and not each.is_asked_for]
    assert sum(each.usual_s for each in usual) <= 29 * 60
    assert find_benchmark("test_suite") not in usual


def test_every_module_is_there(root: Path) -> None:
    for benchmark in catalogue.BENCHMARKS:
        assert (root / f"{benchmark.path.replace('.', '/')}.py").exists()


def test_the_list_says_how_long_each_takes(root: Path) -> None:
    command = [sys.executable, "-P", "-m", "benchmarks.report", "--list"]
    environment = {name: value for name, value in os.environ.items() if name not in ("CALCULON", "RUNS")}
    said = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    assert all(each.name in said for each in BENCHMARKS)
    assert "only with CALCULON=" in said
    assert results.FOLDER.is_dir()

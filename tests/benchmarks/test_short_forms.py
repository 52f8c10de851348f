"""Does every benchmark run, and give the figures and curves that the page wants of it? In small; nothing is timed.

Those on a real slurmctld are in tests/integration/lab/test_benchmarks.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.budgets import BUDGETS
from benchmarks.catalogue import BENCHMARKS, find_benchmark
from benchmarks.found import NOT_RUN_STATUS
from benchmarks.growth import PANELS
from benchmarks.report import build_command
from tests.fakes.tables_of_runs import row, table

ON_SLURM = {"submissions", "submissions_new", "slurm_poll", "lab_up"}
ALONE = [each.name for each in BENCHMARKS if not each.wants and each.name not in ON_SLURM]
PLACE_OF_CALCULON = os.environ.get("CALCULON", "")
WANTS_OTHER_PROGRAMS = {"exporter_infiniband": "prometheus-node-exporter", "exporter_scrape": "gcc"}


def found_by(name: str, folder: Path) -> dict[str, dict[str, object]]:
    """Run the short form of a benchmark; return what it handed over."""
    path = folder / "found.json"
    command = build_command(find_benchmark(name), path, is_short=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode == NOT_RUN_STATUS and name in WANTS_OTHER_PROGRAMS:
        pytest.skip(f"{name}: {done.stdout.splitlines()[-1]}")
    assert done.returncode == 0, done.stdout
    assert done.stdout.strip(), "it says nothing to people"
    return dict(json.loads(path.read_text(encoding="utf-8")))


def assert_whole(name: str, found: dict[str, dict[str, object]]) -> None:
    """Assert that all is there that the page shows of a benchmark."""
    budgets = [budget for budget in BUDGETS if budget.benchmark == name]
    wanted = {budget.key for budget in budgets}
    wanted |= {budget.peer.key for budget in budgets if budget.peer}
    assert wanted <= found["figures"].keys()
    curves = {key for panel in PANELS if panel.benchmark == name for key in panel.curves}
    assert found["curves"].keys() == curves
    assert all(found["curves"].values()), "a curve without a point"


@pytest.mark.parametrize("name", ALONE)
def test_it_gives_what_the_page_wants(name: str, tmp_path: Path) -> None:
    assert_whole(name, found_by(name, tmp_path))


def test_a_calibration_is_timed_on_the_table_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = tmp_path / "runs.csv"
    runs.write_text(table(*(row(id=f"a-{number}", iter_time_s=f"1.{number}") for number in range(4))), encoding="utf-8")
    monkeypatch.setenv("RUNS", str(runs))
    assert found_by("calibrate_speed", tmp_path)["figures"]["fit_s"] > 0


def test_calculon_is_measured_beside_where_a_clone_of_it_is_named(tmp_path: Path) -> None:
    if not PLACE_OF_CALCULON:
        pytest.skip("no clone of Calculon is named (CALCULON=, CALCULON_PYTHON=): opsk neither holds nor fetches it")
    assert_whole("against_calculon", found_by("against_calculon", tmp_path))


@pytest.mark.parametrize("name", [each.name for each in BENCHMARKS if each.wants])
def test_without_what_it_wants_a_benchmark_says_so_and_hands_nothing_over(name: str, tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    command = [sys.executable, "-P", "-m", find_benchmark(name).path, "--found", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == NOT_RUN_STATUS
    assert done.stdout.startswith("not run: no ")
    assert not path.exists()


def test_what_a_site_learns_is_told_of_the_table_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = tmp_path / "runs.csv"
    runs.write_text(
        table(*(row(id=f"a-{number}", iter_time_s=f"1.{number:02}") for number in range(16))), encoding="utf-8"
    )
    monkeypatch.setenv("RUNS", str(runs))
    assert 0 <= found_by("site_learning", tmp_path)["figures"]["share_worse"] <= 1

"""The page that says how accurate the cost model is."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from opsk.calibration.runs import parse_runs, read_runs
from tests.fakes.tables_of_runs import row, table

CALIBRATION = {
    "cross_validation": {
        "stated": {"runs": 7, "median": 0.091, "p90": 0.28, "bias": -0.01},
        "by_source": {"other": {"runs": 7, "median": 0.091, "p90": 0.28, "bias": -0.01}},
    }
}


@pytest.fixture(scope="module")
def accuracy(root: Path) -> ModuleType:
    """The program that writes the page."""
    spec = importlib.util.spec_from_file_location("docs_accuracy", root / "docs" / "accuracy.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_tells_targets_errors_and_why_the_worst_miss(accuracy: ModuleType) -> None:
    runs = parse_runs(table(row(id="a-1", iter_time_s="1.4", peak_mem_gb="40"), row(id="b-1", iter_time_s="9")))
    page = accuracy.page(runs, CALIBRATION, {"b-1": "another machine"})
    assert "2 of 2 rows predicted" in page
    assert "median 9.1%, P90 28.0% (7 rows)" in page
    assert "| other | 7 | 9.1% | 28.0% | -1.0% |" in page
    assert "another machine" in page


def test_the_page_holds_without_a_calibration_and_without_measurements(accuracy: ModuleType) -> None:
    page = accuracy.page(parse_runs(table(row())), None, {})
    assert "1 of 1 rows predicted" in page
    assert "Sources left out" not in page


@pytest.mark.shared
def test_the_page_names_no_place_on_a_machine(accuracy: ModuleType, shared: Path) -> None:
    page = accuracy.page(read_runs(shared / "data" / "measured-runs.csv"), None, {})
    assert str(shared) not in page
    assert str(shared.parent) not in page

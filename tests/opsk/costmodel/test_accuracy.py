"""How far are the shipped predictions from published runs?

The runs are those that the efficiencies were fitted to: the bounds are what the model was asked to reach on them, not
what a new run's error will be (docs/accuracy.md has both).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from opsk.calibration.accuracy.scoring import ErrorSummary, summarise_errors
from opsk.calibration.accuracy.validation import Validation, validate_runs
from opsk.calibration.runs.runs import read_runs
from opsk.costmodel.uncertainty.verdict import Verdict

pytestmark = pytest.mark.shared


@pytest.fixture(scope="module")
def validation(runs_of_the_fit: Path) -> Validation:
    """All published rows, predicted with the shipped efficiencies."""
    return validate_runs(read_runs(runs_of_the_fit))


def summary_of(found: ErrorSummary | None, *, at_least: int) -> ErrorSummary:
    """Return a summary, after a look that it is one of enough rows."""
    assert found is not None
    assert found.rows >= at_least
    return found


def test_every_row_is_predicted(validation: Validation) -> None:
    assert not validation.unpredictable


def test_korthikanti_all_nine_within_11_percent_and_6_in_the_mean(validation: Validation) -> None:
    # arXiv 2205.05198, table 5 and section 6.3; Calculon reaches 3.65 and 8.9 % on the eight of the table
    nine = summarise_errors([row.time for row in validation.rows if row.time and row.run.source == "kor"])
    found = summary_of(nine, at_least=9)
    # 1.3 and 4.7 % while the fit weighed them 15 times (docs/adr/0017-rates-from-kernels.md)
    assert found.mean_absolute_error <= 0.06
    assert found.max_absolute_error <= 0.11


def test_the_published_mfu_of_530b_on_2240_gpus_is_what_is_compared(validation: Validation) -> None:
    # its time is from memory; 54.2 % is printed (section 6.3)
    scores = [row.time for row in validation.rows if row.run.id == "kor-009"]
    assert [(score.quantity, score.measured) for score in scores if score] == [("mfu", 0.542)]


def test_narayanan_table_1_within_10_percent(validation: Validation) -> None:
    found = summary_of(
        summarise_errors([row.time for row in validation.rows if row.time and row.run.source == "nar1"]), at_least=10
    )
    assert found.max_absolute_error <= 0.10


def test_times_with_every_input_stated(validation: Validation) -> None:
    found = summary_of(validation.report.time["stated"], at_least=300)
    assert found.median_absolute_error <= 0.06
    assert found.p90_absolute_error <= 0.18


def test_times_with_assumed_inputs(validation: Validation) -> None:
    found = summary_of(validation.report.time["assumed"], at_least=200)
    assert found.median_absolute_error <= 0.12


@pytest.mark.parametrize(("inputs", "widest"), [("stated", 0.5), ("assumed", 0.6)])
def test_ranges_of_time_hold_most_measurements_and_are_no_wider_than_first_looks_need(
    validation: Validation, inputs: str, widest: float
) -> None:
    """Ranges are for sources never seen: they hold nearly all rows of a table that the model was made with."""
    found = summary_of(validation.report.time[inputs], at_least=200)
    assert found.coverage >= 0.80
    assert found.median_half_width <= widest


def test_device_memory_with_every_input_stated(validation: Validation) -> None:
    found = summary_of(validation.report.memory["device, stated"], at_least=60)
    assert found.median_absolute_error <= 0.05
    assert found.p90_absolute_error <= 0.12
    # two of 66 rows are 3.03 %, a hair above the 3 % aimed at; docs/accuracy.md calls that missed
    assert round(found.under * found.rows) <= 2


def test_memory_that_torch_allocated(validation: Validation) -> None:
    found = summary_of(validation.report.memory["allocated"], at_least=40)
    assert found.median_absolute_error <= 0.10


def test_no_run_that_ran_out_of_memory_was_said_to_fit(validation: Validation) -> None:
    calls = validation.report.out_of_memory
    assert calls.out_of_memory == 6
    assert not calls.missed
    assert set(calls.fragmented) == {"brs-009", "brs-012"}
    dead = [row for row in validation.rows if row.run.measured.is_oom and row.run.id not in calls.fragmented]
    assert {row.prediction.verdict for row in dead} <= {Verdict.TIGHT, Verdict.OOM}


def test_no_run_with_room_was_called_out_of_memory(validation: Validation) -> None:
    calls = validation.report.out_of_memory
    assert calls.had_room > 100
    assert not calls.false_alarms


def test_the_chance_to_fit_beats_the_base_rate_where_peaks_were_measured(validation: Validation) -> None:
    found = validation.report.reliability["ran or ran out"]
    assert found is not None
    assert found.brier < found.base_rate_brier

"""Errors of jobs, worked out by hand: predicted / measured - 1, as `opsk validate` computes it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from opsk.diagnosis.accuracy.comparison import (
    ComparedJob,
    Comparison,
    MeasuredSteps,
    Quantity,
    compute_typical_step_s,
)
from opsk.diagnosis.accuracy.summary import find_missed_jobs, group_jobs, summarise_errors

NEW_YEAR = datetime(2027, 1, 1, tzinfo=UTC)


def compared(
    predicted: float, measured: float = 1.0, low: float | None = None, high: float | None = None
) -> Comparison:
    return Comparison(predicted=predicted, measured=measured, low=low, high=high)


def test_figures_are_those_of_absolute_errors_and_of_recorded_ranges() -> None:
    # errors of -50, 0, +10, +20 and +100 percent; of the three ranges two hold 1.0
    values = [compared(0.5, low=0.4, high=0.6), compared(1.0, low=0.9, high=1.1), compared(1.1), compared(1.2)]
    figures = summarise_errors([*values, compared(2.0, low=0.5, high=4.0)])
    assert figures is not None
    assert figures.median_absolute_error == pytest.approx(0.2)
    assert figures.p90_absolute_error == pytest.approx(1.0)
    assert figures.median_error == pytest.approx(0.1)
    assert (figures.jobs, figures.ranges, figures.coverage) == (5, 3, pytest.approx(2 / 3))


def test_without_jobs_there_are_no_figures_and_without_ranges_no_coverage() -> None:
    assert summarise_errors([]) is None
    figures = summarise_errors([compared(1.0)])
    assert figures is not None
    assert figures.coverage is None


def test_weeks_are_those_of_the_calendar() -> None:
    """The first of January 2027 is a Friday, and so in the last week of 2026."""
    groups = group_jobs([ComparedJob(job="1", submitted_at=NEW_YEAR, time=compared(1.0))], "week")
    assert list(groups) == ["2026-W53"]
    assert groups["2026-W53"][Quantity.MEMORY] is None


def test_half_and_double_are_equally_wrong_and_a_job_is_listed_once() -> None:
    jobs = [
        ComparedJob(job="good", submitted_at=NEW_YEAR, time=compared(1.05)),
        ComparedJob(job="half", submitted_at=NEW_YEAR, time=compared(1.1), memory=compared(0.45)),
        ComparedJob(job="double", submitted_at=NEW_YEAR, time=compared(2.0)),
        ComparedJob(job="nothing", submitted_at=NEW_YEAR),
    ]
    missed = find_missed_jobs(jobs, 2)
    assert [(entry.job.job, entry.quantity) for entry in missed] == [("half", "memory"), ("double", "time")]


@pytest.mark.parametrize(
    ("intervals", "expected"),
    [
        ([], None),
        ([(9.0, 10)], None),  # too few steps
        ([(9.0, 40)], 9.0),
        ([(9.0, 40), (1.0, 100), (2.0, 30)], 1.0),  # the first one warms up; every step counts
        ([(9.0, 40), (1.0, 10), (2.0, 30), (3.0, 25)], 2.0),
        ([(9.0, None), (1.5, None)], 1.5),  # steps that nobody counted
        ([(0.0, 40)], None),
    ],
)
def test_the_typical_step_leaves_out_the_warm_up(
    intervals: list[tuple[float, int | None]], expected: float | None
) -> None:
    measured = [MeasuredSteps(step_s=step_s, steps=steps) for step_s, steps in intervals]
    assert compute_typical_step_s(measured) == expected

"""Is a silent job's step time told from its GPUs' counters, as what it is, and only where it can be?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from opsk_tui.data.sources.assembly import JobViews
from opsk_tui.data.sources.progress import AGAIN_AFTER_S, DerivedProgress, PrometheusSignals
from opsk_tui.data.sources.readings import Progress, Readings
from tests.tui.data.sources.conftest import training_job

NOW_S = 1_800_000_000.0
Points = tuple[tuple[float, float], ...]


class PastProgress:
    """A Prometheus that knows GPUs with steps of so many seconds."""

    def __init__(self, step_s: float) -> None:
        self.step_s = step_s
        self.asked: list[str] = []

    def over_time(
        self, expr: str, since_s: float, until_s: float, step_s: float
    ) -> list[tuple[Mapping[str, str], Points]]:
        self.asked.append(expr)
        times = [since_s + step_s * at for at in range(int((until_s - since_s) / step_s))]
        # what a mean over 30 s leaves of a sine: sinc of 30 s over its period
        left = math.sin(math.pi * 30.0 / self.step_s) / (math.pi * 30.0 / self.step_s)
        return [({}, tuple((at, 100.0 + 50.0 * left * math.sin(2 * math.pi * at / self.step_s)) for at in times))]


def test_a_job_without_a_log_is_told_from_its_counters() -> None:
    readings, past = Readings(), PastProgress(120.0)
    derived = DerivedProgress(PrometheusSignals(past), readings)  # type: ignore[arg-type]
    job = training_job(start_time=datetime.fromtimestamp(NOW_S - 7200, tz=UTC))
    derived.turn((job,), NOW_S)
    (view,) = JobViews().views((job,), readings, None, NOW_S)
    assert view.measured is not None
    assert view.measured.source == "counters"
    assert view.measured.step_s is not None
    assert abs(view.measured.step_s - 120.0) < 3.0
    asked = len(past.asked)
    derived.turn((job,), NOW_S + AGAIN_AFTER_S - 1)
    assert len(past.asked) == asked


@pytest.mark.parametrize("step_s", [3.0, 7.4, 11.0, 14.5, 16.0, 21.0, 28.0])
def test_steps_faster_than_they_can_be_seen_are_not_taken_for_long_ones(step_s: float) -> None:
    readings = Readings()
    derived = DerivedProgress(PrometheusSignals(PastProgress(step_s)), readings)  # type: ignore[arg-type]
    derived.turn((training_job(start_time=datetime.fromtimestamp(NOW_S - 7200, tz=UTC)),), NOW_S)
    assert readings.progress == {}


def test_jobs_that_are_young_and_those_with_logs_are_left_alone() -> None:
    readings, past = Readings(), PastProgress(120.0)
    derived = DerivedProgress(PrometheusSignals(past), readings)  # type: ignore[arg-type]
    young = training_job(start_time=datetime.fromtimestamp(NOW_S - 100, tz=UTC))
    derived.turn((young,), NOW_S)
    assert not past.asked
    old = training_job(start_time=datetime.fromtimestamp(NOW_S - 7200, tz=UTC))
    readings.progress["4711"] = Progress(step_s=8.0)
    derived.turn((old,), NOW_S)
    assert not past.asked
    assert readings.progress["4711"].source == "log"

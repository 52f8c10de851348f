"""Are medians those of the steady state, and is what was left out said?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.telemetry.progress.records import StepRecord
from opsk.telemetry.progress.runs import Tally


def tally(*times: float | None, generations: tuple[int, ...] | None = None) -> Tally:
    found = Tally()
    for step, time_s in enumerate(times, 1):
        generation = generations[step - 1] if generations else 0
        found.add(StepRecord(iteration=step, step_s=time_s, generation=generation))
    return found


def test_the_first_record_of_each_start_is_warm_up() -> None:
    """Start-up took 100 s each time."""
    steady = tally(100, 2, 2, 2, 100, 4, 4, 4, generations=(0, 0, 0, 0, 1, 1, 1, 1)).compute_steady_state()
    assert (steady.medians["step_s"], steady.warm_up_records, steady.stall_count) == (3.0, 2, 0)


def test_slow_records_after_the_first_are_warm_up_too() -> None:
    steady = tally(100, 9, 5, *[2.0] * 20).compute_steady_state()
    assert (steady.warm_up_records, steady.medians["step_s"]) == (3, 2.0)


def test_no_more_than_a_quarter_is_warm_up() -> None:
    assert tally(9, 9, 9, 9, 9, 2, 2, 2, 2, 2, 2, 2).compute_steady_state().warm_up_records == 3


def test_a_single_record_is_not_left_out() -> None:
    steady = tally(20.0).compute_steady_state()
    assert (steady.medians["step_s"], steady.warm_up_records) == (20.0, 0)


def test_stalls_are_counted_and_stay() -> None:
    """Two stalls of 62 s among steps of 2 s: 120 s lost."""
    steady = tally(2, *[2.0] * 10, 62, *[2.0] * 10, 62, 2).compute_steady_state()
    assert (steady.medians["step_s"], steady.stall_count, steady.stalled_s) == (2.0, 2, 120.0)
    assert [stall.iteration for stall in steady.stalls] == [12, 23]


def test_without_skipping_everything_counts() -> None:
    assert tally(100, 2, 2).compute_steady_state(skip_warm_up=False).warm_up_records == 0


def test_what_nobody_says_has_no_median() -> None:
    assert tally(None, None).compute_steady_state().medians["step_s"] is None
    assert Tally().compute_steady_state().medians["step_s"] is None


@given(st.lists(st.floats(0.01, 1e4), min_size=1, max_size=60))
def test_the_median_is_one_that_could_be(times: list[float]) -> None:
    steady = tally(*times).compute_steady_state()
    assert steady.medians["step_s"] is not None
    assert min(times) <= steady.medians["step_s"] <= max(times)
    assert steady.warm_up_records < steady.records
    assert steady.stalled_s == pytest.approx(max(steady.stalled_s, 0.0))

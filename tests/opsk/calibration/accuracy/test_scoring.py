"""Reliability tables and Brier scores."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.calibration.accuracy.predictions import Interval
from opsk.calibration.accuracy.scoring import Event, chance_below, compute_reliability

EVENTS = st.lists(st.builds(Event, probability=st.floats(0, 1), happened=st.booleans()), min_size=1, max_size=50)


def test_certain_and_right_scores_zero() -> None:
    found = compute_reliability([Event(probability=1.0, happened=True), Event(probability=0.0, happened=False)])
    assert found is not None
    assert found.brier == 0
    assert found.skill == 1


def test_a_hand_calculated_table() -> None:
    events = [Event(probability=0.8, happened=True), Event(probability=0.8, happened=False)]
    found = compute_reliability(events)
    assert found is not None
    # (0.2^2 + 0.8^2) / 2, and half of the events happened
    assert found.brier == pytest.approx(0.34)
    assert found.base_rate_brier == pytest.approx(0.25)
    (only,) = found.bins
    assert (only.events, only.told, only.happened) == (2, pytest.approx(0.8), 0.5)


@given(EVENTS)
def test_every_event_is_in_one_bin(events: list[Event]) -> None:
    found = compute_reliability(events)
    assert found is not None
    assert sum(entry.events for entry in found.bins) == len(events)
    assert 0 <= found.brier <= 1


def test_a_range_holds_nine_tenths() -> None:
    interval = Interval(low=40.0, expected=50.0, high=62.5)
    assert chance_below(interval, 62.5) == pytest.approx(0.95, abs=1e-4)
    assert chance_below(interval, 50.0) == pytest.approx(0.5)
    assert chance_below(interval, 40.0) == pytest.approx(0.05, abs=1e-4)


def test_no_events_give_no_table() -> None:
    assert compute_reliability([]) is None

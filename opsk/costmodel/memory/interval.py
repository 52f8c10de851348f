"""Defines a range of bytes whose ends come from formulas, for what was not measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Bytes: nine of ten jobs are taken to lie between ``low`` and ``high``."""

    low: float
    expected: float
    high: float


NOTHING = Interval(low=0.0, expected=0.0, high=0.0)


def spread(value: float, low: float, high: float) -> Interval:
    """Return the interval around a value, by the factors of its ends."""
    return Interval(low=low * value, expected=value, high=high * value)


def add(intervals: Iterable[Interval]) -> Interval:
    """Return the sum of intervals, whose low ends are taken to come together, and whose high ends do."""
    rows = tuple(intervals)
    return Interval(
        low=sum(row.low for row in rows),
        expected=sum(row.expected for row in rows),
        high=sum(row.high for row in rows),
    )

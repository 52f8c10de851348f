"""Defines what is compared of one job: the prediction that was made before it ran, and the measurement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from statistics import median

UNKNOWN = "unknown"
"""The group of jobs of which the framework, the GPU or the user is not known."""


class Quantity(StrEnum):
    """What is predicted and measured; programs rely on these values."""

    TIME = "time"
    """The time of one step [s]."""
    MEMORY = "memory"
    """The memory of the fullest GPU [bytes]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One predicted number and its measurement, in the same unit.

    Parameters
    ----------
    low, high
        The predicted range; ``None`` where it was not recorded.
    """

    predicted: float
    measured: float
    low: float | None = None
    high: float | None = None

    @property
    def error(self) -> float:
        """Relative error: predicted / measured - 1, as `opsk validate` computes it."""
        return self.predicted / self.measured - 1

    @property
    def distance(self) -> float:
        """How far the measurement lies from the prediction, as a share of the prediction."""
        return abs(self.measured / self.predicted - 1)

    @property
    def is_in_range(self) -> bool | None:
        """Whether the range holds the measurement; ``None`` where no range was recorded."""
        if self.low is None or self.high is None:
            return None
        return self.low <= self.measured <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedJob:
    """A job that was predicted before it ran, with what was measured of it.

    Parameters
    ----------
    job
        Slurm's id as it is shown; empty where the reader may not see it.
    user, account, name
        Whose job it was, and how it was called; empty where unknown, or hidden.
    kind
        Kind of job, as `opsk.diagnosis.accuracy.site_error.build_kind` names it; empty where it was not recorded.
    reason
        Why it ran otherwise than predicted, where `opsk losses` or a failure says so; hostile text.
    is_held_up
        Whether a fault held up this run: its step time says nothing of the prediction.
    """

    job: str
    submitted_at: datetime
    user: str = ""
    account: str = ""
    name: str = ""
    framework: str = UNKNOWN
    gpu: str = UNKNOWN
    kind: str = ""
    reason: str = ""
    is_held_up: bool = False
    time: Comparison | None = None
    memory: Comparison | None = None

    def get(self, quantity: Quantity) -> Comparison | None:
        """Return one of the two comparisons."""
        return self.time if quantity is Quantity.TIME else self.memory

    @property
    def week(self) -> str:
        """The ISO week in which it was submitted, such as ``2026-W09``."""
        calendar = self.submitted_at.isocalendar()
        return f"{calendar.year}-W{calendar.week:02d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSteps:
    """One measured interval of a job: its steps, ``None`` where they were not counted, and their median time [s]."""

    step_s: float
    steps: int | None = None


MIN_STEPS = 20
"""Fewer steps are mostly warm-up."""


def compute_typical_step_s(intervals: Sequence[MeasuredSteps]) -> float | None:
    """Return the median step time of a job, every step counted [s]; ``None`` where it ran too few steps.

    The first interval includes the warm-up and is left out where there are others. Unlike a run to calibrate with, a
    job need not be steady: one that ran badly is part of how good predictions are.
    """
    usable = [interval for interval in intervals if interval.step_s > 0]
    if sum(interval.steps or MIN_STEPS for interval in usable) < MIN_STEPS:
        return None
    later = usable[1:] or usable
    return _compute_weighted_median(sorted((interval.step_s, interval.steps or 1) for interval in later))


def _compute_weighted_median(ordered: Sequence[tuple[float, int]]) -> float | None:
    """Return the value at which half of the weight is reached; ``None`` of nothing."""
    half = sum(weight for _, weight in ordered) / 2
    reached = 0
    for value, weight in ordered:
        reached += weight
        if reached >= half:
            return value
    return median(value for value, _ in ordered) if ordered else None

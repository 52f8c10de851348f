"""Computes how well predicted chances to fit agree with what happened.

Three sets of events. *Ran or ran out*: every run whose peak was measured, or that ran out of memory, on its own GPU.
*All published*: the same of every run of the table; nearly all of them ran, since failures are rarely published, and
most do not state what their memory depends on. *Cards*: every measured peak against the memory of common GPUs: would it
have fitted there? The third has as many failures as successes, and shows whether the whole distribution is right.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from opsk.calibration.accuracy.predictions import Interval, Prediction
from opsk.calibration.runs.runs import Run
from opsk.costmodel.uncertainty.chance import COVERED_T
from opsk.units import GIB

CARDS_BYTES = tuple(size * GIB for size in (16, 24, 32, 40, 48, 64, 80, 96, 141, 192, 288))
"""Memory of the GPUs that models are trained on, as labelled."""
BINS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A predicted chance, and the outcome."""

    probability: float
    happened: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliabilityBin:
    """Events whose chance is from ``low`` to ``high``: how many, the mean chance, and the share that happened."""

    low: float
    high: float
    events: int
    told: float
    happened: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """How well predicted chances agree with outcomes.

    ``brier`` is the mean squared difference of chance and outcome (Brier 1950), ``base_rate_brier`` that of always
    predicting the share of all events that happened; ``skill`` is 1 - brier / base_rate_brier.
    """

    events: int
    base_rate: float
    brier: float
    base_rate_brier: float
    bins: tuple[ReliabilityBin, ...]

    @property
    def skill(self) -> float:
        """Improvement of the chances over the base rate [ratio]; NaN where all events had the same outcome."""
        return 1 - self.brier / self.base_rate_brier if self.base_rate_brier else math.nan


def compute_reliability(events: Sequence[Event]) -> Reliability | None:
    """Return the reliability table of events; ``None`` where there are none."""
    if not events:
        return None
    base = sum(event.happened for event in events) / len(events)
    brier = sum((event.probability - event.happened) ** 2 for event in events) / len(events)
    bins = []
    for low, high in pairwise(BINS):
        inside = [event for event in events if low <= event.probability < high or event.probability == high == 1.0]
        if inside:
            mean_probability = sum(event.probability for event in inside) / len(inside)
            happened = sum(event.happened for event in inside) / len(inside)
            bins.append(
                ReliabilityBin(low=low, high=high, events=len(inside), told=mean_probability, happened=happened)
            )
    return Reliability(
        events=len(events), base_rate=base, brier=brier, base_rate_brier=base * (1 - base), bins=tuple(bins)
    )


def build_outcome_events(predicted: Iterable[tuple[Run, Prediction]], *, is_measured: bool) -> list[Event]:
    """Return whether each run ran on its own GPU; those that failed by fragmentation are excluded.

    ``is_measured`` excludes runs that ran and whose memory was not measured.
    """
    return [
        Event(probability=prediction.fit_probability, happened=not run.measured.is_oom)
        for run, prediction in predicted
        if not died_of_fragmentation(run, prediction)
        and (run.measured.is_oom or (run.measured.peak_mem_bytes if is_measured else has_run(run)))
    ]


def build_card_events(predicted: Iterable[tuple[Run, Prediction]]) -> list[Event]:
    """Return whether each measured peak would have fitted on each of the common GPUs."""
    return [
        Event(probability=chance_below(prediction.memory_bytes, card), happened=run.measured.peak_mem_bytes <= card)
        for run, prediction in predicted
        if run.measured.peak_mem_bytes is not None and not run.is_memory_unusable
        for card in CARDS_BYTES
    ]


def chance_below(interval: Interval, limit: float) -> float:
    """Return the chance that a predicted quantity is below a limit, by the distribution of `fit_probability`.

    Student's t with 3 degrees of freedom of the logarithm, nine tenths of it in the interval.
    """
    half = math.log(interval.high / interval.low) / 2
    distance = math.log(limit / interval.expected)
    if half <= 0:
        return float(distance >= 0)
    u = distance / half * COVERED_T / math.sqrt(3.0)
    return 0.5 + (u / (1.0 + u * u) + math.atan(u)) / math.pi


def has_run(run: Run) -> bool:
    """Return whether anything was measured of a run, which means that it ran."""
    measured = run.measured
    return any(
        value is not None
        for value in (
            measured.step_s,
            measured.tokens_per_s_per_gpu,
            measured.tflops_per_gpu,
            measured.mfu,
            measured.hfu,
            measured.peak_mem_bytes,
        )
    )


def died_of_fragmentation(run: Run, prediction: Prediction) -> bool:
    """Return whether a run ran out of memory at a measured peak far below its GPU's memory."""
    peak = run.measured.peak_mem_bytes
    return run.measured.is_oom and peak is not None and peak < FRAGMENTED_BELOW * prediction.capacity_bytes


FRAGMENTED_BELOW = 0.85
"""An out-of-memory error at less than this share of the GPU's memory is one of fragmentation."""

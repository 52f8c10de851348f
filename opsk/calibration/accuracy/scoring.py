"""Scores predictions against measurements: errors by group, ranges, and the chances to fit.

Predicted chances are compared with three sets of events. *Ran or ran out*: every run whose peak was measured, or that
ran out of memory, on its own GPU. *All published*: the same of every run of the table; nearly all of them ran, since
failures are rarely published, and most do not state what their memory depends on. *Cards*: every measured peak against
the memory of common GPUs: would it have fitted there? The third has as many failures as successes, and shows whether
the whole distribution is right.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from opsk.calibration.accuracy.predictions import Interval, Prediction
from opsk.calibration.runs.conventions import published_quantity
from opsk.calibration.runs.runs import Run
from opsk.costmodel.uncertainty.chance import COVERED_T
from opsk.costmodel.uncertainty.verdict import Verdict
from opsk.units import GIB

CARDS_BYTES = tuple(size * GIB for size in (16, 24, 32, 40, 48, 64, 80, 96, 141, 192, 288))
"""Memory of the GPUs that models are trained on, as labelled."""
BINS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)


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
UNDER_BY = 0.05
"""Memory that is predicted lower than measured by more than this is critical: such a job may run out of memory."""
RAN_BELOW = 0.85
"""No run that filled at most this share of its GPU may get the verdict ``oom``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One predicted number against its measurement: ``error`` is predicted / measured - 1."""

    quantity: str
    predicted: float
    measured: float
    half_width: float
    is_held: bool
    is_stated: bool

    @property
    def error(self) -> float:
        """Relative error."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredRun:
    """A run, its prediction, and the scores of time and memory; ``None`` where nothing is compared."""

    run: Run
    prediction: Prediction
    time: Score | None
    memory: Score | None


def score_run(run: Run, prediction: Prediction) -> ScoredRun:
    """Score the prediction of a run; rows whose source contradicts itself get no scores."""
    return ScoredRun(
        run=run, prediction=prediction, time=_score_time(run, prediction), memory=_score_memory(run, prediction)
    )


def _score_time(run: Run, prediction: Prediction) -> Score | None:
    """Return the score of the time that a run reports."""
    name = published_quantity(run)
    if name is None or not run.is_time_scored:
        return None
    measured, predicted = getattr(run.measured, name), prediction.quantities[name]
    return Score(
        quantity=name,
        predicted=predicted.expected,
        measured=measured,
        half_width=predicted.half_width,
        is_held=predicted.holds(measured),
        is_stated=run.states_time_inputs,
    )


def _score_memory(run: Run, prediction: Prediction) -> Score | None:
    """Return the score of the memory that a run reports."""
    measured, predicted = run.measured.peak_mem_bytes, prediction.memory_bytes
    if measured is None or run.is_memory_unusable:
        return None
    return Score(
        quantity=f"{run.measured.mem_definition}_bytes",
        predicted=predicted.expected,
        measured=measured,
        half_width=predicted.half_width,
        is_held=predicted.holds(measured),
        is_stated=run.states_memory_inputs,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorSummary:
    """Errors of some rows: absolute errors, their bias, and the quality of the ranges [ratios].

    ``under`` is the share predicted low by more than `UNDER_BY`; ``coverage`` the share of ranges that hold the truth.
    """

    rows: int
    median_absolute_error: float
    p90_absolute_error: float
    mean_absolute_error: float
    max_absolute_error: float
    median_error: float
    under: float
    coverage: float
    median_half_width: float


def summarise_errors(scores: Sequence[Score]) -> ErrorSummary | None:
    """Return the summary of scores, ``None`` without any."""
    if not scores:
        return None
    absolute = sorted(abs(score.error) for score in scores)
    return ErrorSummary(
        rows=len(scores),
        median_absolute_error=statistics.median(absolute),
        p90_absolute_error=quantile(absolute, 0.9),
        mean_absolute_error=statistics.fmean(absolute),
        max_absolute_error=absolute[-1],
        median_error=statistics.median(score.error for score in scores),
        under=sum(score.error < -UNDER_BY for score in scores) / len(scores),
        coverage=sum(score.is_held for score in scores) / len(scores),
        median_half_width=statistics.median(score.half_width for score in scores),
    )


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile of sorted values, linear between neighbours (as numpy's)."""
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


GROUPS: Mapping[str, Callable[[Run], str]] = {
    "gpu": lambda run: run.gpu or "not stated",
    "arch": lambda run: run.group,
    "source": lambda run: run.source,
    "size": lambda run: classify_size(run),
}
"""The groups by which errors are summarised."""
_SIZES_B = ((2, "below 2 B"), (10, "2 to 10 B"), (50, "10 to 50 B"), (200, "50 to 200 B"), (math.inf, "200 B and more"))


def classify_size(run: Run) -> str:
    """Return the class of a model's size by its parameters."""
    return next(name for limit, name in _SIZES_B if run.parameters / 1e9 < limit)


def group_errors(rows: Iterable[ScoredRun]) -> dict[str, dict[str, dict[str, ErrorSummary | None]]]:
    """Return the errors of time and memory by GPU, kind of model, source and size; empty groups are omitted."""
    groups: dict[str, dict[str, dict[str, ErrorSummary | None]]] = {}
    rows = tuple(rows)
    for group, key_of in GROUPS.items():
        members: dict[str, list[ScoredRun]] = {}
        for row in rows:
            members.setdefault(key_of(row.run), []).append(row)
        summaries = {
            key: {
                "time": summarise_errors([row.time for row in inside if row.time]),
                "memory": summarise_errors([row.memory for row in inside if row.memory]),
            }
            for key, inside in members.items()
        }
        groups[group] = {key: value for key, value in summaries.items() if any(value.values())}
    return groups


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfMemoryCalls:
    """The verdicts on runs that ran out of memory, and on runs that had free memory.

    ``missed`` are ids that ran out with the verdict ``fits``; ``false_alarms`` ids that filled at most `RAN_BELOW` of
    their GPU with the verdict ``oom``; ``fragmented`` ids that failed far below their GPU's memory, which do not count.
    """

    out_of_memory: int
    missed: tuple[str, ...]
    had_room: int
    false_alarms: tuple[str, ...]
    fragmented: tuple[str, ...]


def count_out_of_memory_calls(rows: Sequence[ScoredRun]) -> OutOfMemoryCalls:
    """Count the wrong verdicts on runs that ran out of memory or had free memory."""
    fragmented = [row for row in rows if died_of_fragmentation(row.run, row.prediction)]
    died = [row for row in rows if row.run.measured.is_oom and row not in fragmented]
    roomy = [
        row
        for row in rows
        if row.memory
        and not row.run.measured.is_oom
        and row.memory.measured <= RAN_BELOW * row.prediction.capacity_bytes
    ]
    return OutOfMemoryCalls(
        out_of_memory=len(died),
        missed=tuple(row.run.id for row in died if row.prediction.verdict is Verdict.FITS),
        had_room=len(roomy),
        false_alarms=tuple(row.run.id for row in roomy if row.prediction.verdict is Verdict.OOM),
        fragmented=tuple(row.run.id for row in fragmented),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The accuracy of the predictions; keys of the mappings are names of sets of rows."""

    time: Mapping[str, ErrorSummary | None]
    memory: Mapping[str, ErrorSummary | None]
    groups: Mapping[str, Mapping[str, Mapping[str, ErrorSummary | None]]]
    out_of_memory: OutOfMemoryCalls
    reliability: Mapping[str, Reliability | None]


def build_report(rows: Sequence[ScoredRun]) -> Report:
    """Return the report of scored runs."""
    times = [row.time for row in rows if row.time]
    memories = [row.memory for row in rows if row.memory]
    device = [score for score in memories if score.quantity == "device_bytes"]
    pairs = [(row.run, row.prediction) for row in rows]
    return Report(
        time={
            "all": summarise_errors(times),
            "stated": summarise_errors([score for score in times if score.is_stated]),
            "assumed": summarise_errors([score for score in times if not score.is_stated]),
        },
        memory={
            "all": summarise_errors(memories),
            "device, stated": summarise_errors([score for score in device if score.is_stated]),
            "device, assumed": summarise_errors([score for score in device if not score.is_stated]),
            "allocated": summarise_errors([score for score in memories if score.quantity == "allocated_bytes"]),
            "reserved": summarise_errors([score for score in memories if score.quantity == "reserved_bytes"]),
        },
        groups=group_errors(rows),
        out_of_memory=count_out_of_memory_calls(rows),
        reliability={
            "ran or ran out": compute_reliability(build_outcome_events(pairs, is_measured=True)),
            "all published": compute_reliability(build_outcome_events(pairs, is_measured=False)),
            "cards": compute_reliability(build_card_events(pairs)),
        },
    )


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

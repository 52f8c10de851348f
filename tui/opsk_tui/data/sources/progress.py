"""Reads the past step times of jobs from Prometheus, and derives those of jobs that report none from their GPUs.

Exporters report the median of the last steps, which does not show a checkpoint. Where the time between two progress
lines exceeds the time of the steps between them, that job's lines of some hours are read.

A derived step time comes from periodic activity. There is one value about every 15 s: steps of a minute and more can be
detected, shorter ones cannot and are not reported. With instantaneous values, faster changes would alias to slow ones;
means over 30 s (rates of counters) leave at most a fifth of their amplitude, which is below the threshold of detection.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from opsk.metrics import names as metric_names
from opsk.slurm.records import JobRecord
from opsk.telemetry.progress.step_estimate import SOURCE, Series, estimate_step
from opsk_tui.data.sources.prometheus.client import PrometheusSource, match_any
from opsk_tui.data.sources.readings import Progress, Readings

HISTORY_S, HISTORY_STEP_S = 3600.0, 60.0
AGAIN_AFTER_S = 300.0
LINES_READ_S, LINES_STEP_S = 6 * 3600.0, 30.0
MAX_AT_ONCE = 4
WORTH_A_LOOK = 1.015
"""Ratio of the time between lines to the time of the steps between them, from which the lines are read [ratio]."""
_STEP = "max by (job) (opsk_training_step_seconds{SEL})"
_SLOWER = (
    "max by (job) (delta(opsk_training_last_progress_timestamp_seconds{SEL}[1h]))"
    " / (max by (job) (delta(opsk_training_iteration{SEL}[1h])) > 0)"
    f" / {_STEP} > {WORTH_A_LOOK}"
)
_LINES = '{__name__=~"opsk_training_(iteration|last_progress_timestamp_seconds)",job=~"%s",SEL}'
LOOKED_BACK_S = 3600.0
SCRAPED_EVERY_S, MEAN_S = 15.0, 30.0
MIN_RUN_S = 900.0
MAX_NODES = 4
MIN_CONFIDENCE = 0.6
MIN_SPREAD = 0.08
"""Standard deviation over mean: the rest of faster changes is less [ratio]."""
_SIGNALS = (metric_names.GPU_ENERGY_JOULES_TOTAL, metric_names.INFINIBAND_PORT_TRANSMITTED_BYTES_TOTAL)


class PastProgress:
    """Queries rarely, and about a few jobs at a time.

    Parameters
    ----------
    prometheus
        The Prometheus client.
    """

    def __init__(self, prometheus: PrometheusSource, readings: Readings) -> None:
        self._prometheus = prometheus
        self._readings = readings
        self._asked_at_s = -math.inf
        self._pending_jobs: list[str] = []

    def is_due(self, now_s: float) -> bool:
        """Return whether it is time to query, and there are jobs that train."""
        return now_s - self._asked_at_s >= AGAIN_AFTER_S and bool(self._readings.progress)

    def turn(self, now_s: float) -> None:
        """Read step times of new jobs, and find the jobs that lose time between steps.

        Raises
        ------
        UnavailableError
            Prometheus does not answer.
        """
        self._asked_at_s = now_s
        self._read_history(now_s)
        self._pending_jobs = [labels["job"] for labels, _ in self._prometheus.now(_SLOWER) if labels.get("job")]
        with self._readings.lock:
            for job in self._readings.progress.keys() - set(self._pending_jobs):
                self._readings.progress[job].lines.clear()

    def read_pending_lines(self, now_s: float) -> None:
        """Read lines of a few of the jobs that lose time between steps.

        Raises
        ------
        UnavailableError
            Prometheus does not answer.
        """
        jobs, self._pending_jobs = self._pending_jobs[:MAX_AT_ONCE], self._pending_jobs[MAX_AT_ONCE:]
        if jobs:
            self._read_lines(jobs, now_s)

    def _read_history(self, now_s: float) -> None:
        """Read the step times of the last hour of jobs that have none."""
        with self._readings.lock:
            new = [job for job, progress_entry in self._readings.progress.items() if not progress_entry.is_read]
        if not new:
            return
        is_for_all = len(new) > len(self._readings.progress) // 2
        step = _STEP if is_for_all else _STEP.replace("SEL", f'job=~"{match_any(new)}",SEL')
        series = self._prometheus.over_time(step, now_s - HISTORY_S, now_s, HISTORY_STEP_S)
        with self._readings.lock:
            for job in new:
                if job in self._readings.progress:
                    self._readings.progress[job].is_read = True
            for labels, points in series:
                progress = self._readings.progress.get(labels.get("job", ""))
                if progress is not None and len(points) > len(progress.history):
                    progress.history = points

    def _read_lines(self, jobs: list[str], now_s: float) -> None:
        """Read the end times of the steps of some jobs."""
        series_list = self._prometheus.over_time(_LINES % match_any(jobs), now_s - LINES_READ_S, now_s, LINES_STEP_S)
        by_job: dict[str, dict[str, Mapping[float, float]]] = {}
        for labels, points in series_list:
            by_job.setdefault(labels.get("job", ""), {})[labels.get("__name__", "")] = dict(points)
        with self._readings.lock:
            for job, series in by_job.items():
                progress = self._readings.progress.get(job)
                if progress is not None:
                    ended = series.get(metric_names.TRAINING_LAST_PROGRESS_TIMESTAMP_SECONDS, {})
                    numbers = series.get(metric_names.TRAINING_ITERATION, {})
                    progress.lines.clear()
                    for at_s in sorted(ended.keys() & numbers.keys()):
                        progress.note_line(int(numbers[at_s]), ended[at_s])


class Signals(Protocol):
    """A source of past GPU and port activity."""

    def signals(self, nodes: Sequence[str], since_s: float, until_s: float) -> list[Series]:
        """Return power and bytes of nodes over a time [s since 1970], as means over 30 s.

        Raises
        ------
        UnavailableError
            There is no answer.
        """
        ...


class DerivedProgress:
    """Derives progress for one job at a time, rarely.

    Parameters
    ----------
    signals
        The source of past activity.
    """

    def __init__(self, signals: Signals, readings: Readings) -> None:
        self._signals = signals
        self._readings = readings
        self._asked_at_s: dict[int, float] = {}

    def turn(self, jobs: Sequence[JobRecord], now_s: float) -> None:
        """Derive the step time of the job that was derived longest ago, of those that run long enough and report none.

        Raises
        ------
        UnavailableError
            There is no answer.
        """
        self._asked_at_s = {job.id: self._asked_at_s[job.id] for job in jobs if job.id in self._asked_at_s}
        silent = [job for job in jobs if self._is_silent(job, now_s)]
        if not silent:
            return
        job = min(silent, key=lambda candidate: self._asked_at_s.get(candidate.id, -math.inf))
        if now_s - self._asked_at_s.get(job.id, -math.inf) < AGAIN_AFTER_S:
            return
        self._asked_at_s[job.id] = now_s
        step_s = self._step_s(job, now_s)
        with self._readings.lock:
            if step_s is not None:
                self._readings.progress[job.label] = Progress(step_s=step_s, source=SOURCE)
            else:
                self._readings.progress.pop(job.label, None)
            self._readings.version += 1

    def _is_silent(self, job: JobRecord, now_s: float) -> bool:
        if job.state != "RUNNING" or not job.gpus or not job.nodes or job.start_time is None:
            return False
        known = self._readings.progress.get(job.label)
        return now_s - job.start_time.timestamp() > MIN_RUN_S and (known is None or known.source == SOURCE)

    def _step_s(self, job: JobRecord, now_s: float) -> float | None:
        """Return the step time from power and port traffic of its first nodes."""
        began_s = job.start_time.timestamp() if job.start_time is not None else now_s
        since_s = max(began_s + 60.0, now_s - LOOKED_BACK_S)
        periodic = []
        for series in self._signals.signals(job.nodes[:MAX_NODES], since_s, now_s):
            values = np.asarray(series.values)
            if len(values) and values.std() >= MIN_SPREAD * abs(values.mean()):
                periodic.append(series)
        period = estimate_step(periodic)
        return period.step_s if period is not None and period.confidence >= MIN_CONFIDENCE else None


class PrometheusSignals:
    """Past activity from Prometheus.

    Parameters
    ----------
    prometheus
        The Prometheus client.
    """

    def __init__(self, prometheus: PrometheusSource) -> None:
        self._prometheus = prometheus

    def signals(self, nodes: Sequence[str], since_s: float, until_s: float) -> list[Series]:
        """Return power and bytes of nodes over a time."""
        series = []
        for name in _SIGNALS:
            expr = f'sum by (node) (rate({name}{{node=~"{match_any(nodes)}",SEL}}[{MEAN_S:.0f}s]))'
            for _, points in self._prometheus.over_time(expr, since_s, until_s, SCRAPED_EVERY_S):
                series.append(Series(at_s=[at_s for at_s, _ in points], values=[value for _, value in points]))
        return series


def means(counted: NDArray[np.float64], since_s: float, until_s: float) -> list[Series]:
    """Return rates of counters as means over the same window and at the same distances as from Prometheus.

    Parameters
    ----------
    counted
        A row per reading: its time [s since 1970], and the values of the counters.
    """
    if len(counted) < 2:
        return []
    at_s = np.arange(max(since_s, counted[0, 0] + MEAN_S), min(until_s, counted[-1, 0]), SCRAPED_EVERY_S)
    return [
        Series(
            at_s=at_s,
            values=(np.interp(at_s, counted[:, 0], counter) - np.interp(at_s - MEAN_S, counted[:, 0], counter))
            / MEAN_S,
        )
        for counter in counted[:, 1:].T
        if (np.diff(counter) >= 0).all()
    ]

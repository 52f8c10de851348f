"""Derives the step time of jobs that report no progress from the periodic activity of their GPUs.

There is one value about every 15 s: steps of a minute and more can be detected, shorter ones cannot and are not
reported. With instantaneous values, faster changes would alias to slow ones; means over 30 s (rates of counters) leave
at most a fifth of their amplitude, which is below the threshold of detection.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from opsk.metrics import names as metric_names
from opsk.slurm.records import JobRecord
from opsk.telemetry.progress.step_estimate import SOURCE, Series, estimate_step
from opsk_tui.data.sources.prometheus.client import PrometheusSource, match_any
from opsk_tui.data.sources.readings import Progress, Readings

LOOKED_BACK_S = 3600.0
SCRAPED_EVERY_S, MEAN_S = 15.0, 30.0
MIN_RUN_S = 900.0
AGAIN_AFTER_S = 300.0
MAX_NODES = 4
MIN_CONFIDENCE = 0.6
MIN_SPREAD = 0.08
"""Standard deviation over mean: the rest of faster changes is less [ratio]."""
_SIGNALS = (metric_names.GPU_ENERGY_JOULES_TOTAL, metric_names.INFINIBAND_PORT_TRANSMITTED_BYTES_TOTAL)


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

"""How fast is a job whose log tells nothing? By what its GPUs do, where that has a period that can be seen.

There is a value every 15 s or so: steps of a minute and more can be told, shorter ones cannot, and are not. What
changes faster than that would look like a slow change if values of moments were taken; means over 30 s (rates of
counters) leave no more than a fifth of it, which is below what is believed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from opsk.slurm.records import JobRecord
from opsk.telemetry.progress.from_counters import SOURCE, Series, step_of
from opsk_tui.data.sources.prometheus.client import PrometheusSource, one_of
from opsk_tui.data.sources.readings import Progress, Readings

LOOKED_BACK_S = 3600.0
SCRAPED_EVERY_S, MEAN_S = 15.0, 30.0
FEWEST_S = 900.0
AGAIN_AFTER_S = 300.0
MOST_NODES = 4
BELIEVED = 0.6
LEAST_SPREAD = 0.08
"""Standard deviation over mean: what is left of faster changes is less [ratio]."""
_SIGNALS = ("opsk_gpu_energy_joules_total", "opsk_infiniband_port_transmitted_bytes_total")


class Signals(Protocol):
    """Who knows what GPUs and ports did."""

    def signals(self, nodes: Sequence[str], since_s: float, until_s: float) -> list[Series]:
        """Return power and bytes of nodes over a time [s since 1970], as means over 30 s.

        Raises
        ------
        UnavailableError
            There is no answer.
        """
        ...


class DerivedProgress:
    """Looks at one job at a time, seldom.

    Parameters
    ----------
    signals
        Who knows the past.
    """

    def __init__(self, signals: Signals, readings: Readings) -> None:
        self._signals = signals
        self._readings = readings
        self._asked_at_s: dict[int, float] = {}

    def turn(self, jobs: Sequence[JobRecord], now_s: float) -> None:
        """Look at the job that was looked at longest ago, of those that run long enough and tell nothing.

        Raises
        ------
        UnavailableError
            There is no answer.
        """
        self._asked_at_s = {job.id: self._asked_at_s[job.id] for job in jobs if job.id in self._asked_at_s}
        silent = [job for job in jobs if self._is_silent(job, now_s)]
        if not silent:
            return
        job = min(silent, key=lambda each: self._asked_at_s.get(each.id, -math.inf))
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
        return now_s - job.start_time.timestamp() > FEWEST_S and (known is None or known.source == SOURCE)

    def _step_s(self, job: JobRecord, now_s: float) -> float | None:
        """Return what power and tensor cores of its first nodes show."""
        began_s = job.start_time.timestamp() if job.start_time is not None else now_s
        since_s = max(began_s + 60.0, now_s - LOOKED_BACK_S)
        found = []
        for series in self._signals.signals(job.nodes[:MOST_NODES], since_s, now_s):
            values = np.asarray(series.values)
            if len(values) and values.std() >= LEAST_SPREAD * abs(values.mean()):
                found.append(series)
        period = step_of(found)
        return period.step_s if period is not None and period.confidence >= BELIEVED else None


class PrometheusSignals:
    """The past as Prometheus knows it.

    Parameters
    ----------
    prometheus
        Who is asked.
    """

    def __init__(self, prometheus: PrometheusSource) -> None:
        self._prometheus = prometheus

    def signals(self, nodes: Sequence[str], since_s: float, until_s: float) -> list[Series]:
        """Return power and bytes of nodes over a time."""
        found = []
        for name in _SIGNALS:
            expr = f'sum by (node) (rate({name}{{node=~"{one_of(nodes)}",SEL}}[{MEAN_S:.0f}s]))'
            for _, points in self._prometheus.over_time(expr, since_s, until_s, SCRAPED_EVERY_S):
                found.append(Series(at_s=[at_s for at_s, _ in points], values=[value for _, value in points]))
        return found


def means(counted: NDArray[np.float64], since_s: float, until_s: float) -> list[Series]:
    """Return rates of counters as means over so long as Prometheus is asked for, at the same distances.

    Parameters
    ----------
    counted
        A row for each reading: when it was taken [s since 1970], and what each counter said.
    """
    if len(counted) < 2:
        return []
    at_s = np.arange(max(since_s, counted[0, 0] + MEAN_S), min(until_s, counted[-1, 0]), SCRAPED_EVERY_S)
    return [
        Series(
            at_s=at_s,
            values=(np.interp(at_s, counted[:, 0], told) - np.interp(at_s - MEAN_S, counted[:, 0], told)) / MEAN_S,
        )
        for told in counted[:, 1:].T
        if (np.diff(told) >= 0).all()
    ]

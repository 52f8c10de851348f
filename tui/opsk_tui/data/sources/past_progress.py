"""Reads the past step times of jobs, and the time between their steps, from Prometheus.

Exporters report the median of the last steps, which does not show a checkpoint. Where the time between two progress
lines exceeds the time of the steps between them, that job's lines of some hours are read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from opsk.metrics import names as metric_names
from opsk_tui.data.sources.prometheus.client import PrometheusSource, match_any
from opsk_tui.data.sources.readings import Readings

HISTORY_S, HISTORY_STEP_S = 3600.0, 60.0
AGAIN_AFTER_S = 300.0
LOOKED_BACK_S, LINES_STEP_S = 6 * 3600.0, 30.0
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
        series_list = self._prometheus.over_time(_LINES % match_any(jobs), now_s - LOOKED_BACK_S, now_s, LINES_STEP_S)
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

"""How have jobs been training before anybody looked, and what passes between their steps?

Exporters tell the median of the last steps, in which a checkpoint does not show. Where the time from one progress line
to a later one is more than the steps between them take, the lines of that job are looked at over some hours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from opsk_tui.data.sources.prometheus.client import PrometheusSource, one_of
from opsk_tui.data.sources.readings import Readings

HISTORY_S, HISTORY_STEP_S = 3600.0, 60.0
AGAIN_AFTER_S = 300.0
LOOKED_BACK_S, LINES_STEP_S = 6 * 3600.0, 30.0
MOST_AT_ONCE = 4
WORTH_A_LOOK = 1.015
"""Time from line to line as part of what the steps between them take, from which on it is looked at [ratio]."""
_STEP = "max by (job) (opsk_training_step_seconds{SEL})"
_SLOWER = (
    "max by (job) (delta(opsk_training_last_progress_timestamp_seconds{SEL}[1h]))"
    " / (max by (job) (delta(opsk_training_iteration{SEL}[1h])) > 0)"
    f" / {_STEP} > {WORTH_A_LOOK}"
)
_LINES = '{__name__=~"opsk_training_(iteration|last_progress_timestamp_seconds)",job=~"%s",SEL}'


class Past:
    """Asks seldom, and about a few jobs at a time.

    Parameters
    ----------
    prometheus
        Who knows the past.
    """

    def __init__(self, prometheus: PrometheusSource, readings: Readings) -> None:
        self._prometheus = prometheus
        self._readings = readings
        self._asked_at_s = -math.inf
        self._to_look_at: list[str] = []

    def is_due(self, now_s: float) -> bool:
        """Tell whether it is time to read what is new, and there are jobs that train."""
        return now_s - self._asked_at_s >= AGAIN_AFTER_S and bool(self._readings.progress)

    def turn(self, now_s: float) -> None:
        """Read step times of jobs that are new, and which jobs lose time between steps.

        Raises
        ------
        UnavailableError
            Prometheus does not answer.
        """
        self._asked_at_s = now_s
        self._read_history(now_s)
        self._to_look_at = [labels["job"] for labels, _ in self._prometheus.now(_SLOWER) if labels.get("job")]
        with self._readings.lock:
            for job in self._readings.progress.keys() - set(self._to_look_at):
                self._readings.progress[job].lines.clear()

    def look_closer(self, now_s: float) -> None:
        """Read lines of a few of the jobs that lose time between steps.

        Raises
        ------
        UnavailableError
            Prometheus does not answer.
        """
        jobs, self._to_look_at = self._to_look_at[:MOST_AT_ONCE], self._to_look_at[MOST_AT_ONCE:]
        if jobs:
            self._read_lines(jobs, now_s)

    def _read_history(self, now_s: float) -> None:
        """Read the step times of the last hour of jobs that have none."""
        with self._readings.lock:
            new = [job for job, each in self._readings.progress.items() if not each.is_read]
        if not new:
            return
        of_all = len(new) > len(self._readings.progress) // 2
        step = _STEP if of_all else _STEP.replace("SEL", f'job=~"{one_of(new)}",SEL')
        told = self._prometheus.over_time(step, now_s - HISTORY_S, now_s, HISTORY_STEP_S)
        with self._readings.lock:
            for job in new:
                if job in self._readings.progress:
                    self._readings.progress[job].is_read = True
            for labels, points in told:
                progress = self._readings.progress.get(labels.get("job", ""))
                if progress is not None and len(points) > len(progress.history):
                    progress.history = points

    def _read_lines(self, jobs: list[str], now_s: float) -> None:
        """Read when which step of some jobs had ended."""
        told = self._prometheus.over_time(_LINES % one_of(jobs), now_s - LOOKED_BACK_S, now_s, LINES_STEP_S)
        found: dict[str, dict[str, Mapping[float, float]]] = {}
        for labels, points in told:
            found.setdefault(labels.get("job", ""), {})[labels.get("__name__", "")] = dict(points)
        with self._readings.lock:
            for job, series in found.items():
                progress = self._readings.progress.get(job)
                if progress is not None:
                    ended = series.get("opsk_training_last_progress_timestamp_seconds", {})
                    numbers = series.get("opsk_training_iteration", {})
                    progress.lines.clear()
                    for at_s in sorted(ended.keys() & numbers.keys()):
                        progress.note_line(int(numbers[at_s]), ended[at_s])

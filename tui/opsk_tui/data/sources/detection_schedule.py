"""Schedules failure detection: as often as its CPU budget allows, and not before all GPUs are known."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

from opsk.diagnosis.events.observations import Event
from opsk.slurm.snapshot import Snapshot
from opsk_tui.data.sources.failure_detection import FailureDetector
from opsk_tui.data.sources.readings import Readings

SHARE_OF_CORE = 0.005
"""The largest share of one core for failure detection."""
FIRST_LOOK_AFTER_S = 2.0


class DetectionSchedule:
    """Runs failure detection at intervals."""

    def __init__(self) -> None:
        self._failures = FailureDetector()
        self._due_s, self._spent_s = -math.inf, 0.0

    @property
    def events(self) -> tuple[Event, ...]:
        """The detected failures."""
        return self._failures.events

    def pop_spent_s(self) -> float:
        """Return the time of detection since the last call [s of CPU]."""
        spent_s, self._spent_s = self._spent_s, 0.0
        return spent_s

    def turn(
        self, readings: Readings, slurm: Snapshot, now_s: float, *, domains: Mapping[str, tuple[str, ...]]
    ) -> None:
        """Run detection, where it is due and there are data.

        Parameters
        ----------
        domains
            Nodes of each HB domain.
        """
        began_s, cpu_s = time.monotonic(), time.thread_time()
        with readings.lock:
            if not self._failures.is_ready(readings):
                return
        if self._due_s == -math.inf:
            self._due_s = began_s + FIRST_LOOK_AFTER_S
        if began_s < self._due_s or not self._failures.has_news(readings, slurm.nodes, slurm.jobs, now_s):
            return
        with readings.lock:
            seen = self._failures.observe(readings, slurm.nodes, slurm.jobs, now_s, domains=domains)
        self._failures.look(seen)
        self._spent_s = time.thread_time() - cpu_s
        self._due_s = began_s + self._spent_s / SHARE_OF_CORE

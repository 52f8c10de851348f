"""When is looked for failures? As often as that may cost, and not before all GPUs are known."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

from opsk.diagnosis.events.values import Event
from opsk.slurm.snapshot import Snapshot
from opsk_tui.data.sources.failing import Failures
from opsk_tui.data.sources.readings import Readings

SHARE_OF_CORE = 0.005
"""Looking for failures takes no more of one core than this."""
FIRST_LOOK_AFTER_S = 2.0


class Looking:
    """Looks for failures now and then."""

    def __init__(self) -> None:
        self._failures = Failures()
        self._due_s, self._spent_s = -math.inf, 0.0

    @property
    def events(self) -> tuple[Event, ...]:
        """What was found."""
        return self._failures.events

    def take_spent(self) -> float:
        """Return what looking has taken since this was asked last [s of CPU]."""
        spent_s, self._spent_s = self._spent_s, 0.0
        return spent_s

    def turn(
        self, readings: Readings, slurm: Snapshot, now_s: float, *, domains: Mapping[str, tuple[str, ...]]
    ) -> None:
        """Look, where it is time to and there is anything to be seen.

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

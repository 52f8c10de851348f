"""Tracks the progress and current speed of a running job by polling its logs."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from opsk.errors import TelemetryError
from opsk.telemetry.progress.follow import Follower
from opsk.telemetry.progress.records import StepRecord
from opsk.units import KIB, MIB

_POLL_BYTES, _TAIL_BYTES = MIB, 256 * KIB
_WINDOW = 16
"""Records whose median is the speed of now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a job; ``None`` is what its log does not have.

    Parameters
    ----------
    framework
        The framework that trains.
    last
        The last step.
    step_s, tokens_per_s, tflops_per_gpu
        Medians of the last records of this start, its first left out where there are others.
    restarts
        Restarts since the logs were first read, by the log that has most.
    at_unix_s
        When the log had last been written when the last step was found [s since 1970].
    """

    framework: str | None
    last: StepRecord
    step_s: float | None
    tokens_per_s: float | None
    tflops_per_gpu: float | None
    restarts: int
    at_unix_s: float | None


class LogWatch:
    """Watches the logs of one job; the one with most steps counts.

    Parameters
    ----------
    paths
        Its logs.
    owner
        Only files of this user are read; ``None`` is anybody's.
    """

    def __init__(self, paths: Sequence[Path], owner: int | None = None) -> None:
        self.unreadable = 0
        self._owner = owner
        self._logs = tuple(_Log(path, owner) for path in dict.fromkeys(paths))

    def add(self, paths: Sequence[Path], max_logs: int) -> None:
        """Watch more logs, up to ``max_logs`` in total."""
        watched = {log.follower.path for log in self._logs}
        more = [path for path in dict.fromkeys(paths) if path not in watched]
        self._logs += tuple(_Log(path, self._owner) for path in more[: max(max_logs - len(watched), 0)])

    def look(self) -> Progress | None:
        """Read on, and return the progress of the job; ``None`` while its logs have no step."""
        self.unreadable = sum(not log.poll() for log in self._logs)
        best = max(self._logs, key=lambda log: log.steps, default=None)
        progress = best.progress() if best else None
        # Another log may count from now on, which has seen fewer restarts: theirs is a counter, and may not go back.
        return replace(progress, restarts=max(log.restarts for log in self._logs)) if progress else None

    def close(self) -> None:
        """Close the files."""
        for log in self._logs:
            log.follower.close()


class _Log:
    """One log: the last records, and how many there were."""

    def __init__(self, path: Path, owner: int | None) -> None:
        self.follower = Follower(path, poll_bytes=_POLL_BYTES, tail_bytes=_TAIL_BYTES, owner=owner)
        self.steps = 0
        self._changes = self.restarts = 0
        self._at: float | None = None
        self._recent: deque[StepRecord] = deque(maxlen=_WINDOW)

    def poll(self) -> bool:
        """Read on; ``False`` when the log cannot be read."""
        reader, before = self.follower.reader, self.steps
        try:
            for item in self.follower.poll():
                if reader.changes != self._changes:
                    self._changes, self.steps = reader.changes, 0
                    self._recent.clear()
                if isinstance(item, StepRecord):
                    self._add(item)
        except (TelemetryError, OSError):
            self.follower.close()
            return False
        if self.steps != before:
            self._at = self.follower.written_unix_s
        self.restarts = max(self.restarts, reader.restarts)
        return True

    def _add(self, record: StepRecord) -> None:
        """Add a record; those of an earlier start are dropped."""
        if self._recent and self._recent[-1].generation != record.generation:
            self._recent.clear()
        self._recent.append(record)
        self.steps += 1

    def progress(self) -> Progress | None:
        """Return the progress of the job by this log."""
        if not self._recent:
            return None
        return Progress(
            framework=self.follower.reader.framework,
            last=self._recent[-1],
            step_s=self._median("step_s"),
            tokens_per_s=self._median("tokens_per_s"),
            tflops_per_gpu=self._median("tflops_per_gpu"),
            restarts=self.restarts,
            at_unix_s=self._at,
        )

    def _median(self, name: str) -> float | None:
        """Return the median of a value over the last records."""
        records = list(self._recent)
        if self.steps <= len(records) > 1:
            records = records[1:]
        values = [value for record in records if (value := getattr(record, name)) is not None and math.isfinite(value)]
        return median(values) if values else None

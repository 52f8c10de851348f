"""What does a run come to: medians over its steady state, stalls, restarts, where it stands?

Steady state is everything but the warm-up of each start: the first record, which holds start-up, and those right after
it that take more than half as long again as the median of all (compilation, growing caches, batch-size tests), at most
a quarter of the records. Stalls, steps of more than three times the median, stay in the median, which they hardly move;
they are counted, with the time that they took too long.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from opsk.telemetry.progress.records import StepRecord

RATES = ("step_s", "tokens_per_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "samples_per_s")
SLOW_START, STALL = 1.5, 3.0
_WARM_UP_SHARE = 0.25
_STALLS_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """A record whose steps took far longer than the median."""

    iteration: int | None
    step_s: float
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """The steady state of a run.

    Parameters
    ----------
    medians
        By name of `RATES`; ``None`` where no record says.
    records, warm_up_records
        How many records there are, and how many of them are warm-up.
    stalls, stall_count, stalled_s
        The first stalls, how many there are, and the time that all of them took beyond the median [s].
    spread
        Half the distance between the quartiles of step times, over their median [ratio].
    """

    medians: dict[str, float | None]
    records: int
    warm_up_records: int
    stalls: tuple[Stall, ...]
    stall_count: int
    stalled_s: float
    spread: float | None


class Tally:
    """Adds records up: a few numbers a record are kept."""

    def __init__(self) -> None:
        self.first: StepRecord | None = None
        self.last: StepRecord | None = None
        self.peak_memory_bytes: float | None = None
        self.derived: dict[str, int] = {}
        self._columns = {name: array("d") for name in RATES}
        self._iterations = array("q")
        self._generations = array("l")

    def __len__(self) -> int:
        """Return how many records were added."""
        return len(self._iterations)

    def add(self, record: StepRecord) -> None:
        """Add a record."""
        if self.first is None or (self.first.iteration is None and record.iteration is not None):
            self.first = record
        if record.iteration is not None or self.last is None or self.last.iteration is None:
            self.last = record
        for name in RATES:
            value = getattr(record, name)
            self._columns[name].append(math.nan if value is None else value)
        self._iterations.append(-1 if record.iteration is None else record.iteration)
        self._generations.append(record.generation)
        for name in record.derived:
            self.derived[name] = self.derived.get(name, 0) + 1
        if record.memory_bytes is not None:
            self.peak_memory_bytes = max(self.peak_memory_bytes or 0.0, record.memory_bytes)

    def step_times(self) -> Sequence[float]:
        """Return the step times of all records; NaN where there is none."""
        return self._columns["step_s"]

    def steady(self, *, skip_warm_up: bool = True) -> Steady:
        """Return the steady state; without warm-up to skip it is everything."""
        kept = self._kept() if skip_warm_up else list(range(len(self)))
        medians = {name: _median([column[row] for row in kept]) for name, column in self._columns.items()}
        usual, times = medians["step_s"], self._columns["step_s"]
        stalled = [row for row in kept if usual is not None and times[row] > STALL * usual]
        return Steady(
            medians=medians,
            records=len(self),
            warm_up_records=len(self) - len(kept),
            stalls=tuple(self._stall(row) for row in stalled[:_STALLS_SHOWN]),
            stall_count=len(stalled),
            stalled_s=sum((times[row] - (usual or 0.0)) * self._steps_of(row) for row in stalled),
            spread=_spread([times[row] for row in kept], usual),
        )

    def _stall(self, row: int) -> Stall:
        """Return a record as a stall."""
        step = self._iterations[row]
        return Stall(
            iteration=None if step < 0 else step,
            step_s=self._columns["step_s"][row],
            generation=self._generations[row],
        )

    def _steps_of(self, row: int) -> int:
        """Return how many steps a record stands for."""
        if row == 0 or self._generations[row] != self._generations[row - 1]:
            return 1
        return max(self._iterations[row] - self._iterations[row - 1], 1)

    def _kept(self) -> list[int]:
        """Return the rows after the warm-up of each start; all of a run that has nothing else."""
        times, usual = self._columns["step_s"], _median(self._columns["step_s"])
        kept: list[int] = []
        row = 0
        while row < len(self):
            end = row
            while end < len(self) and self._generations[end] == self._generations[row]:
                end += 1
            kept += range(self._steady_from(row, end, times, usual), end)
            row = end
        return kept or list(range(len(self)))

    @staticmethod
    def _steady_from(row: int, end: int, times: Sequence[float], usual: float | None) -> int:
        """Return where the steady state of one start begins."""
        start = row + 1
        most = row + max(1, int((end - row) * _WARM_UP_SHARE))
        while usual is not None and start < most and times[start] > SLOW_START * usual:
            start += 1
        return start


def _known(values: Sequence[float]) -> list[float]:
    return [value for value in values if not math.isnan(value)]


def _median(values: Sequence[float]) -> float | None:
    known = _known(values)
    return median(known) if known else None


def _spread(values: Sequence[float], usual: float | None) -> float | None:
    """Return half the distance between the quartiles, over the median."""
    known = sorted(_known(values))
    if len(known) < 4 or not usual:
        return None
    return (known[(3 * len(known)) // 4] - known[len(known) // 4]) / 2 / usual

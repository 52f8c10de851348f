"""Summarises the records of a run: medians over its steady state, stalls, restarts, and the last step.

Steady state is everything but the warm-up of each start: the first record, which includes start-up, and those right
after it that take more than 1.5 times the median of all (compilation, growing caches, batch-size tests), at most a
quarter of the records. Stalls, steps of more than three times the median, stay in the median, which they hardly move;
they are counted, with their excess time.
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
_MAX_STALLS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """A record whose steps took far longer than the median."""

    iteration: int | None
    step_s: float
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyState:
    """The steady state of a run.

    Parameters
    ----------
    medians
        By name of `RATES`; ``None`` where no record has it.
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
    """Accumulates records; stores a few numbers a record."""

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

    def compute_steady_state(self, *, skip_warm_up: bool = True) -> SteadyState:
        """Return the steady state; without warm-up to skip it is everything."""
        rows = self._steady_rows() if skip_warm_up else list(range(len(self)))
        medians = {name: _median([column[row] for row in rows]) for name, column in self._columns.items()}
        usual, times = medians["step_s"], self._columns["step_s"]
        stalled = [row for row in rows if usual is not None and times[row] > STALL * usual]
        return SteadyState(
            medians=medians,
            records=len(self),
            warm_up_records=len(self) - len(rows),
            stalls=tuple(self._build_stall(row) for row in stalled[:_MAX_STALLS]),
            stall_count=len(stalled),
            stalled_s=sum((times[row] - (usual or 0.0)) * self._count_steps(row) for row in stalled),
            spread=_compute_spread([times[row] for row in rows], usual),
        )

    def _build_stall(self, row: int) -> Stall:
        """Return a record as a stall."""
        step = self._iterations[row]
        return Stall(
            iteration=None if step < 0 else step,
            step_s=self._columns["step_s"][row],
            generation=self._generations[row],
        )

    def _count_steps(self, row: int) -> int:
        """Return how many steps a record stands for."""
        if row == 0 or self._generations[row] != self._generations[row - 1]:
            return 1
        return max(self._iterations[row] - self._iterations[row - 1], 1)

    def _steady_rows(self) -> list[int]:
        """Return the rows after the warm-up of each start; all of a run that has nothing else."""
        times, usual = self._columns["step_s"], _median(self._columns["step_s"])
        rows: list[int] = []
        row = 0
        while row < len(self):
            end = row
            while end < len(self) and self._generations[end] == self._generations[row]:
                end += 1
            rows += range(self._find_steady_start(row, end, times, usual), end)
            row = end
        return rows or list(range(len(self)))

    @staticmethod
    def _find_steady_start(row: int, end: int, times: Sequence[float], usual: float | None) -> int:
        """Return where the steady state of one start begins."""
        start = row + 1
        last_start = row + max(1, int((end - row) * _WARM_UP_SHARE))
        while usual is not None and start < last_start and times[start] > SLOW_START * usual:
            start += 1
        return start


def _drop_nan(values: Sequence[float]) -> list[float]:
    return [value for value in values if not math.isnan(value)]


def _median(values: Sequence[float]) -> float | None:
    known = _drop_nan(values)
    return median(known) if known else None


def _compute_spread(values: Sequence[float], usual: float | None) -> float | None:
    """Return half the distance between the quartiles, over the median."""
    known = sorted(_drop_nan(values))
    if len(known) < 4 or not usual:
        return None
    return (known[(3 * len(known)) // 4] - known[len(known) // 4]) / 2 / usual

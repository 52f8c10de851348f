"""Reads and merges the logs of one run, and summarises them: medians of its steady state, stalls, restarts.

Two logs with the same steps at the same time are of two ranks: their records are merged, and values that one lacks are
taken from the other (torchtitan prints the loss on another rank than the rates when there are pipeline stages). Other
logs follow each other, by their times where they have any, and each is a restart.
"""

from __future__ import annotations

import io
import lzma
import math
import sys
import zlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import IO, cast

from opsk.errors import InputError
from opsk.telemetry.decompression import HEAD_BYTES, open_decompressed
from opsk.telemetry.progress.records import MEASURED, Event, StepRecord
from opsk.telemetry.progress.stream import ProgressReader
from opsk.units import MIB

RATES = ("step_s", "tokens_per_s", "tokens_per_s_per_gpu", "tflops_per_gpu", "samples_per_s")
SLOW_START, STALL = 1.5, 3.0
_WARM_UP_SHARE = 0.25
_MAX_STALLS = 20
STDIN = Path("-")
MAX_RECORDS, MAX_EVENTS = 200_000, 10_000
"""Of one log; the medians count those beyond too."""
_CHUNK_BYTES = MIB


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
    """Accumulates records; stores a few numbers a record.

    Steady state is everything but the warm-up of each start: the first record, which includes start-up, and those right
    after it that take more than 1.5 times the median of all (compilation, growing caches, batch-size tests), at most a
    quarter of the records. Stalls, steps of more than three times the median, stay in the median, which they hardly
    move; they are counted, with their excess time.
    """

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


def skip_warm_up(records: Sequence[StepRecord]) -> Sequence[StepRecord]:
    """Return the records of one start without its warm-up, as `Tally` determines it; of a single record that one."""
    if len(records) < 2:
        return records
    times = [math.nan if record.step_s is None else record.step_s for record in records]
    usual, start = _median(times), 1
    limit = max(1, int(_WARM_UP_SHARE * len(records)))
    while usual is not None and start < limit and times[start] > SLOW_START * usual:
        start += 1
    return records[start:]


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


@dataclass(slots=True, kw_only=True)
class Log:
    """The content of one log."""

    file: str
    framework: str | None = None
    records: list[StepRecord] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    events: list[Event] = field(default_factory=list)
    restarts: int = 0
    duplicates: int = 0
    torn: bool = False
    facts: dict[str, float] = field(default_factory=dict)
    problem: str | None = None

    def add(self, item: StepRecord | Event) -> None:
        """Add an item of a reader."""
        if isinstance(item, StepRecord):
            self.tally.add(item)
            if len(self.records) < MAX_RECORDS:
                self.records.append(item)
        elif len(self.events) < MAX_EVENTS:
            self.events.append(item)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The content of all logs of a run."""

    framework: str | None
    logs: tuple[Log, ...]
    records: tuple[StepRecord, ...]
    tally: Tally
    restarts: int


def read_log(path: Path, *, sequence_tokens: float | None = None, gpus: float | None = None) -> Log:
    """Read one log, plain or compressed; ``-`` is standard input.

    Raises
    ------
    InputError
        It cannot be read at all.
    """
    reader = ProgressReader(str(path), sequence_tokens=sequence_tokens, gpus=gpus)
    log, changes = Log(file=str(path)), 0

    def take(items: Iterator[StepRecord | Event]) -> None:
        nonlocal log, changes
        for item in items:
            if reader.changes != changes:
                changes, log = reader.changes, Log(file=log.file, events=log.events)
            log.add(item)

    problem = None
    try:
        with _open_log(path) as stream:
            while data := stream.read(_CHUNK_BYTES):
                take(reader.feed(data))
    except OSError as error:
        problem = error.strerror or str(error)
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        problem = f"is compressed and damaged: {error}"
    take(reader.finish())
    if problem is not None and not log.records:
        raise InputError(f"{path}: {problem}", hint="choose a log that you may read")
    log.problem = problem
    log.framework, log.restarts, log.duplicates = reader.framework, reader.restarts, reader.duplicates
    log.torn, log.facts = reader.torn, reader.facts
    return log


def _open_log(path: Path) -> IO[bytes]:
    """Return the bytes of a log; its compression is detected by its magic bytes."""
    raw: IO[bytes] = sys.stdin.buffer if path == STDIN else path.open("rb")
    stream = cast("io.BufferedReader", raw if hasattr(raw, "peek") else io.BufferedReader(cast("io.RawIOBase", raw)))
    return open_decompressed(stream, stream.peek(HEAD_BYTES)[:HEAD_BYTES])


def merge_logs(logs: Sequence[Log]) -> Run:
    """Merge the logs of one run."""
    telling = [log for log in logs if log.records]
    if not telling:
        name = next((log.framework for log in logs if log.framework), None)
        return Run(framework=name, logs=tuple(logs), records=(), tally=Tally(), restarts=0)
    if len(telling) == 1:
        only = telling[0]
        return Run(
            framework=only.framework,
            logs=tuple(logs),
            records=tuple(only.records),
            tally=only.tally,
            restarts=only.restarts,
        )
    records: list[StepRecord] = []
    restarts = -1
    for group in _group_by_start(telling):
        base = restarts + 1
        records += [replace(each, generation=each.generation + base) for each in _merge_ranks(group)]
        restarts = base + max(log.restarts for log in group)
    tally = Tally()
    for record in records:
        tally.add(record)
    framework = max(telling, key=lambda log: len(log.tally)).framework
    return Run(framework=framework, logs=tuple(logs), records=tuple(records), tally=tally, restarts=restarts)


def _group_by_start(logs: Sequence[Log]) -> list[list[Log]]:
    """Return the logs by start: those of one start together."""
    begins = [_find_time_range(log) for log in logs]
    ordered = list(logs)
    if all(begin is not None for begin in begins):
        ordered.sort(key=lambda log: (_find_time_range(log) or (0.0, 0.0))[0])
    groups: list[list[Log]] = []
    for log in ordered:
        if groups and any(_is_same_start(log, other) for other in groups[-1]):
            groups[-1].append(log)
        else:
            groups.append([log])
    return groups


def _find_time_range(log: Log) -> tuple[float, float] | None:
    """Return when a log begins and ends."""
    times = [record.at_unix_s for record in log.records if record.at_unix_s is not None]
    return (min(times), max(times)) if times else None


def _is_same_start(first: Log, second: Log) -> bool:
    """Return whether two logs are of two ranks of one start: most steps are in both, at times that overlap."""
    steps = [{record.iteration for record in log.records} for log in (first, second)]
    if 2 * len(steps[0] & steps[1]) < min(map(len, steps)):
        return False
    first_times, second_times = _find_time_range(first), _find_time_range(second)
    return (
        first_times is None
        or second_times is None
        or (first_times[0] <= second_times[1] and second_times[0] <= first_times[1])
    )


def _merge_ranks(logs: Sequence[Log]) -> list[StepRecord]:
    """Return the records of several ranks as one run's; values that the first lacks are taken from the next."""
    merged: dict[tuple[int, int | None, int], StepRecord] = {}
    for log in logs:
        for record in log.records:
            key = (record.generation, record.iteration, record.line if record.iteration is None else 0)
            known = merged.get(key)
            merged[key] = record if known is None else _fill_missing(known, record)
    return sorted(merged.values(), key=lambda record: (record.generation, record.iteration or 0))


def _fill_missing(known: StepRecord, other: StepRecord) -> StepRecord:
    """Return a record with the missing values of another; read values take precedence over derived ones."""
    more = {
        name: getattr(other, name)
        for name in MEASURED
        if getattr(other, name) is not None
        and (getattr(known, name) is None or (name in known.derived and name not in other.derived))
    }
    if not more:
        return known
    derived = tuple(name for name in known.derived if name not in more)
    derived += tuple(name for name in more if name in other.derived)
    return replace(known, derived=derived, **more)

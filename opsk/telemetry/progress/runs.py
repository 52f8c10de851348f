"""Merges the logs of one run: logs of several ranks, and logs of successive starts.

Two logs with the same steps at the same time are of two ranks: their records are merged, and values that one lacks are
taken from the other (torchtitan prints the loss on another rank than the rates when there are pipeline stages). Other
logs follow each other, by their times where they have any, and each is a restart.
"""

from __future__ import annotations

import io
import lzma
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, cast

from opsk.errors import InputError
from opsk.telemetry.decompression import HEAD_BYTES, open_decompressed
from opsk.telemetry.progress.records import MEASURED, Event, StepRecord
from opsk.telemetry.progress.stream import ProgressReader
from opsk.telemetry.progress.tally import Tally
from opsk.units import MIB

STDIN = Path("-")
MAX_RECORDS, MAX_EVENTS = 200_000, 10_000
"""Of one log; the medians count those beyond too."""
_CHUNK_BYTES = MIB


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
        raise InputError(f"{path}: {problem}", hint="name a log that you may read")
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

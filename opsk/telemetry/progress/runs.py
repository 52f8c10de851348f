"""What do the logs of one run say together: of several ranks side by side, or of one start after another?

Two logs that tell of the same steps at the same time are of two ranks: their records are merged, what one does not say
is taken from the other (torchtitan prints the loss on another rank than the rates when there are pipeline stages).
Others follow each other, by their times where they have any, and each is a restart.
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
from opsk.telemetry.compressed import HEAD_BYTES, decompressed
from opsk.telemetry.progress.records import MEASURED, Event, StepRecord
from opsk.telemetry.progress.stream import ProgressReader
from opsk.telemetry.progress.tally import Tally
from opsk.units import MIB

STDIN = Path("-")
MOST_RECORDS, MOST_EVENTS = 200_000, 10_000
"""Of one log; the medians count those beyond too."""
_CHUNK_BYTES = MIB


@dataclass(slots=True, kw_only=True)
class Log:
    """What one log says."""

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

    def add(self, found: StepRecord | Event) -> None:
        """Take what a reader has found."""
        if isinstance(found, StepRecord):
            self.tally.add(found)
            if len(self.records) < MOST_RECORDS:
                self.records.append(found)
        elif len(self.events) < MOST_EVENTS:
            self.events.append(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What all logs of a run say."""

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

    def take(found: Iterator[StepRecord | Event]) -> None:
        nonlocal log, changes
        for each in found:
            if reader.changes != changes:
                changes, log = reader.changes, Log(file=log.file, events=log.events)
            log.add(each)

    problem = None
    try:
        with _opened(path) as stream:
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


def _opened(path: Path) -> IO[bytes]:
    """Return the bytes of a log; what it is compressed with is told by how it begins."""
    raw: IO[bytes] = sys.stdin.buffer if path == STDIN else path.open("rb")
    stream = cast("io.BufferedReader", raw if hasattr(raw, "peek") else io.BufferedReader(cast("io.RawIOBase", raw)))
    return decompressed(stream, stream.peek(HEAD_BYTES)[:HEAD_BYTES])


def joined(logs: Sequence[Log]) -> Run:
    """Return the logs of one run as one."""
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
    for group in _groups(telling):
        base = restarts + 1
        records += [replace(each, generation=each.generation + base) for each in _side_by_side(group)]
        restarts = base + max(log.restarts for log in group)
    tally = Tally()
    for record in records:
        tally.add(record)
    framework = max(telling, key=lambda log: len(log.tally)).framework
    return Run(framework=framework, logs=tuple(logs), records=tuple(records), tally=tally, restarts=restarts)


def _groups(logs: Sequence[Log]) -> list[list[Log]]:
    """Return the logs by start: those of one start together."""
    begins = [_times(log) for log in logs]
    ordered = list(logs)
    if all(begin is not None for begin in begins):
        ordered.sort(key=lambda log: (_times(log) or (0.0, 0.0))[0])
    groups: list[list[Log]] = []
    for log in ordered:
        if groups and any(_same_start(log, other) for other in groups[-1]):
            groups[-1].append(log)
        else:
            groups.append([log])
    return groups


def _times(log: Log) -> tuple[float, float] | None:
    """Return when a log begins and ends."""
    times = [record.at_unix_s for record in log.records if record.at_unix_s is not None]
    return (min(times), max(times)) if times else None


def _same_start(one: Log, other: Log) -> bool:
    """Tell whether two logs are of two ranks of one start: most steps are in both, at times that overlap."""
    steps = [{record.iteration for record in log.records} for log in (one, other)]
    if 2 * len(steps[0] & steps[1]) < min(map(len, steps)):
        return False
    mine, theirs = _times(one), _times(other)
    return mine is None or theirs is None or (mine[0] <= theirs[1] and theirs[0] <= mine[1])


def _side_by_side(logs: Sequence[Log]) -> list[StepRecord]:
    """Return the records of several ranks as one run's; what the first does not say the next may."""
    found: dict[tuple[int, int | None, int], StepRecord] = {}
    for log in logs:
        for record in log.records:
            key = (record.generation, record.iteration, record.line if record.iteration is None else 0)
            known = found.get(key)
            found[key] = record if known is None else _filled(known, record)
    return sorted(found.values(), key=lambda record: (record.generation, record.iteration or 0))


def _filled(known: StepRecord, other: StepRecord) -> StepRecord:
    """Return a record with what another says in addition; what is read counts more than what is computed."""
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

"""What do many logs say together? Read side by side by a few processes, each log in constant memory."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from functools import partial
from multiprocessing import get_context
from pathlib import Path, PurePath

from opsk.errors import InputError
from opsk.postmortem.logs.kernel import kernel_signs, looks_like_kernel_log
from opsk.postmortem.logs.names import nodes_of
from opsk.postmortem.logs.pieces import BROKEN, opened, taken
from opsk.postmortem.logs.scanning import LogScan, scan_log
from opsk.postmortem.values import Evidence, Origin, RankProgress, Sign
from opsk.spawning import safe_imports
from opsk.units import KIB, MIB

_NUMBER = re.compile(r"(?<!\d)(\d{1,6})(?!.*\d)")
_LEAST_TELLING = 2


def with_numbered_ranks(
    signs: Sequence[Sign], ranks: Sequence[RankProgress]
) -> tuple[tuple[Sign, ...], tuple[RankProgress, ...]]:
    """Return signs and progress with the ranks of logs whose lines tell none: a silent rank is often the cause."""
    told: dict[str, set[int]] = {each.source: set() for each in ranks}
    for each in ranks:
        told[each.source] |= {each.rank} if each.rank is not None else set()
    for sign in signs:
        if sign.origin is Origin.JOB_LOG and sign.place.rank is not None and sign.source in told:
            told[sign.source].add(sign.place.rank)
    number = {source: int(found[1]) for source in told if (found := _NUMBER.search(PurePath(source).name)) is not None}
    telling = [source for source, those in told.items() if those]
    agree = len(telling) >= _LEAST_TELLING and all(told[source] == {number.get(source)} for source in telling)
    silent = {source: rank for source, rank in number.items() if not told[source]}
    if not agree or len(telling) < len(silent) or len(set(number.values())) < len(told):
        return tuple(signs), tuple(ranks)
    return (
        tuple(
            replace(sign, place=replace(sign.place, rank=silent[sign.source]))
            if sign.source in silent and sign.origin is Origin.JOB_LOG
            else sign
            for sign in signs
        ),
        tuple(replace(each, rank=silent[each.source]) if each.source in silent else each for each in ranks),
    )


_DATED_BYTES = 16 * KIB
_ISO = re.compile(
    rb"(?m)(?:^[^\n]{0,48}?|CANCELLED AT )(?P<date>20\d\d-[01]\d-[0-3]\d)[T _](?P<time>[0-2]\d:[0-5]\d:[0-5]\d)"
)
_CTIME = re.compile(
    rb"(?m)^[^\n]{0,24}?\[?[A-Z][a-z]{2} (?P<date>[A-Z][a-z]{2} [ \d]\d) (?P<time>[0-2]\d:[0-5]\d:[0-5]\d)"
    rb" (?P<year>20\d\d)"
)
_HALF_A_YEAR_S = 183 * 86400.0


def stated_end_s(paths: Iterable[Path]) -> float | None:
    """Return a time after which no line was written, by the dates in logs that tell the year; ``None`` without any.

    Half a year behind the last of them: enough to tell the year of what has none, and no run is in doubt for so long.
    """
    latest = max((at for path in paths for at in _stated(path)), default=None)
    return latest + _HALF_A_YEAR_S if latest is not None else None


def _stated(path: Path) -> list[float]:
    """Return the times with a year at the beginning and the end of a log [s since 1970], zones aside."""
    data = _ends(path)
    found = [(each["date"] + b" " + each["time"], "%Y-%m-%d %H:%M:%S") for each in _ISO.finditer(data)][-64:]
    found += [
        (each["year"] + b" " + each["date"] + b" " + each["time"], "%Y %b %d %H:%M:%S")
        for each in _CTIME.finditer(data)
    ][-64:]
    times = []
    for text, form in found:
        try:
            times.append(datetime.strptime(text.decode("ascii"), form).replace(tzinfo=UTC).timestamp())
        except ValueError:
            continue
    return times


def _ends(path: Path) -> bytes:
    """Return the first and the last bytes of a log; of a compressed one the first."""
    try:
        with opened(path) as stream:
            start, _ = taken(stream, _DATED_BYTES)
        with path.open("rb") as raw:
            if raw.read(2) != start[:2]:
                return start
            raw.seek(max(0, os.fstat(raw.fileno()).st_size - _DATED_BYTES))
            return start + b"\n" + raw.read(_DATED_BYTES)
    except (InputError, *BROKEN):
        return b""


MOST_PROCESSES = 8
_START_PAYS_BYTES = 64 * MIB
"""Below this a second process takes longer to start than it saves."""
_LOOKED_AT_BYTES = 64 * KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFile:
    """One log to read.

    Parameters
    ----------
    path
        Where it lies.
    kind
        ``job`` for the output of a job, ``kernel`` for a node's kernel log or journal, ``""`` to tell by its form.
    node
        The node it comes from, where neither name nor lines tell.
    """

    path: Path
    kind: str = ""
    node: str = ""


def read_logs(
    logs: Sequence[LogFile], *, processes: int | None = None, not_after_s: float | None = None,
    zone: tzinfo | None = None, told: Callable[[int, int], None] | None = None,
) -> Evidence:  # fmt: skip
    """Return what logs say; one that cannot be read is listed, and keeps no other from being read.

    Parameters
    ----------
    processes
        How many read side by side; by default as many as there are processors, and one for little.
    not_after_s
        When the job ended [s since 1970]; each file's own time where ``None``.
    zone
        Zone of clocks that state none; UTC where ``None``.
    told
        Is called with the number of logs read so far, and of all.
    """
    stated_s = stated_end_s(log.path for log in logs) if not_after_s is None else None
    read = partial(_read_one, not_after_s=not_after_s, stated_s=stated_s, zone=zone)
    named = nodes_of([str(log.path) for log in logs])
    logs = [log if log.node else replace(log, node=named.get(str(log.path), "")) for log in logs]
    count = processes if processes is not None else _processes(logs)
    scans: list[LogScan] = []
    if count > 1:
        with safe_imports(), ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
            _take(pool.map(read, logs, chunksize=max(1, min(8, len(logs) // (4 * count)))), scans, len(logs), told)
    else:
        _take(map(read, logs), scans, len(logs), told)
    return _evidence(scans)


def _take(found: Iterable[LogScan], scans: list[LogScan], number: int, told: Callable[[int, int], None] | None) -> None:
    """Collect scans as they come."""
    for scan in found:
        scans.append(scan)
        if told is not None:
            told(len(scans), number)


def _processes(logs: Sequence[LogFile]) -> int:
    """Return how many processes are worth their start."""
    size = 0
    for log in logs:
        try:
            size += log.path.stat().st_size
        except OSError:
            continue
    if size < _START_PAYS_BYTES or len(logs) < 2:
        return 1
    return min(MOST_PROCESSES, len(os.sched_getaffinity(0)), len(logs))


def _read_one(log: LogFile, *, not_after_s: float | None, stated_s: float | None, zone: tzinfo | None) -> LogScan:
    """Read one log; what is wrong with it is its problem."""
    try:
        with opened(log.path) as stream:
            start, _ = taken(stream, _LOOKED_AT_BYTES)
            written_s = not_after_s if not_after_s is not None else log.path.stat().st_mtime
        written_s = min(written_s, stated_s) if stated_s is not None else written_s
        if log.kind == "kernel" or (not log.kind and looks_like_kernel_log(start)):
            signs, problem = kernel_signs(log.path, node=log.node, not_after_s=written_s, zone=zone)
            return LogScan(path=str(log.path), signs=signs, bytes=log.path.stat().st_size, problem=problem)
        return scan_log(log.path, node=log.node, not_after_s=written_s, zone=zone)
    except InputError as error:
        return LogScan(path=str(log.path), problem=error.message)
    except BROKEN as error:
        return LogScan(path=str(log.path), problem=f"{log.path}: damaged: {error}")


def _evidence(scans: Sequence[LogScan]) -> Evidence:
    """Return what all scans say together."""
    problems = [scan.problem for scan in scans if scan.problem]
    problems += [f"{scan.path}: {scan.left_out} further signs left out" for scan in scans if scan.left_out]
    job = [scan for scan in scans if scan.ranks]
    kernel = [scan for scan in scans if not scan.ranks and (scan.signs or not scan.problem)]
    gathered = {}
    if job:
        gathered["logs"] = f"{len(job)} logs, {sum(scan.bytes for scan in job)} bytes"
    if kernel:
        gathered["kernel_log"] = f"{len(kernel)} logs"
    signs, ranks = with_numbered_ranks(
        [sign for scan in scans for sign in scan.signs], [rank for scan in scans for rank in scan.ranks]
    )
    return Evidence(
        signs=signs,
        ranks=ranks,
        gathered=gathered,
        unreadable=tuple(problems),
    )

"""Reads many logs in a few parallel processes, each log in constant memory, and merges the results."""

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
from opsk.postmortem.logs.header import parse_nodes
from opsk.postmortem.logs.kernel import is_kernel_log, scan_kernel_log
from opsk.postmortem.logs.pieces import BROKEN, open_log, read_bytes
from opsk.postmortem.logs.scanning import LogScan, scan_log
from opsk.postmortem.values import Evidence, Finding, Origin, RankProgress
from opsk.spawning import safe_imports
from opsk.units import KIB, MIB

_NUMBER = re.compile(r"(?<!\d)(\d{1,6})(?!.*\d)")
_MIN_NUMBERED = 2


def with_numbered_ranks(
    findings: Sequence[Finding], ranks: Sequence[RankProgress]
) -> tuple[tuple[Finding, ...], tuple[RankProgress, ...]]:
    """Return findings and progress with ranks for logs that state none: a silent rank is often the cause."""
    ranks_by_source: dict[str, set[int]] = {each.source: set() for each in ranks}
    for each in ranks:
        ranks_by_source[each.source] |= {each.rank} if each.rank is not None else set()
    for finding in findings:
        if finding.origin is Origin.JOB_LOG and finding.place.rank is not None and finding.source in ranks_by_source:
            ranks_by_source[finding.source].add(finding.place.rank)
    number = {
        source: int(match[1])
        for source in ranks_by_source
        if (match := _NUMBER.search(PurePath(source).name)) is not None
    }
    numbered = [source for source, those in ranks_by_source.items() if those]
    agree = len(numbered) >= _MIN_NUMBERED and all(
        ranks_by_source[source] == {number.get(source)} for source in numbered
    )
    silent = {source: rank for source, rank in number.items() if not ranks_by_source[source]}
    if not agree or len(numbered) < len(silent) or len(set(number.values())) < len(ranks_by_source):
        return tuple(findings), tuple(ranks)
    return (
        tuple(
            replace(finding, place=replace(finding.place, rank=silent[finding.source]))
            if finding.source in silent and finding.origin is Origin.JOB_LOG
            else finding
            for finding in findings
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


def find_stated_end_s(paths: Iterable[Path]) -> float | None:
    """Return a time after which no line was written, from dates with a year in logs; ``None`` without any.

    Half a year after the last of them: enough to determine a missing year, and longer than any run is in doubt.
    """
    latest = max((at for path in paths for at in _find_stated(path)), default=None)
    return latest + _HALF_A_YEAR_S if latest is not None else None


def _find_stated(path: Path) -> list[float]:
    """Return the times with a year at the beginning and the end of a log [s since 1970], zones aside."""
    data = _read_ends(path)
    texts = [(match["date"] + b" " + match["time"], "%Y-%m-%d %H:%M:%S") for match in _ISO.finditer(data)][-64:]
    texts += [
        (match["year"] + b" " + match["date"] + b" " + match["time"], "%Y %b %d %H:%M:%S")
        for match in _CTIME.finditer(data)
    ][-64:]
    times = []
    for text, form in texts:
        try:
            times.append(datetime.strptime(text.decode("ascii"), form).replace(tzinfo=UTC).timestamp())
        except ValueError:
            continue
    return times


def _read_ends(path: Path) -> bytes:
    """Return the first and the last bytes of a log; of a compressed one the first."""
    try:
        with open_log(path) as stream:
            start, _ = read_bytes(stream, _DATED_BYTES)
        with path.open("rb") as raw:
            if raw.read(2) != start[:2]:
                return start
            raw.seek(max(0, os.fstat(raw.fileno()).st_size - _DATED_BYTES))
            return start + b"\n" + raw.read(_DATED_BYTES)
    except (InputError, *BROKEN):
        return b""


MAX_PROCESSES = 8
_START_PAYS_BYTES = 64 * MIB
"""Below this a second process takes longer to start than it saves."""
_SNIFFED_BYTES = 64 * KIB
_STRANGE_SHARE = 0.1
"""A file with more bytes than this that are no text is no log [ratio]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFile:
    """One log to read.

    Parameters
    ----------
    path
        Path of the log.
    kind
        ``job`` for the output of a job, ``kernel`` for a node's kernel log or journal, ``""`` to detect it by its form.
    node
        The node it comes from, where neither name nor lines state it.
    """

    path: Path
    kind: str = ""
    node: str = ""


def read_logs(
    logs: Sequence[LogFile], *, processes: int | None = None, not_after_s: float | None = None,
    zone: tzinfo | None = None, progress: Callable[[int, int], None] | None = None,
) -> Evidence:  # fmt: skip
    """Return the evidence in logs; one that cannot be read is listed, and the others are read all the same.

    Parameters
    ----------
    processes
        How many read side by side; by default as many as there are processors, and one for little.
    not_after_s
        When the job ended [s since 1970]; each file's own time where ``None``.
    zone
        Zone of clocks that state none; UTC where ``None``.
    progress
        Is called with the number of logs read so far, and of all.
    """
    stated_s = find_stated_end_s(log.path for log in logs) if not_after_s is None else None
    read = partial(_read_log, not_after_s=not_after_s, stated_s=stated_s, zone=zone)
    named = parse_nodes([str(log.path) for log in logs])
    logs = [log if log.node else replace(log, node=named.get(str(log.path), "")) for log in logs]
    count = processes if processes is not None else _count_processes(logs)
    scans: list[LogScan] = []
    if count > 1:
        with safe_imports(), ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
            _collect(
                pool.map(read, logs, chunksize=max(1, min(8, len(logs) // (4 * count)))), scans, len(logs), progress
            )
    else:
        _collect(map(read, logs), scans, len(logs), progress)
    return _merge_scans(scans)


def _collect(
    results: Iterable[LogScan], scans: list[LogScan], number: int, progress: Callable[[int, int], None] | None
) -> None:
    """Collect scans as they come."""
    for scan in results:
        scans.append(scan)
        if progress is not None:
            progress(len(scans), number)


def _count_processes(logs: Sequence[LogFile]) -> int:
    """Return how many processes are worth their start."""
    size = 0
    for log in logs:
        try:
            size += log.path.stat().st_size
        except OSError:
            continue
    if size < _START_PAYS_BYTES or len(logs) < 2:
        return 1
    return min(MAX_PROCESSES, len(os.sched_getaffinity(0)), len(logs))


def _read_log(log: LogFile, *, not_after_s: float | None, stated_s: float | None, zone: tzinfo | None) -> LogScan:
    """Read one log; errors become its problem."""
    try:
        with open_log(log.path) as stream:
            start, _ = read_bytes(stream, _SNIFFED_BYTES)
            written_s = not_after_s if not_after_s is not None else log.path.stat().st_mtime
        written_s = min(written_s, stated_s) if stated_s is not None else written_s
        if log.kind == "kernel" or (not log.kind and is_kernel_log(start)):
            findings, problem, note = scan_kernel_log(log.path, node=log.node, not_after_s=written_s, zone=zone)
            return LogScan(
                path=str(log.path), findings=findings, bytes=log.path.stat().st_size, problem=problem, note=note
            )
        scan = scan_log(log.path, node=log.node, not_after_s=written_s, zone=zone)
        return scan if scan.problem or scan.findings else replace(scan, problem=_find_doubt(log.path, start))
    except InputError as error:
        return LogScan(path=str(log.path), problem=error.message)
    except BROKEN as error:
        return LogScan(path=str(log.path), problem=f"{log.path}: damaged: {error}")


def _find_doubt(path: Path, start: bytes) -> str:
    """Return why a log can say nothing; empty where it is text."""
    if not start.strip(b"\x00\r\n "):
        return f"{path}: empty"
    strange = start.count(b"\x00") + start.decode("utf-8", "replace").count("\ufffd")
    return f"{path}: no text: name the log itself" if strange > _STRANGE_SHARE * len(start) else ""


def _merge_scans(scans: Sequence[LogScan]) -> Evidence:
    """Merge the scans of all logs."""
    problems = [scan.problem for scan in scans if scan.problem]
    problems += [f"{scan.path}: {scan.left_out} further signs left out" for scan in scans if scan.left_out]
    job = [scan for scan in scans if scan.ranks]
    kernel = [scan for scan in scans if not scan.ranks and (scan.findings or not scan.problem)]
    gathered = {}
    if job:
        gathered["logs"] = f"{len(job)} logs, {sum(scan.bytes for scan in job)} bytes"
    if kernel:
        gathered["kernel_log"] = f"{len(kernel)} logs"
    findings, ranks = with_numbered_ranks(
        [finding for scan in scans for finding in scan.findings], [rank for scan in scans for rank in scan.ranks]
    )
    return Evidence(
        findings=findings,
        ranks=ranks,
        gathered=gathered,
        unreadable=tuple(problems),
        notes=tuple(scan.note for scan in scans if scan.note),
    )

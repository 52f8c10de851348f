"""What do many logs say together? Read side by side by a few processes, each log in constant memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from datetime import tzinfo
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from opsk.errors import InputError
from opsk.postmortem.logs.dating import stated_end_s
from opsk.postmortem.logs.kernel import kernel_signs, looks_like_kernel_log
from opsk.postmortem.logs.names import nodes_of
from opsk.postmortem.logs.numbering import with_numbered_ranks
from opsk.postmortem.logs.pieces import BROKEN, opened, taken
from opsk.postmortem.logs.scanning import LogScan, scan_log
from opsk.postmortem.values import Evidence
from opsk.spawning import safe_imports
from opsk.units import KIB, MIB

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

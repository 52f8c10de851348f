"""Reports jobs that ended with their nodes and have no report, by asking Slurm's accounting.

An epilog that never ran leaves nothing in any spool. One host asks the accounting at intervals for jobs that Slurm
gave up with their nodes since the last time, and reports those that have no report. Its own spool keeps how far it
came, by cluster: a scan that is ended early, or that finds too many jobs, is continued by the next one.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from opsk.errors import InputError
from opsk.job_key import JobKey, cluster_part
from opsk.postmortem.evidence.index import JSON_REPORT
from opsk.postmortem.evidence.node_files import list_job_folders, write_atomically
from opsk.slurm.commands.accounting import AccountedRun, AccountingClient

STATES = ("NODE_FAIL", "BOOT_FAIL")
MAX_LOOKBACK_S = 86400.0
"""No scan goes back farther than this [s]; the first one goes this far."""
OVERLAP_S = 3600.0
"""Each scan overlaps the previous one by this [s]: Slurm may record an end late, and a report may fail."""
GRACE_S = 600.0
"""Living nodes have this long to report themselves [s]."""
MAX_REPORTS = 32
MAX_SCAN_S = 240.0
SCAN_INTERVAL_S = 240.0

Reporter = Callable[[JobKey], object]
"""Writes the report on one job, by Slurm's own number of it."""


@dataclass(slots=True, kw_only=True)
class ScanResult:
    """The result of a scan: jobs that have a report now, and problems; ``due`` is false where it was too early."""

    due: bool = True
    reported: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    left: int = 0


def report_missed(
    folder: Path, spool: Path, accounting: AccountingClient, report: Reporter, *,
    clock: Callable[[], float] = time.time, grace_s: float = GRACE_S, cluster: str = "",
) -> ScanResult:  # fmt: skip
    """Have reports written on jobs that ended with their nodes and have none.

    Parameters
    ----------
    cluster
        Cluster whose accounting is queried: a host may scan several, each of which has its own progress.

    Raises
    ------
    InputError
        The spool cannot be used, or another scan is running.
    SlurmError
        The accounting does not answer; the next scan covers the same time.
    """
    now_s, state = clock(), state_path(spool, cluster)
    with _hold_lock(spool, cluster):
        last = _read_progress(state)
        if last is not None and 0 <= now_s - last.at_s < SCAN_INTERVAL_S:
            return ScanResult(due=False)
        from_s = max(now_s - MAX_LOOKBACK_S, (last.until_s if last is not None else 0.0) - OVERLAP_S)
        until_s = now_s - grace_s
        ended = [(_key(run, cluster), run) for run in accounting.list_ended(STATES, from_s, until_s)]
        runs = [(key, run) for key, run in ended if _lacks_report(key, run, folder, until_s)]
        result = ScanResult()
        for key, run in runs:
            if len(result.reported) + len(result.problems) >= MAX_REPORTS or clock() - now_s > MAX_SCAN_S:
                result.left = len(runs) - len(result.reported) - len(result.problems)
                until_s = (run.end_s or until_s) - 1.0
                break
            _report_run(key, run, report, result)
        _write_progress(state, _Progress(at_s=now_s, until_s=until_s))
    return result


def state_path(spool: Path, cluster: str) -> Path:
    """Return the file with the progress of the scans of a cluster's accounting."""
    return spool / (f"missed-{cluster_part(cluster)}.json" if cluster else "missed.json")


def _key(run: AccountedRun, cluster: str) -> JobKey:
    return JobKey(cluster=run.cluster or cluster, job=str(run.id))


def _report_run(key: JobKey, run: AccountedRun, report: Reporter, result: ScanResult) -> None:
    """Report on one job; whatever goes wrong is that job's problem."""
    try:
        report(key)
    except Exception as error:  # noqa: BLE001 - the other jobs are to have their reports
        result.problems.append(f"job {run.label}: {error}")
    else:
        result.reported.append(run.label)


def _lacks_report(key: JobKey, run: AccountedRun, folder: Path, until_s: float) -> bool:
    """Return whether there is no report on a run since it ended."""
    if run.end_s is None or run.end_s > until_s or not run.nodes:
        return False
    for job_folder in list_job_folders(folder, key):
        try:
            if (job_folder / JSON_REPORT).stat().st_mtime >= run.end_s:
                return False
        except OSError:
            continue
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Progress:
    """The time of a scan, and the time up to which jobs were scanned [s since 1970]."""

    at_s: float
    until_s: float


@contextmanager
def _hold_lock(spool: Path, cluster: str) -> Iterator[None]:
    """Lock the spool against another scan of a cluster."""
    try:
        spool.mkdir(parents=True, exist_ok=True, mode=0o750)
        name = f".{state_path(spool, cluster).stem}.lock"
        handle = os.open(spool / name, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o640)
    except OSError as error:
        raise InputError(f"{spool}: {error.strerror}", hint="[postmortem] spool in opsk.toml") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise InputError(f"{spool}: another look for missed jobs goes on") from error
    finally:
        os.close(handle)


def _read_progress(path: Path) -> _Progress | None:
    """Return the progress of the last scan; ``None`` where none is known."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return _Progress(at_s=float(document["at_s"]), until_s=float(document["until_s"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _write_progress(path: Path, progress: _Progress) -> None:
    """Write the progress of this scan.

    Raises
    ------
    InputError
        That cannot be written.
    """
    try:
        write_atomically(path, json.dumps({"at_s": progress.at_s, "until_s": progress.until_s}))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", hint="[postmortem] spool in opsk.toml") from error


def format_messages(result: ScanResult) -> Sequence[str]:
    """Return the messages about a scan."""
    more = [f"{result.left} more jobs without a report are left for the next time"] if result.left else []
    return [*result.problems, *more]

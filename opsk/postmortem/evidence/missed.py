"""Which jobs ended without a report, for no node of theirs was left to make one? Slurm's accounting knows.

An epilog that never ran leaves nothing in any spool. One host asks the accounting, now and then, for jobs that Slurm
gave up with their nodes since it last asked, and reports on those that have no report. How far it came stands in its
own spool, by cluster: a look that is ended early, or that finds too much, is gone on with by the next one.
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
from opsk.postmortem.evidence.node_files import folders_of_job, write_whole
from opsk.slurm.commands.accounting import AccountedRun, AccountingClient

STATES = ("NODE_FAIL", "BOOT_FAIL")
FIRST_LOOK_S = 86400.0
"""The first look goes so far back, and no later one goes farther."""
AGAIN_S = 3600.0
"""Each look asks for so long before the last one again: Slurm may write down an end late, and a report may fail."""
GRACE_S = 600.0
"""Nodes that live have so long to report themselves."""
MOST_REPORTS = 32
MOST_S = 240.0
EVERY_S = 240.0

Reporter = Callable[[JobKey], object]
"""Writes the report on one job, by Slurm's own number of it."""


@dataclass(slots=True, kw_only=True)
class Looked:
    """What a look did: jobs that have a report now, and what could not be done; ``due`` is false where it was early."""

    due: bool = True
    reported: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    left: int = 0


def report_missed(
    folder: Path, spool: Path, accounting: AccountingClient, report: Reporter, *,
    clock: Callable[[], float] = time.time, grace_s: float = GRACE_S, cluster: str = "",
) -> Looked:  # fmt: skip
    """Have reports written on jobs that ended with their nodes and have none.

    Parameters
    ----------
    cluster
        Whose accounting is asked: a host may look for several, each of which has a time up to which it was looked at.

    Raises
    ------
    InputError
        The spool cannot be used, or another look goes on.
    SlurmError
        The accounting does not answer; the next look asks for the same time.
    """
    now_s, state = clock(), state_path(spool, cluster)
    with _alone(spool, cluster):
        last = _last(state)
        if last is not None and 0 <= now_s - last.at_s < EVERY_S:
            return Looked(due=False)
        from_s = max(now_s - FIRST_LOOK_S, (last.until_s if last is not None else 0.0) - AGAIN_S)
        until_s = now_s - grace_s
        ended = [(_key(run, cluster), run) for run in accounting.ended(STATES, from_s, until_s)]
        runs = [(key, run) for key, run in ended if _lacks_report(key, run, folder, until_s)]
        done = Looked()
        for key, run in runs:
            if len(done.reported) + len(done.problems) >= MOST_REPORTS or clock() - now_s > MOST_S:
                done.left = len(runs) - len(done.reported) - len(done.problems)
                until_s = (run.end_s or until_s) - 1.0
                break
            _one(key, run, report, done)
        _remember(state, _Look(at_s=now_s, until_s=until_s))
    return done


def state_path(spool: Path, cluster: str) -> Path:
    """Return where it stands how far the looks at a cluster's accounting came."""
    return spool / (f"missed-{cluster_part(cluster)}.json" if cluster else "missed.json")


def _key(run: AccountedRun, cluster: str) -> JobKey:
    return JobKey(cluster=run.cluster or cluster, job=str(run.id))


def _one(key: JobKey, run: AccountedRun, report: Reporter, done: Looked) -> None:
    """Report on one job; whatever goes wrong is that job's problem."""
    try:
        report(key)
    except Exception as error:  # noqa: BLE001 - the other jobs are to have their reports
        done.problems.append(f"job {run.label}: {error}")
    else:
        done.reported.append(run.label)


def _lacks_report(key: JobKey, run: AccountedRun, folder: Path, until_s: float) -> bool:
    """Tell whether nobody has reported on a run since it ended."""
    if run.end_s is None or run.end_s > until_s or not run.nodes:
        return False
    for each in folders_of_job(folder, key):
        try:
            if (each / JSON_REPORT).stat().st_mtime >= run.end_s:
                return False
        except OSError:
            continue
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """When it was, and up to which time jobs were looked at [s since 1970]."""

    at_s: float
    until_s: float


@contextmanager
def _alone(spool: Path, cluster: str) -> Iterator[None]:
    """Hold the spool against another look at a cluster."""
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


def _last(path: Path) -> _Look | None:
    """Return the last look; ``None`` where none is known."""
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        return _Look(at_s=float(said["at_s"]), until_s=float(said["until_s"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _remember(path: Path, look: _Look) -> None:
    """Write down how far this look came.

    Raises
    ------
    InputError
        That cannot be written.
    """
    try:
        write_whole(path, json.dumps({"at_s": look.at_s, "until_s": look.until_s}))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", hint="[postmortem] spool in opsk.toml") from error


def told(looked: Looked) -> Sequence[str]:
    """Return what is to be said of a look."""
    more = [f"{looked.left} more jobs without a report are left for the next time"] if looked.left else []
    return [*looked.problems, *more]

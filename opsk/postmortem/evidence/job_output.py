"""Where did a job write? By what Slurm tells, and beside it: files of its user whose names have the job's number.

Only regular files are named, never through a link, by root only those of the job's own user. What was last written
before the job began is of another job with this number, as other clusters have.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from opsk.postmortem.values import JobFacts
from opsk.telemetry.jobs.job_files import JobFile
from opsk.telemetry.jobs.job_logs import told_logs

MOST_FILES = 4096
SLACK_S = 300.0
"""Clocks of storage and nodes differ by less."""
_MOST_ENTRIES = 100_000
_LOG_ENDS = frozenset(("", ".out", ".err", ".log", ".txt", ".stdout", ".stderr", ".output", ".gz", ".xz", ".bz2"))


def told_paths(facts: JobFacts, *, work_dir: str, std_out: str, std_err: str) -> tuple[Path, ...]:
    """Return where the batch script wrote, by what Slurm tells; whether it is there is not asked."""
    label = facts.job_id
    number = re.match(r"\d+", label)
    if number is None:
        return ()
    file = JobFile(
        job_id=number[0], user=facts.user or None, name=facts.name or None,
        node=facts.nodes[0] if facts.nodes else None, work_dir=work_dir or None, stdout=std_out or None,
        stderr=std_err or None, written_unix_s=0.0,
    )  # fmt: skip
    return told_logs(file, label, facts.name or None)


def output_files(
    told: Iterable[Path], job_id: str, uid: int | None, *, since_s: float | None = None
) -> tuple[Path, ...]:
    """Return the files that are there: those told, and what beside them has the job's number in its name.

    Parameters
    ----------
    since_s
        When the job began [s since 1970]; ``None`` where nobody tells.
    """
    told = tuple(dict.fromkeys(told))
    found: dict[Path, None] = dict.fromkeys(path for path in told if is_readable_file(path, uid))
    number = re.match(r"\d+", job_id)
    if number is None:
        return tuple(found)
    own = re.compile(rf"(?:^|[^0-9A-Za-z])(?:job|jobid|slurm|id|j)?{number[0]}(?![0-9A-Za-z])", re.IGNORECASE)
    for folder in dict.fromkeys(path.parent for path in told):
        for name in _names(folder):
            path = folder / name
            if not own.search(name) or path.suffix not in _LOG_ENDS or path in found:
                continue
            if is_readable_file(path, uid, written_since_s=since_s and since_s - SLACK_S):
                found[path] = None
            if len(found) >= MOST_FILES:
                return tuple(found)
    return tuple(found)


def _names(folder: Path) -> list[str]:
    """Return some names in a folder, sorted; none where it cannot be listed."""
    names: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                names.append(entry.name)
                if len(names) >= _MOST_ENTRIES:
                    break
    except OSError:
        return []
    return sorted(names)


def is_readable_file(path: Path, uid: int | None, *, written_since_s: float | None = None) -> bool:
    """Tell whether this is a regular file, no link, that the caller may read; by root, one of the job's user."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return False
    try:
        facts = os.fstat(handle)
    finally:
        os.close(handle)
    is_own = os.geteuid() != 0 or uid is None or facts.st_uid == uid
    return stat.S_ISREG(facts.st_mode) and is_own and facts.st_mtime >= (written_since_s or 0.0)

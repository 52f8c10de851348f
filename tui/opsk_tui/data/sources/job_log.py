"""Reads the last lines of a job's log with the caller's own rights, at most 64 KiB."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

from opsk.errors import InputError
from opsk.slurm.records import JobRecord
from opsk.telemetry.jobs.job_files import JobFile, resolve_log_paths
from opsk.units import KIB

TAIL_BYTES = 64 * KIB
MAX_LINES = 400


def log_path(job: JobRecord) -> Path | None:
    """Return the output file of a job's batch script, from its Slurm record; ``None`` where it is unknown."""
    file = JobFile(
        job_id=str(job.id),
        user=job.user,
        name=job.name,
        node=job.nodes[0] if job.nodes else None,
        work_dir=job.work_dir,
        stdout=job.std_out,
        stderr=job.std_err,
        written_unix_s=0.0,
    )
    logs = resolve_log_paths(file, job.label, job.name)
    return logs[0] if logs else None


def log_tail(path: Path, owner: str) -> tuple[str, ...]:
    """Return the last lines of a log; hostile text, unchanged.

    The kernel decides whether the caller may read it. root may read everything: for root only a file of the job's own
    user is read, so that no user can make root show another user's file.

    Raises
    ------
    InputError
        It cannot be read, is no regular file, or is another user's.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    facts = os.fstat(handle)
    if not stat.S_ISREG(facts.st_mode):
        os.close(handle)
        raise InputError(f"{path}: no regular file")
    with os.fdopen(handle, "rb") as stream:
        if os.geteuid() == 0 and facts.st_uid != _uid(owner):
            raise InputError(f"{path}: not a file of {owner}'s own", hint="root reads logs of their own users alone")
        try:
            begin = max(0, facts.st_size - TAIL_BYTES)
            stream.seek(begin)
            data = stream.read(TAIL_BYTES)
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}") from error
    lines = data.decode("utf-8", errors="replace").splitlines()
    return tuple(lines[1 if begin and len(lines) > 1 else 0 :][-MAX_LINES:])


def _uid(user: str) -> int:
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return -1

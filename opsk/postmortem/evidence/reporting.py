"""Tracks which reports this node still has to write; a job's note stays in the spool until its report is stored.

A collector or a reporter may be killed, the disk of the reports may be full, Slurm may not answer: the next collector
of this node starts again. The folder of a job's evidence records which node reports on it: the first that asks.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from opsk.postmortem.evidence.node_files import FOLDER_MODE, MODE, job_folder
from opsk.telemetry.jobs.job_files import JobFile

REPORTS = "reports"
"""Folder of the spool with notes of jobs whose evidence is collected and whose report is not written."""
RETRY_AFTER_S = 30.0
GIVEN_UP_AFTER_S = 7 * 86400.0
_MAX_NAME_CHARS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class DueReport:
    """A report to be written: the note to remove afterwards, and the handle that locks it until then.

    The process that writes the report inherits ``handle``: its lock ends with the last process that has it.
    """

    note: JobFile
    path: Path
    handle: int


def run_start_s(note: JobFile) -> int:
    """Return the start time that identifies one run of a job [s since 1970]."""
    return int(note.start_unix_s or note.written_unix_s)


def due_path(spool: Path, name: str, note: JobFile) -> Path:
    """Return the path of a job's note until its report is written; requeued jobs have one for each run."""
    return spool / REPORTS / f"{name}@{run_start_s(note)}"


def remove_note(path: Path) -> None:
    """Forget a report that is written."""
    path.unlink(missing_ok=True)
    _attempt_path(path).unlink(missing_ok=True)


@contextmanager
def hold_due_report(path: Path, note: JobFile, folder: Path) -> Iterator[DueReport | None]:
    """Hold a note while its report is started; ``None`` where it is another's, was tried just now, or is given up.

    Raises
    ------
    OSError
        Nothing can be written into the folder of the job's evidence.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    try:
        yield DueReport(note=note, path=path, handle=handle) if _is_due(handle, path, note, folder) else None
    finally:
        os.close(handle)


def claim_report(folder: Path, note: JobFile) -> bool:
    """Return whether this node reports on a run of a job: the first of its nodes that asks does.

    Raises
    ------
    OSError
        That cannot be written down.
    """
    mark = job_folder(folder, note.key) / f".report@{run_start_s(note)}"
    mine = (note.node or os.uname().nodename.partition(".")[0])[:_MAX_NAME_CHARS]
    mark.parent.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
    try:
        handle = os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, MODE)
    except FileExistsError:
        with mark.open("r", encoding="utf-8", errors="replace") as known:
            return known.read(_MAX_NAME_CHARS) == mine
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as made:
            made.write(mine)
    except OSError:
        mark.unlink(missing_ok=True)
        raise
    return True


def _is_due(handle: int, path: Path, note: JobFile, folder: Path) -> bool:
    """Return whether an open note is to be reported on now; it is locked then."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    status, tried = os.fstat(handle), _attempt_path(path)
    if not status.st_nlink:
        return False
    now_s = time.time()
    with suppress(OSError):
        if 0 <= now_s - tried.stat().st_mtime < RETRY_AFTER_S:
            return False
    if now_s - status.st_mtime > GIVEN_UP_AFTER_S or not claim_report(folder, note):
        remove_note(path)
        return False
    tried.touch()
    return True


def _attempt_path(path: Path) -> Path:
    """Return the empty file whose time is when the report was last started."""
    return path.with_name(f".{path.name}.tried")

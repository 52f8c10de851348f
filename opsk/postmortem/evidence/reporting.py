"""Which reports has this node still to write? A job's note stays in the spool until its report is written and stored.

A collector or a reporter may be killed, the disk of the reports may be full, Slurm may not answer: the next collector
of this node begins again. Which node reports on a job stands in the folder of its evidence, by the first that asks.
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
"""Folder of the spool with notes of jobs whose evidence is kept and whose report is not written."""
AGAIN_AFTER_S = 30.0
GIVEN_UP_AFTER_S = 7 * 86400.0
_LONGEST_NAME = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class DueReport:
    """A report to be written: the note to remove afterwards, and what holds it until then.

    Whoever writes the report inherits ``handle``: its lock ends with the last process that has it.
    """

    note: JobFile
    path: Path
    handle: int


def run_start_s(note: JobFile) -> int:
    """Return what tells one run of a job from another."""
    return int(note.start_unix_s or note.written_unix_s)


def due_path(spool: Path, name: str, note: JobFile) -> Path:
    """Return where the note of a job lies until its report is written; requeued jobs have one a run."""
    return spool / REPORTS / f"{name}@{run_start_s(note)}"


def remove_note(path: Path) -> None:
    """Forget a report that is written."""
    path.unlink(missing_ok=True)
    _tried(path).unlink(missing_ok=True)


@contextmanager
def due(path: Path, note: JobFile, folder: Path) -> Iterator[DueReport | None]:
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
    """Tell whether this node is the one that reports on a run of a job: the first of its nodes that asks.

    Raises
    ------
    OSError
        That cannot be written down.
    """
    mark = job_folder(folder, note.key) / f".report@{run_start_s(note)}"
    mine = (note.node or os.uname().nodename.partition(".")[0])[:_LONGEST_NAME]
    mark.parent.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
    try:
        handle = os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, MODE)
    except FileExistsError:
        with mark.open("r", encoding="utf-8", errors="replace") as known:
            return known.read(_LONGEST_NAME) == mine
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as made:
            made.write(mine)
    except OSError:
        mark.unlink(missing_ok=True)
        raise
    return True


def _is_due(handle: int, path: Path, note: JobFile, folder: Path) -> bool:
    """Tell whether a note that this process has open is to be reported on now; it is locked then."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    status, tried = os.fstat(handle), _tried(path)
    if not status.st_nlink:
        return False
    now_s = time.time()
    with suppress(OSError):
        if 0 <= now_s - tried.stat().st_mtime < AGAIN_AFTER_S:
            return False
    if now_s - status.st_mtime > GIVEN_UP_AFTER_S or not claim_report(folder, note):
        remove_note(path)
        return False
    tried.touch()
    return True


def _tried(path: Path) -> Path:
    """Return the empty file whose time is when the report was last begun."""
    return path.with_name(f".{path.name}.tried")

"""Writes the mark of a report, so that exporters count each report once, in one class, and for a limited time."""

from __future__ import annotations

import os
from pathlib import Path

from opsk.postmortem.evidence.node_files import refuse_planted
from opsk.postmortem.marks import CLASSES, FOLDER, NO_CAUSE, format_mark, parse_mark_end_s
from opsk.postmortem.values import Report

MAX_MARK_AGE_S = 31 * 86400.0
_MODE, _FOLDER_MODE = 0o644, 0o755


def mark_report(top: Path, folder_name: str, report: Report, now_s: float) -> None:
    """Mark a report in the class of its cause, and in no other; marks of long ago go.

    Parameters
    ----------
    top
        The folder of evidence, with a folder for each job.
    folder_name
        Name of the job's folder, by cluster and number.

    Raises
    ------
    OSError
        It cannot be written, or another user might have created the folder.
    """
    job, root = report.job, report.root
    name = format_mark(folder_name, job.end_s if job is not None and job.end_s is not None else now_s)
    chosen = str(root.failure) if root is not None else NO_CAUSE
    for folder in (top / FOLDER, top / FOLDER / chosen):
        folder.mkdir(mode=_FOLDER_MODE, exist_ok=True)
        refuse_planted(folder)
        if folder.stat().st_mode & _FOLDER_MODE != _FOLDER_MODE:
            folder.chmod(_FOLDER_MODE)  # whatever the umask of a unit is
    for other in CLASSES:
        if other != chosen:
            (top / FOLDER / other / name).unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    os.close(os.open(top / FOLDER / chosen / name, flags, _MODE))
    _remove_old(top / FOLDER / chosen, now_s)


def _remove_old(folder: Path, now_s: float) -> None:
    """Remove marks of long ago."""
    for path in folder.iterdir():
        end_s = parse_mark_end_s(path.name)
        if end_s is not None and now_s - end_s > MAX_MARK_AGE_S:
            path.unlink(missing_ok=True)

"""Gives a user a copy of the report on their own job, and nobody a report on others' jobs.

Evidence and reports belong to root. The user of the job gets a copy of the report that only they may read: root creates
a new file, gives it away through its open descriptor, and only then moves it to its name, so that no link leads
elsewhere. The user may traverse the folder of the job, but not list it or write to it. Changes to the copy have no
effect: root and others read the original.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from opsk.postmortem.evidence.node_files import refuse_planted, write_atomically
from opsk.postmortem.values import Origin, Report, Role

USER_COPY_PREFIX = "own-"
"""Prefix of a copy's name, before the name of the original."""
_MODE = 0o400
_MAY_TRAVERSE = 0o001


def redact_for_owner(report: Report) -> Report:
    """Return a report for its user: without the kernel's messages about other jobs on the same nodes."""
    visible = [
        finding
        for finding in report.evidence.findings
        if finding.origin is not Origin.KERNEL or finding.role is not Role.ADVICE
    ]
    moments = [moment for moment in report.timeline if moment.finding is None or moment.finding in visible]
    return replace(report, timeline=tuple(moments), evidence=replace(report.evidence, findings=tuple(visible)))


def write_user_copies(folder: Path, uid: int, texts: Mapping[str, str]) -> None:
    """Write copies of reports, by the names of the originals, for a user to read.

    Raises
    ------
    OSError
        They cannot be written or given away, or another user might have created the folder.
    """
    for name, text in texts.items():
        write_atomically(folder / f"{USER_COPY_PREFIX}{name}", text, mode=_MODE, owner=uid)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        refuse_planted(folder)
        mode = stat.S_IMODE(os.fstat(handle).st_mode)
        if not mode & _MAY_TRAVERSE:
            os.fchmod(handle, mode | _MAY_TRAVERSE)
    finally:
        os.close(handle)


def find_user_copy(folder: Path, name: str) -> Path | None:
    """Return the caller's own copy of a report; ``None`` where there is none, or it is not his."""
    path = folder / f"{USER_COPY_PREFIX}{name}"
    try:
        facts = path.lstat()
    except OSError:
        return None
    return path if stat.S_ISREG(facts.st_mode) and facts.st_uid == os.geteuid() else None

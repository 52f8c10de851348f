"""How does a user come by the report on his own job, and nobody by those of others? By a copy that belongs to him.

Evidence and reports are root's. Of a report its user gets a copy that only he may read: root makes it anew, gives it
away by its open file, and only then moves it to its name, so that no link leads elsewhere. The folder of the job is his
to pass, not to list or to write. What he does to his copy concerns nobody: root and others read the original.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from opsk.postmortem.evidence.node_files import refuse_planted, write_whole
from opsk.postmortem.values import Origin, Report, Role

OWN = "own-"
"""A copy is called as what it is of, with this before it."""
_MODE = 0o400
_MAY_PASS = 0o001


def for_owner(report: Report) -> Report:
    """Return a report as its user may have it: without what the kernel said of other jobs on his nodes."""
    kept = [sign for sign in report.evidence.signs if sign.origin is not Origin.KERNEL or sign.role is not Role.ADVICE]
    moments = [each for each in report.timeline if each.sign is None or each.sign in kept]
    return replace(report, timeline=tuple(moments), evidence=replace(report.evidence, signs=tuple(kept)))


def give_copies(folder: Path, uid: int, texts: Mapping[str, str]) -> None:
    """Write copies of reports, by the names of the originals, for a user to read.

    Raises
    ------
    OSError
        They cannot be written or given away, or somebody else might have put the folder there.
    """
    for name, text in texts.items():
        write_whole(folder / f"{OWN}{name}", text, mode=_MODE, owner=uid)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        refuse_planted(folder)
        mode = stat.S_IMODE(os.fstat(handle).st_mode)
        if not mode & _MAY_PASS:
            os.fchmod(handle, mode | _MAY_PASS)
    finally:
        os.close(handle)


def own_copy(folder: Path, name: str) -> Path | None:
    """Return the caller's own copy of a report; ``None`` where there is none, or it is not his."""
    path = folder / f"{OWN}{name}"
    try:
        facts = path.lstat()
    except OSError:
        return None
    return path if stat.S_ISREG(facts.st_mode) and facts.st_uid == os.geteuid() else None

"""How many reports were there lately, of which class? Told by empty files whose names are all that they say.

Reports are not for everybody; that there was one, of which class and when its job ended, is. So whoever may pass the
folder of evidence, the exporter for one, counts them without reading any: ``classes/CLASS/CLUSTER.JOB@END``.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from opsk.job_key import cluster_part
from opsk.postmortem.values import FailureClass

FOLDER = "classes"
NO_CAUSE = "none"
"""Class of a report that names no cause."""
CLASSES = (*(str(each) for each in FailureClass), NO_CAUSE)
MOST_MARKS = 200_000
_NAME = re.compile(r"(?:([0-9A-Za-z_-]{1,40})\.)?\d{1,10}@(\d{1,12})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Marked:
    """Reports by class, none for a class without; when the last of their jobs ended [s since 1970]."""

    counts: dict[str, int] = field(default_factory=dict)
    last_end_s: float | None = None


def name_of(job: str, end_s: float) -> str:
    """Return the name of a mark, of a job as its folder is called.

    Examples
    --------
    >>> name_of("hall-2.4711", 1763770000.7)
    'hall-2.4711@1763770000'
    """
    return f"{job}@{int(end_s)}"


def end_of(name: str) -> float | None:
    """Return when the job of a mark ended [s since 1970]; ``None`` where it is no mark."""
    found = _NAME.fullmatch(name)
    return float(found[2]) if found is not None else None


def cluster_of(name: str) -> str:
    """Return whose job a mark is of, as names of files have it; empty where opsk 0.1 left it, or it is no mark."""
    found = _NAME.fullmatch(name)
    return (found[1] or "") if found is not None else ""


def marked(top: Path, *, since_s: float, cluster: str = "") -> Marked:
    """Return the reports on jobs that ended since a time.

    Parameters
    ----------
    cluster
        Marks of jobs of others do not count: several may keep their reports in one folder. Empty counts all.

    Raises
    ------
    OSError
        The folder cannot be read.
    """
    counts = dict.fromkeys(CLASSES, 0)
    last: float | None = None
    present = {path.name for path in (top / FOLDER).iterdir()}
    for each in CLASSES:
        if each not in present:
            continue
        with os.scandir(top / FOLDER / each) as entries:
            for number, entry in enumerate(entries):
                if number >= MOST_MARKS:
                    break
                at = end_of(entry.name)
                if at is not None and (not cluster or cluster_of(entry.name) in ("", cluster_part(cluster))):
                    counts[each] += at >= since_s
                    last = at if last is None else max(last, at)
    return Marked(counts=counts, last_end_s=last)

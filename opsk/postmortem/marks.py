"""Counts recent reports by class from empty files whose names carry all the information.

Reports are not for everybody; that there was one, of which class and when its job ended, is public. Whoever may
traverse the folder of evidence, such as the exporter, counts them unread: ``classes/CLASS/CLUSTER.JOB@END``.
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
MAX_MARKS = 200_000
_NAME = re.compile(r"(?:([0-9A-Za-z_-]{1,40})\.)?\d{1,10}@(\d{1,12})")


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkCounts:
    """Reports by class, none for a class without; when the last of their jobs ended [s since 1970]."""

    counts: dict[str, int] = field(default_factory=dict)
    last_end_s: float | None = None


def format_mark(job: str, end_s: float) -> str:
    """Return the name of a mark, of a job as its folder is called.

    Examples
    --------
    >>> format_mark("hall-2.4711", 1763770000.7)
    'hall-2.4711@1763770000'
    """
    return f"{job}@{int(end_s)}"


def parse_mark_end_s(name: str) -> float | None:
    """Return when the job of a mark ended [s since 1970]; ``None`` where it is no mark."""
    match = _NAME.fullmatch(name)
    return float(match[2]) if match is not None else None


def parse_mark_cluster(name: str) -> str:
    """Return the cluster of a mark, as in file names; empty where opsk 0.1 wrote it, or it is no mark."""
    match = _NAME.fullmatch(name)
    return (match[1] or "") if match is not None else ""


def count_marks(top: Path, *, since_s: float, cluster: str = "") -> MarkCounts:
    """Return the reports on jobs that ended since a time.

    Parameters
    ----------
    cluster
        Marks of jobs of other clusters do not count: several may share one folder. Empty counts all.

    Raises
    ------
    OSError
        The folder cannot be read.
    """
    counts = dict.fromkeys(CLASSES, 0)
    last: float | None = None
    present = {path.name for path in (top / FOLDER).iterdir()}
    for failure_class in CLASSES:
        if failure_class not in present:
            continue
        with os.scandir(top / FOLDER / failure_class) as entries:
            for number, entry in enumerate(entries):
                if number >= MAX_MARKS:
                    break
                end_s = parse_mark_end_s(entry.name)
                if end_s is not None and (not cluster or parse_mark_cluster(entry.name) in ("", cluster_part(cluster))):
                    counts[failure_class] += end_s >= since_s
                    last = end_s if last is None else max(last, end_s)
    return MarkCounts(counts=counts, last_end_s=last)

"""Defines a candidate for the first failure, and the order of its findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opsk.postmortem.values import FailureClass, Finding, Place

ENDS_JOB = frozenset((FailureClass.TIME_LIMIT, FailureClass.PREEMPTED, FailureClass.CANCELLED))
"""Ends that Slurm or a user brings about: they have no place."""
JOB_WIDE = frozenset((*ENDS_JOB, FailureClass.CONFIG, FailureClass.RENDEZVOUS))
"""Classes whose findings belong together wherever they were printed."""
PROCESS_ENDS = ("process.fatal_python", "process.segfault")
"""Findings on how a process ended: they may not name the process, and follow from what it printed before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A failure that may have been the first.

    Parameters
    ----------
    base
        Probability of its best finding alone [ratio].
    first_s
        Time of its first finding, in the reference clock.
    what
        What it is, a sentence without the place.
    source
        ``slurm`` when Slurm's record states it, ``hang`` when only waiting ranks do, ``end`` when only the end of a
        process does, else ``findings``.
    """

    failure: FailureClass
    place: Place
    findings: tuple[Finding, ...]
    base: float
    first_s: float | None
    what: str
    source: str = "findings"


def sort_key(finding: Finding) -> tuple[float, int]:
    """Return the key that orders findings: time where there is one, else the place in the log."""
    return (finding.time_s if finding.time_s is not None else float("inf"), finding.order)


def find_first_s(findings: Sequence[Finding]) -> float | None:
    """Return the time of the first of some findings."""
    return min((finding.time_s for finding in findings if finding.time_s is not None), default=None)


def is_labelled(finding: Finding) -> bool:
    """Return whether a finding is of one of several processes."""
    return finding.place.rank is not None or finding.place.local_rank is not None or bool(finding.place.ranks)

"""What is a candidate: a failure that may have been the first?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opsk.postmortem.values import FailureClass, Place, Sign

ENDS_JOB = frozenset((FailureClass.TIME_LIMIT, FailureClass.PREEMPTED, FailureClass.CANCELLED))
"""Ends that Slurm or a user brings about: they have no place."""
JOB_WIDE = frozenset((*ENDS_JOB, FailureClass.CONFIG, FailureClass.RENDEZVOUS))
"""Classes whose signs belong together wherever they were printed."""

ENDS_OF_PROCESSES = ("process.fatal_python", "process.segfault")
"""How one process ended: they may not say which it was, and follow from what it said before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A failure that may have been the first.

    Parameters
    ----------
    base
        How sure its best sign is by itself [ratio].
    first_s
        When its first sign was, in the reference clock.
    what
        What it is, a sentence without the place.
    source
        ``slurm`` when Slurm's record says it, ``hang`` when only waiting ranks do, ``end`` when only the end of a
        process does, else ``signs``.
    """

    failure: FailureClass
    place: Place
    signs: tuple[Sign, ...]
    base: float
    first_s: float | None
    what: str
    source: str = "signs"


def order_of(sign: Sign) -> tuple[float, int]:
    """Return what signs are ordered by: time where there is one, else the place in the log."""
    return (sign.time_s if sign.time_s is not None else float("inf"), sign.order)


def first_of(signs: Sequence[Sign]) -> float | None:
    """Return when the first of some signs was."""
    return min((sign.time_s for sign in signs if sign.time_s is not None), default=None)

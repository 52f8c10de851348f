"""Sums up the errors of many jobs: by week, user, framework and GPU, and the jobs that were missed by the most."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from opsk.diagnosis.accuracy.comparison import UNKNOWN, ComparedJob, Comparison, Quantity

FEW_JOBS = 10
"""Figures of fewer jobs say little."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorFigures:
    """The errors of some jobs [ratios].

    Parameters
    ----------
    jobs
        How many were compared.
    median_absolute_error, p90_absolute_error
        Half, and nine in ten of them, were missed by no more.
    median_error
        The bias: above 0, more was predicted than measured.
    ranges, coverage
        How many had a recorded range, and the share of these that held the measurement; ``None`` without any.
    """

    jobs: int
    median_absolute_error: float
    p90_absolute_error: float
    median_error: float
    ranges: int
    coverage: float | None


Figures = Mapping[Quantity, ErrorFigures | None]
GROUPS: Mapping[str, Callable[[ComparedJob], str]] = {
    "week": lambda job: job.week,
    "user": lambda job: job.user or UNKNOWN,
    "framework": lambda job: job.framework,
    "gpu": lambda job: job.gpu,
}
"""What jobs are grouped by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedJob:
    """One of the jobs that were missed by the most, and what was missed."""

    job: ComparedJob
    quantity: Quantity
    comparison: Comparison


def summarise_errors(comparisons: Iterable[Comparison]) -> ErrorFigures | None:
    """Return the figures; ``None`` of nothing."""
    all_of_them = tuple(comparisons)
    if not all_of_them:
        return None
    absolute = sorted(abs(comparison.error) for comparison in all_of_them)
    held = [is_held for comparison in all_of_them if (is_held := comparison.is_in_range) is not None]
    return ErrorFigures(
        jobs=len(absolute),
        median_absolute_error=median(absolute),
        p90_absolute_error=absolute[math.ceil(0.9 * len(absolute)) - 1],
        median_error=median(comparison.error for comparison in all_of_them),
        ranges=len(held),
        coverage=sum(held) / len(held) if held else None,
    )


def summarise_jobs(jobs: Iterable[ComparedJob]) -> Figures:
    """Return the figures of time and memory."""
    members = tuple(jobs)
    return {
        quantity: summarise_errors(
            comparison for job in members if (comparison := job.get(quantity)) is not None
        )
        for quantity in Quantity
    }  # fmt: skip


def group_jobs(jobs: Iterable[ComparedJob], group: str) -> dict[str, Figures]:
    """Return the figures of each group, in the order of their names.

    Parameters
    ----------
    group
        One of `GROUPS`.
    """
    members: dict[str, list[ComparedJob]] = {}
    for job in jobs:
        members.setdefault(GROUPS[group](job), []).append(job)
    return {key: summarise_jobs(members[key]) for key in sorted(members)}


def find_missed_jobs(jobs: Iterable[ComparedJob], count: int) -> tuple[MissedJob, ...]:
    """Return the jobs that were missed by the most, each once with the quantity that was missed by more.

    Errors are compared as factors, so that half and double are equally wrong.
    """
    missed = [max(compared, key=_compute_factor) for job in jobs if (compared := _list_comparisons(job))]
    return tuple(sorted(missed, key=_compute_factor, reverse=True)[:count])


def _list_comparisons(job: ComparedJob) -> Sequence[MissedJob]:
    return [
        MissedJob(job=job, quantity=quantity, comparison=comparison)
        for quantity in Quantity
        if (comparison := job.get(quantity)) is not None
    ]


def _compute_factor(missed: MissedJob) -> float:
    """Return by which factor a job was missed, in either direction."""
    return abs(math.log(missed.comparison.predicted / missed.comparison.measured))

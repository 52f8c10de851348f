"""Estimates how far the next job may lie from its prediction, from errors of jobs that were left out with their cell.

A site's next job may be of a cell that it has jobs of, or of a new one: a new size, a new layout, a framework on other
GPUs. What has been left out shows each: jobs of one plan among others of their cell, whole cells among others of the
wider one. Their errors are compared with what the fit expects, level by level. Few of them say little, so the result is
that of Student's t with as many degrees of freedom as there are groups, plus those of the expectation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from opsk.calibration.learning.cells import LEVEL_LOG_SIGMAS, SiteOffsets, find_level, find_wider
from opsk.calibration.learning.left_out import Solution
from opsk.calibration.learning.scores import MAX_JUDGED_LOG, MIN_RUN_LOG_SIGMA
from opsk.costmodel.efficiency.efficiency import Spread
from opsk.costmodel.table import BoolColumn, FloatColumn, IntColumn
from opsk.costmodel.uncertainty.chance import COVERED_SIGMAS

PRIOR_GROUPS = 2.0
"""Weight of what the fit expects, in groups. Errors of published sources over those that their own fits expect have
tails as long as those of Student's t with two to three degrees of freedom: half of them are below 0.5, and their mean
square is 1."""
_COVERED_QUANTILE = 0.95
"""Upper end of a range of nine in ten."""
_SLOPE_DIGITS = 6
NEW_FAMILY, SAME_CELL = -1, len(LEVEL_LOG_SIGMAS)
"""Levels of jobs of a family that has no others, and of jobs among others of their narrowest cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOutGroup:
    """Jobs, or steps of measured nodes, that were left out of a fit together.

    Parameters
    ----------
    level
        Level of the narrowest name that others share with them (`opsk.calibration.learning.cells`).
    square, expected
        Mean square of ln(predicted / measured) without them, and what the fit expects of it.
    weight
        Their weight in jobs, 1 at most: they are wrong together.
    has_jobs
        Whether there is a job among them.
    """

    level: int
    square: float
    expected: float
    weight: float
    has_jobs: bool


def list_left_out_groups(
    offsets: SiteOffsets, solution: Solution, weights: FloatColumn, noise: float, *, jobs: int
) -> list[LeftOutGroup]:
    """Return the groups of all levels.

    Steps of a node are all of one small model: what they show is how well rates predict steps, and nothing of how one
    model differs from another on the same GPUs.

    Parameters
    ----------
    weights
        Of the jobs and then of the steps; 0 is not used.
    noise
        Unit of the solution's residuals.
    jobs
        Number of jobs.
    """
    return [
        LeftOutGroup(
            level=level,
            square=float(np.mean(np.minimum((errors[judged] * noise) ** 2, MAX_JUDGED_LOG**2))),
            expected=float(np.mean(variances[judged])) * noise**2,
            weight=min(float(weights[rows[judged]].sum()), 1.0),
            has_jobs=bool((rows[judged] < jobs).any()),
        )
        for level, rows, judged in _list_rows(offsets, weights > 0, number_plans(solution), jobs)
        for errors, variances in [solution.leave_out_together(rows)]
    ]


def number_plans(solution: Solution) -> IntColumn:
    """Return a number for each row, the same for jobs of the same plan: all that is fitted moves them alike."""
    result: IntColumn = np.unique(np.round(solution.slopes, _SLOPE_DIGITS), axis=0, return_inverse=True)[1].ravel()
    return result


def _list_rows(
    offsets: SiteOffsets, is_used: BoolColumn, plan_of: IntColumn, jobs: int
) -> Iterator[tuple[int, IntColumn, IntColumn]]:
    """Yield level, rows that are left out together, and which of these are judged together."""
    members = {name: (offsets.acting[:, column] > 0) & is_used for column, name in enumerate(offsets.names)}
    for name, own in members.items():
        rows, level = np.flatnonzero(own), find_level(name)
        if not len(rows) or (level > 1 and rows[0] >= jobs):
            continue
        if level == 0:
            parts = (own & other for wide, other in members.items() if find_wider(wide) == name)
            yield from ((NEW_FAMILY, rows, np.flatnonzero(part[rows])) for part in parts if part.any())
        elif np.count_nonzero(members[find_wider(name)]) > len(rows):
            yield level - 1, rows, np.arange(len(rows))
        if level == SAME_CELL:
            plans = [rows[plan_of[rows] == plan] for plan in np.unique(plan_of[rows])]
            yield from (
                (SAME_CELL, own, np.arange(len(own))) for own in plans if len(own) < len(rows) and own[0] < jobs
            )


def estimate_next_log_sigma(expected_log_sigma: float, groups: Sequence[LeftOutGroup], level: int) -> float:
    """Return the standard deviation of the next job whose narrowest name that has jobs is of a level."""
    return _estimate(expected_log_sigma, [group for group in groups if group.level == level])


def estimate_without_jobs(expected_log_sigma: float, groups: Sequence[LeftOutGroup], spread: Spread) -> float:
    """Return the standard deviation of the next job on measured GPUs where its framework has no jobs.

    It shows in how far steps, or jobs, are from what rates and others of their framework on other GPUs predict; where
    there are none of these, from what rates alone predict. It lies no farther than that of a framework which nobody
    measured.
    """
    elsewhere = [group for group in groups if group.level == 0]
    log_sigma = _estimate(expected_log_sigma, elsewhere or [group for group in groups if group.level == NEW_FAMILY])
    return min(log_sigma, math.hypot(spread.time_log_sigma, spread.time_new_software_log_sigma))


def _estimate(expected_log_sigma: float, groups: Sequence[LeftOutGroup]) -> float:
    squares = [group.weight * group.square * _compute_share(group, expected_log_sigma) for group in groups]
    freedom = PRIOR_GROUPS + sum(group.weight for group in groups)
    usual = expected_log_sigma * COVERED_SIGMAS / _compute_bound(PRIOR_GROUPS)
    scale = math.sqrt((PRIOR_GROUPS * usual**2 + sum(squares)) / freedom)
    return max(scale * _compute_bound(freedom) / COVERED_SIGMAS, MIN_RUN_LOG_SIGMA)


def _compute_share(group: LeftOutGroup, expected_log_sigma: float) -> float:
    """Return how much of a group's square error the next job has.

    A step of a small model has more of what a framework adds to rates, launches and overheads, than a job: errors of
    steps that rates alone predict are scaled half the way, in logarithms, from what the fit expects of them to what it
    expects of the next job.
    """
    if group.has_jobs or group.level != NEW_FAMILY:
        return 1.0
    return min(1.0, expected_log_sigma / math.sqrt(group.expected))


def _compute_bound(freedom: float) -> float:
    """Return half of the interval that holds as much of Student's t as a printed range."""
    return float(stdtrit(freedom, _COVERED_QUANTILE))

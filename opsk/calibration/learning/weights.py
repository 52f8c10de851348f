"""Decides how much each job counts: less where one owner has many of a kind, nothing where it is out of reach."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from opsk.calibration.learning.evidence import MeasuredJob, Outlier
from opsk.costmodel.table import BoolColumn, FloatColumn

OWNER_JOBS = 10
"""Jobs of one owner and cell that count in full; more of them count as so many."""
REACH_SIGMAS = 3.0
"""How far a measurement may lie from the prediction, in the standard deviations that the prior allows for. Farther ones
are errors of the description, or invented: they teach nothing until the cluster or the reader is put right."""
OUTLIER_SIGMAS = 3.0
"""A job so far from what the others predict of it is named."""
CONTRADICTED_SIGMAS, MIN_CONTRADICTED_LOG = 4.0, 0.25
"""A job so far from what the others predict of it teaches nothing: in the standard deviations of that prediction, which
are large for a job of a kind that no other has, and at least."""
CONTRADICTED_JOBS, CONTRADICTED_SHARE = 3, 0.5
"""An owner of whose jobs so many, and at least this share, are contradicted teaches nothing."""
MIN_OUTLIER_LOG = 0.1
"""Errors below this are not named, however well the others agree."""


def weigh_by_owner(jobs: Sequence[MeasuredJob]) -> FloatColumn:
    """Return the weight of every job, up to 1."""
    keys = [(job.owner, job.case.cells[:1]) for job in jobs]
    counts = Counter(keys)
    return np.array([min(1.0, OWNER_JOBS / counts[key]) for key in keys])


def is_in_reach(log_errors: FloatColumn, prior_log_sigmas: FloatColumn) -> BoolColumn:
    """Return which jobs the prior can explain."""
    result: BoolColumn = np.abs(log_errors) <= REACH_SIGMAS * prior_log_sigmas
    return result


def find_contradicted(
    owners: Sequence[str], left_out: FloatColumn, distances: FloatColumn, weights: FloatColumn
) -> BoolColumn:
    """Return which jobs the others contradict so much that they teach nothing, and all jobs of owners of many such.

    Parameters
    ----------
    left_out
        ln(predicted / measured) of each job by a fit to the others.
    distances
        The same in standard deviations of that prediction.
    """
    used = weights > 0
    far: BoolColumn = used & (np.abs(left_out) > MIN_CONTRADICTED_LOG) & (distances > CONTRADICTED_SIGMAS)
    has, fails = Counter(np.array(owners)[used].tolist()), Counter(np.array(owners)[far].tolist())
    distrusted = {
        owner
        for owner, count in fails.items()
        if owner and count >= max(CONTRADICTED_JOBS, CONTRADICTED_SHARE * has[owner])
    }
    return far | (used & np.array([owner in distrusted for owner in owners], dtype=np.bool_))


def find_outliers(
    jobs: Sequence[MeasuredJob], left_out: FloatColumn, weights: FloatColumn, log_sigma: float, quantity: str
) -> tuple[Outlier, ...]:
    """Return the jobs that others contradict, the farthest first.

    Parameters
    ----------
    left_out
        ln(predicted / measured) of each job by a fit to the others.
    log_sigma
        Usual size of these errors.
    """
    limit = max(OUTLIER_SIGMAS * log_sigma, MIN_OUTLIER_LOG)
    far = [index for index in range(len(jobs)) if abs(left_out[index]) > limit or weights[index] == 0]
    return tuple(
        Outlier(
            job=jobs[index].id, owner=jobs[index].owner, quantity=quantity, ratio=float(np.exp(-left_out[index])),
            is_used=bool(weights[index] > 0),
        )
        for index in sorted(far, key=lambda index: -abs(left_out[index]))
    )  # fmt: skip

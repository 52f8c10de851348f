"""Scores a fit on jobs that were left out, and decides whether it is taken."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opsk.calibration.accuracy.cross_validation import ErrorFigures
from opsk.calibration.learning.evidence import LearnedQuantity, LeftOut, MeasuredJob, Outlier
from opsk.costmodel.table import BoolColumn, FloatColumn

MIN_JOBS = 3
"""Fewer jobs, left out one by one, do not show whether a fit is better."""
MIN_NEW_JOBS = 5
"""From so many new jobs on, a fit must also predict these no worse than the fit in use."""
MIN_GAIN = 0.95
"""A fit whose errors are more than this share of those before gains too little to be sure that it gains."""
MAX_JUDGED_LOG = 0.5
"""A larger error counts as this: an invented time says nothing of a fit."""
PRIOR_JOBS = 2.0
"""Weight of the usual spread, in jobs, where a cell's own is estimated."""
_CLIP = 3.0
"""A single error counts as at most so many times the robust size of all."""
MIN_RUN_LOG_SIGMA = 0.02
"""Repeated runs of one plan differ by about this."""


def mean_error(log_errors: FloatColumn, weights: FloatColumn) -> float:
    """Return the weighted mean of the absolute errors, each `MAX_JUDGED_LOG` at most."""
    return float(np.minimum(np.abs(log_errors), MAX_JUDGED_LOG) @ weights / weights.sum())


def robust_size(log_errors: FloatColumn, weights: FloatColumn) -> float:
    """Return the standard deviation that the weighted median of absolute errors implies; 0 without weights."""
    total = weights.sum()
    if not total > 0:
        return 0.0
    order = np.argsort(np.abs(log_errors))
    median = np.abs(log_errors)[order][np.searchsorted(np.cumsum(weights[order]), total / 2)]
    return float(1.4826 * median)


def judge(
    jobs: Sequence[MeasuredJob],
    left_out: LeftOut,
    current: FloatColumn | None,
    outliers: tuple[Outlier, ...],
    *,
    has_measurement: bool = False,
) -> LearnedQuantity:
    """Return whether a fit is taken: better on jobs left out, and no worse than the fit in use on new ones.

    Parameters
    ----------
    current
        Errors of all jobs with the fit in use; ``None`` where there is none.
    has_measurement
        Whether nodes were measured: with them a fit is taken without jobs.
    """
    used = left_out.weights > 0
    judged = left_out.judged > 0
    new = judged & np.array([job.is_new for job in jobs], dtype=np.bool_)
    why_not = _find_objection(left_out, used, judged, has_measurement=has_measurement)
    if not why_not and current is not None and new.sum() >= MIN_NEW_JOBS:
        before, after = (mean_error(errors[new], left_out.judged[new]) for errors in (current, left_out.after))
        if after > before:
            why_not = (
                f"the fit in use predicts {new.sum()} jobs that it has not seen better: "
                f"mean error {before:.1%}, and {after:.1%} with this one"
            )
    means = [_find_mean(errors, left_out.judged, judged) for errors in (left_out.before, left_out.after)]
    return LearnedQuantity(
        jobs=int(used.sum()),
        mean_before=means[0],
        mean_after=means[1],
        before=ErrorFigures.of(left_out.before[used]),
        after=ErrorFigures.of(left_out.after[used]),
        current=None if current is None else ErrorFigures.of(current[new]),
        after_new=None if current is None else ErrorFigures.of(left_out.after[new]),
        is_taken=not why_not,
        why_not=why_not,
        outliers=outliers,
    )


def _find_mean(errors: FloatColumn, weights: FloatColumn, judged: BoolColumn) -> float | None:
    return mean_error(errors[judged], weights[judged]) if judged.any() else None


def _find_objection(left_out: LeftOut, used: BoolColumn, judged: BoolColumn, *, has_measurement: bool) -> str:
    """Return why a fit is not taken by the jobs that were left out; empty where it is."""
    count = int(used.sum())
    if count < MIN_JOBS:
        out_of_reach = len(used) - count
        excluded = f", and {out_of_reach} that teach nothing" if out_of_reach else ""
        return "" if has_measurement else f"{MIN_JOBS} jobs are needed to test a fit; there are {count}{excluded}"
    before, after = (
        mean_error(errors[judged], left_out.judged[judged]) for errors in (left_out.before, left_out.after)
    )
    if after < MIN_GAIN * before:
        return ""
    return f"jobs that were left out are predicted no better: mean error {after:.1%}, and {before:.1%} before"


def estimate_run_log_sigma(errors: FloatColumn, weights: FloatColumn, usual_log_sigma: float) -> float:
    """Return the standard deviation of the next job, from the errors of jobs left out and the usual spread."""
    if not weights.sum() > 0:
        return usual_log_sigma
    limit = _CLIP * max(robust_size(errors, weights), MIN_RUN_LOG_SIGMA)
    squares = np.minimum(np.abs(errors), limit) ** 2 @ weights
    variance = (PRIOR_JOBS * usual_log_sigma**2 + squares) / (PRIOR_JOBS + weights.sum())
    return max(float(np.sqrt(variance)), MIN_RUN_LOG_SIGMA)

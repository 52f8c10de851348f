"""Solves a robust fit, and computes from the solution what each row's error would be without the row.

Slopes are expensive and nearly constant, so they are taken a few times, and the problem that is linear between them is
solved each time. The same holds for errors without a row, which then have a closed form: hundreds of jobs are left out
one by one, or with all others of their cell, without a fit of each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from opsk.calibration.fitting.problem import RobustProblem
from opsk.costmodel.table import BoolColumn, FloatColumn, IntColumn

MAX_ROUNDS = 12
"""How often slopes are taken."""
_SETTLED = 0.005
"""A round that lowers the cost by no more than this share is the last."""
_HALVINGS = 8
"""How often a step is halved until it lowers the cost: times have kinks where communication begins to hide."""
_MIN_REMAINDER = 1e-3
"""A row that decides a direction alone leaves the prior, of which a rest is counted."""


@dataclass(frozen=True, kw_only=True)
class Solution:
    """The solution of a robust problem.

    Parameters
    ----------
    vector
        The best vector.
    residuals
        Errors of all rows at it, in standard deviations of their noise.
    left_out
        The same of each row with a fit to all others.
    slopes
        Change of the residuals with the vector, shape (rows, entries).
    covariance
        Covariance of the vector (Laplace).
    pull
        Weight of every row at the solution.
    is_free
        Which entries of the vector are not at a bound.
    """

    vector: FloatColumn
    residuals: FloatColumn
    left_out: FloatColumn
    slopes: FloatColumn
    covariance: FloatColumn
    pull: FloatColumn
    is_free: BoolColumn

    def leave_out_together(self, rows: IntColumn) -> tuple[FloatColumn, FloatColumn]:
        """Return the residuals of some rows with a fit to all others, and the variances that the fit expects of them.

        With the curvature H of the cost at constant weights w and slopes s of the rows, the covariance without them is
        C = (H - s' w s)^-1, and the residuals are r + s C s' w r. An entry at a bound stays there.
        """
        slopes, pulled = self.slopes[np.ix_(rows, self.is_free)], self.pull[rows] * self.residuals[rows]
        curvature = np.linalg.inv(self.covariance)[np.ix_(self.is_free, self.is_free)]
        covariance = np.linalg.inv(curvature - slopes.T @ (self.pull[rows, None] * slopes))
        residuals: FloatColumn = self.residuals[rows] + slopes @ (covariance @ (slopes.T @ pulled))
        return residuals, np.einsum("ij,jk,ik->i", slopes, covariance, slopes) + 1.0


def solve_with_left_out(problem: RobustProblem, start: FloatColumn) -> Solution:
    """Return the solution of a problem; a row of weight 0 counts as left out already."""
    vector = np.clip(start, problem.low, problem.high)
    residuals = problem.residuals(vector)
    slopes = problem.slopes(vector, residuals)
    for _ in range(MAX_ROUNDS):
        before = problem.cost(vector, residuals)
        vector, residuals = _search(problem, vector, residuals, _solve_linear(problem, vector, residuals, slopes))
        slopes = problem.slopes(vector, residuals)
        if before - problem.cost(vector, residuals) <= _SETTLED * before:
            break
    return Solution(
        vector=vector,
        residuals=residuals,
        left_out=_leave_out(problem, residuals, slopes),
        slopes=slopes,
        covariance=np.asarray(np.linalg.inv(problem.curvature(residuals, slopes)), dtype=np.float64),
        pull=problem.pull(residuals),
        is_free=(vector > problem.low) & (vector < problem.high),
    )


def _solve_linear(
    problem: RobustProblem, vector: FloatColumn, residuals: FloatColumn, slopes: FloatColumn
) -> FloatColumn:
    """Return the best vector where residuals are linear around a vector."""
    linear = replace(
        problem,
        residuals=lambda moved: residuals + slopes @ (moved - vector),
        slopes=lambda moved, moved_residuals: slopes,
    )
    return linear.solve(vector)[0]


def _search(
    problem: RobustProblem, vector: FloatColumn, residuals: FloatColumn, target: FloatColumn
) -> tuple[FloatColumn, FloatColumn]:
    """Return the farthest vector towards a target that lowers the cost, and its residuals; the same where none does."""
    before = problem.cost(vector, residuals)
    for halvings in range(_HALVINGS):
        tried = vector + 0.5**halvings * (target - vector)
        tried_residuals = problem.residuals(tried)
        if problem.cost(tried, tried_residuals) < before:
            return tried, tried_residuals
    return vector, residuals


def _leave_out(problem: RobustProblem, residuals: FloatColumn, slopes: FloatColumn) -> FloatColumn:
    """Return each row's residual without it.

    The weights that soft L1 gives the rows are taken as constant: with the curvature H of the cost at these weights w,
    the residual without a row is r / (1 - w s' H^-1 s), exactly so in a linear problem.
    """
    weights = problem.pull(residuals)
    reach = np.einsum("ij,ji->i", slopes, np.linalg.solve(problem.curvature(residuals, slopes), slopes.T))
    result: FloatColumn = residuals / np.maximum(1.0 - weights * reach, _MIN_REMAINDER)
    return result

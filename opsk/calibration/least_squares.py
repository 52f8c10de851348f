"""How is a weighed, robust least squares problem with priors and bounds solved in few evaluations?

Damped Gauss-Newton (Levenberg-Marquardt) on reweighed residuals, each step a small bounded linear problem. The cost
model has kinks (the slowest stage changes, communication starts to show), where `scipy.optimize.least_squares` needs
two to four times as many steps close to bounds; slopes are therefore taken over a distance that looks past small kinks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import lsq_linear

from opsk.costmodel.table import FloatColumn

_FIRST_DAMPING, _LEAST_DAMPING, _MOST_DAMPING = 1e-3, 1e-9, 1e6
_TOLERANCE = 1e-5
"""Share of the cost by which the last step must lower it."""
_MOST_STEPS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class RobustProblem:
    """Find the vector with the least ``sum(weights * soft_l1(residuals)) + sum((prior @ vector - offset)^2)``.

    ``residuals`` are in standard deviations of their noise; ``slopes`` is their Jacobian, shape (residuals, vector).
    Soft L1 is 2 (sqrt(1 + r^2) - 1): squares for small residuals, absolute values for large ones.
    """

    residuals: Callable[[FloatColumn], FloatColumn]
    slopes: Callable[[FloatColumn, FloatColumn], FloatColumn]
    weights: FloatColumn
    prior: FloatColumn
    offset: FloatColumn
    low: FloatColumn
    high: FloatColumn

    def cost(self, vector: FloatColumn, residuals: FloatColumn) -> float:
        """Return what is to be made small."""
        robust = 2.0 * (np.sqrt(1.0 + residuals**2) - 1.0)
        return float(self.weights @ robust + np.sum((self.prior @ vector - self.offset) ** 2))

    def curvature(self, residuals: FloatColumn, slopes: FloatColumn) -> FloatColumn:
        """Return half the second derivative of the cost, residuals taken as linear in the vector."""
        found: FloatColumn = slopes.T @ (self.pull(residuals)[:, None] * slopes) + self.prior.T @ self.prior
        return found

    def solve(self, start: FloatColumn) -> tuple[FloatColumn, int]:
        """Return the best vector, and how many steps it took."""
        vector = np.clip(start, self.low, self.high)
        residuals = self.residuals(vector)
        cost, damping = self.cost(vector, residuals), _FIRST_DAMPING
        for step in range(1, _MOST_STEPS + 1):
            slopes = self.slopes(vector, residuals)
            curvature = self.curvature(residuals, slopes)
            downhill = -(slopes.T @ (self.pull(residuals) * residuals))
            downhill -= self.prior.T @ (self.prior @ vector - self.offset)
            before = cost
            while damping <= _MOST_DAMPING:
                tried = self._move(vector, curvature, downhill, damping)
                tried_residuals = self.residuals(tried)
                tried_cost = self.cost(tried, tried_residuals)
                if tried_cost < cost:
                    vector, residuals, cost = tried, tried_residuals, tried_cost
                    damping = max(damping / 10.0, _LEAST_DAMPING)
                    break
                damping *= 10.0
            if before - cost <= _TOLERANCE * before:
                return vector, step
        return vector, _MOST_STEPS

    def pull(self, residuals: FloatColumn) -> FloatColumn:
        """Return the weight of every residual as soft L1 reweighs it."""
        found: FloatColumn = self.weights / np.sqrt(1.0 + residuals**2)
        return found

    def _move(self, vector: FloatColumn, curvature: FloatColumn, downhill: FloatColumn, damping: float) -> FloatColumn:
        """Return the vector after one damped step inside the bounds."""
        factor = np.linalg.cholesky(curvature + damping * np.diag(np.diag(curvature)))
        room_below, room_above = self.low - vector, self.high - vector
        fixed = room_below >= room_above
        step: FloatColumn = lsq_linear(
            factor.T,
            np.linalg.solve(factor, downhill),
            (
                np.where(fixed, -np.inf, np.minimum(room_below, 0.0)),
                np.where(fixed, np.inf, np.maximum(room_above, 0.0)),
            ),
            method="bvls",
        ).x
        found: FloatColumn = np.clip(vector + step, self.low, self.high)
        return found

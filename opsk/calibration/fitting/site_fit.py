"""Fits a site's runs with slopes that are computed once, so that many subsets can be left out quickly.

`opsk calibrate` fits all runs exactly, and uses this module to decide whether they improve predictions. For few runs
the difference is what the slopes change over a few percent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from opsk.calibration.fitting.fit import SITE_NOISE, FitSettings, Start, TimedRun, TimedRuns
from opsk.calibration.fitting.free_parameters import free_all
from opsk.calibration.fitting.offsets import Offsets
from opsk.calibration.fitting.problem import FitProblem
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.table import FloatColumn, IntColumn

MAX_PARTS = 10
"""Maximum number of parts, each of which is left out once."""
_ROUNDS = 10
"""Reweighting iterations of soft L1, after which the weights of a few runs have converged."""


@dataclass(frozen=True, kw_only=True)
class LinearSite:
    """Runs of a site: errors ln(predicted / measured) without any of them, and their covariance.

    ``covariance`` is that of the errors through shared parameters and offsets, shape (runs, runs).
    """

    log_errors: FloatColumn
    covariance: FloatColumn

    def log_errors_after(self, given: IntColumn) -> FloatColumn:
        """Return the errors after a fit to the runs at some indices."""
        errors, weights = self.log_errors, np.ones(len(given))
        result = errors
        for _ in range(_ROUNDS):
            among = self.covariance[np.ix_(given, given)] + np.diag(SITE_NOISE**2 / weights)
            result = errors - self.covariance[:, given] @ np.linalg.solve(among, errors[given])
            weights = 1.0 / np.sqrt(1.0 + (result[given] / SITE_NOISE) ** 2)
        return result

    def improves(self, given: IntColumn) -> bool:
        """Return whether the runs at some indices, predicted from the others of them, have smaller errors than before.

        Up to ten runs are left out one by one, more in ten parts. A single run is accepted without a test.
        """
        if len(given) < 2:
            return True
        parts = min(len(given), MAX_PARTS)
        left_out = np.empty(len(given))
        for part in range(parts):
            others = np.arange(len(given)) % parts != part
            left_out[~others] = self.log_errors_after(given[others])[given[~others]]
        return bool(np.abs(left_out).mean() < np.abs(self.log_errors[given]).mean())

    def learnt_log_errors(self, given: IntColumn) -> FloatColumn:
        """Return the errors after a fit to the runs at some indices, or before where the fit does not improve them."""
        return self.log_errors_after(given) if self.improves(given) else self.log_errors


def build_linear_site(runs: Sequence[TimedRun], base: Efficiency, *, log_sigma: float) -> LinearSite:
    """Return a site with ``base`` as its prior; offsets are as wide as ``log_sigma``."""
    settings = FitSettings(start=Start.BASE, source_exponent=0.0, max_assumed=100)
    timed = TimedRuns(runs)
    timed.weigh(settings)
    space = timed.space(settings, base)
    offset_model = Offsets.over(timed.offset_keys, [True] * len(runs), log_sigma=log_sigma, is_site=True)
    problem = FitProblem(timed, free_all(space), offset_model.columns)
    errors = timed.log_errors(base)
    slopes = problem.sensitivity(space.centre(), errors) * [item.prior.width for item in space.parameters]
    moves = np.hstack([slopes, offset_model.columns])
    return LinearSite(log_errors=errors, covariance=moves @ moves.T)

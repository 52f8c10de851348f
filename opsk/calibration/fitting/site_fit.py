"""The fit of a site's runs on slopes that are taken once, to leave out many choices of them quickly.

`opsk calibrate` fits all runs exactly, and asks here whether they teach anything. For few runs this differs by what the
slopes change over a few percent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from opsk.calibration.fitting.fit import SITE_NOISE, FitSettings, Start, TimedRun, TimedRuns
from opsk.calibration.fitting.free_parameters import all_free
from opsk.calibration.fitting.offsets import Offsets
from opsk.calibration.fitting.problem import FitProblem
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.table import FloatColumn, IntColumn

MOST_PARTS = 10
"""Of so many parts at most each is left out once."""
_ROUNDS = 10
"""Reweighings of soft L1, after which a few runs weigh what they do."""


@dataclass(frozen=True, kw_only=True)
class LinearSite:
    """Runs of a site: errors ln(predicted / measured) before any is given, and how all move together.

    ``covariance`` is that of the errors which parameters and offsets have in common, shape (runs, runs).
    """

    log_errors: FloatColumn
    covariance: FloatColumn

    def log_errors_after(self, given: IntColumn) -> FloatColumn:
        """Return the errors when the runs at some places were given."""
        errors, weights = self.log_errors, np.ones(len(given))
        found = errors
        for _ in range(_ROUNDS):
            among = self.covariance[np.ix_(given, given)] + np.diag(SITE_NOISE**2 / weights)
            found = errors - self.covariance[:, given] @ np.linalg.solve(among, errors[given])
            weights = 1.0 / np.sqrt(1.0 + (found[given] / SITE_NOISE) ** 2)
        return found

    def teaches(self, given: IntColumn) -> bool:
        """Tell whether the runs at some places, predicted from the others of them, come nearer than before.

        Up to ten runs are left out one by one, more in ten parts. A single run can only be believed.
        """
        if len(given) < 2:
            return True
        parts = min(len(given), MOST_PARTS)
        found = np.empty(len(given))
        for part in range(parts):
            others = np.arange(len(given)) % parts != part
            found[~others] = self.log_errors_after(given[others])[given[~others]]
        return bool(np.abs(found).mean() < np.abs(self.log_errors[given]).mean())

    def learnt_log_errors(self, given: IntColumn) -> FloatColumn:
        """Return the errors when the runs at some places were given, as before where these teach nothing."""
        return self.log_errors_after(given) if self.teaches(given) else self.log_errors


def linear_site(runs: Sequence[TimedRun], base: Efficiency, *, log_sigma: float) -> LinearSite:
    """Return a site that ``base`` predicts before any run is given; offsets are as wide as ``log_sigma``."""
    settings = FitSettings(start=Start.BASE, source_exponent=0.0, most_assumed=100)
    timed = TimedRuns(runs)
    timed.weigh(settings)
    space = timed.space(settings, base)
    own = Offsets.over(timed.offset_keys, [True] * len(runs), log_sigma=log_sigma, is_site=True)
    problem = FitProblem(timed, all_free(space), own.columns)
    errors = timed.log_errors(base)
    slopes = problem.sensitivity(space.centre(), errors) * [item.prior.width for item in space.parameters]
    moves = np.hstack([slopes, own.columns])
    return LinearSite(log_errors=errors, covariance=moves @ moves.T)

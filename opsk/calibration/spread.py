"""How wide must ranges be to hold most measured runs, of sources that were fitted to and of others?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opsk.costmodel.spread import COVERED_SIGMAS, share_of_added_variance, widened_log_sigma
from opsk.costmodel.table import FloatColumn, IntColumn

COVERAGE = 0.85
"""Share of the errors that ranges hold. With errors in sample and of sources left out, half each, ranges then hold
about 95 % of runs like those that were fitted to, and about 80 % of those of a source never seen."""
LEAST_LOG_SIGMA = 0.02
"""Repeated runs of one plan differ by about so much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedSpread:
    """Spreads for predictions with every input stated and with three assumed ones; ``None``: no such run."""

    stated_log_sigma: float | None = None
    assumed_log_sigma: float | None = None


def fitted_spread(log_errors: FloatColumn, assumed_inputs: IntColumn) -> FittedSpread:
    """Return the spreads with which ranges hold `COVERAGE` of the errors, of stated and of assumed runs apart.

    Quantiles, not moments: the tails of such errors are much longer than a normal distribution's.

    Parameters
    ----------
    log_errors
        ln(predicted / measured), in sample and out of sample together where there are both.
    assumed_inputs
        Number of inputs of each that nobody stated.
    """
    needed = np.abs(log_errors) / COVERED_SIGMAS
    is_stated = assumed_inputs == 0
    stated = float(np.quantile(needed[is_stated], COVERAGE)) if is_stated.any() else None
    if is_stated.all():
        return FittedSpread(stated_log_sigma=_at_least(stated), assumed_log_sigma=None)
    base = _at_least(stated) or LEAST_LOG_SIGMA
    added = (needed[~is_stated] ** 2 - base**2) / share_of_added_variance(assumed_inputs[~is_stated])
    variance = base**2 + max(float(np.quantile(added, COVERAGE)), 0.0)
    return FittedSpread(stated_log_sigma=_at_least(stated), assumed_log_sigma=float(np.sqrt(variance)))


def coverage(log_errors: FloatColumn, assumed_inputs: IntColumn, stated: float, assumed: float) -> float:
    """Return the share of runs that lie in their range."""
    half = COVERED_SIGMAS * widened_log_sigma(stated, assumed, assumed_inputs)
    return float(np.mean(np.abs(log_errors) <= half))


def _at_least(sigma: float | None) -> float | None:
    return None if sigma is None else max(sigma, LEAST_LOG_SIGMA)

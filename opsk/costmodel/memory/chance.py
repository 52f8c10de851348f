"""How sure is a prediction of memory: its range, and the chance that a GPU holds it?"""

from __future__ import annotations

import math

import numpy as np

from opsk.costmodel.efficiency import Spread
from opsk.costmodel.table import FloatColumn, Range

CONFIDENCE_SIGMAS = 1.645
"""A range holds 90 % of a normal distribution."""


def range_of(expected: FloatColumn, spread: Spread) -> Range:
    """Return the range that holds nine of ten measured values."""
    factor = math.exp(CONFIDENCE_SIGMAS * spread.memory_log_sigma)
    return Range(low=expected / factor, expected=expected, high=expected * factor)


def fit_probability(expected_bytes: FloatColumn, capacity_bytes: FloatColumn, spread: Spread) -> FloatColumn:
    """Return the chance that a prediction turns out below the capacity, errors being log-normal.

    The normal distribution's tail is taken from the logistic function that stays within 0.01 % of it (1.5976 z +
    0.07056 z^3; Page 1977, Applied Statistics 26), since numpy has no error function.
    """
    z = np.clip(np.log(capacity_bytes / expected_bytes) / spread.memory_log_sigma, -8.0, 8.0)
    return 1.0 / (1.0 + np.exp(-(1.5976 * z + 0.07056 * z**3)))

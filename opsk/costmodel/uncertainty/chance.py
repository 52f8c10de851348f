"""Computes the range of predicted memory, and the chance that a GPU holds it.

The errors ln(measured / predicted) of published runs have long tails: of the normal, the logistic and Student's t
distribution the last, with about 3 degrees of freedom, fits them best by far, and its chances score better (Brier).
"""

from __future__ import annotations

import math

from opsk.costmodel.efficiency.efficiency import Spread
from opsk.costmodel.elementwise import arctan, log
from opsk.costmodel.table import FloatColumn, Range
from opsk.costmodel.uncertainty.spread import COVERED_SIGMAS

COVERED_T = 2.3534
"""Half of the interval that holds 90 % of Student's t distribution with 3 degrees of freedom."""


def compute_memory_range(expected_bytes: FloatColumn, spread: Spread) -> Range:
    """Return the range that holds nine of ten measured values."""
    factor = math.exp(COVERED_SIGMAS * spread.memory_log_sigma)
    return Range(low=expected_bytes / factor, expected=expected_bytes, high=expected_bytes * factor)


def fit_probability(needed_bytes: FloatColumn, capacity_bytes: FloatColumn, spread: Spread) -> FloatColumn:
    """Return the chance that a run needs less than the capacity.

    The distribution function of Student's t with 3 degrees of freedom, in closed form: with u = t / sqrt(3),
    1/2 + (u / (1 + u^2) + arctan u) / pi. Its scale is such that 90 % lie within the same bounds as with a normal
    distribution of standard deviation sqrt(memory_log_sigma^2 + memory_fit_log_sigma^2).

    Parameters
    ----------
    needed_bytes
        Memory that the device must hold: tensors, NCCL's buffers and the context, but no cached blocks, since the
        allocator releases those before it fails.
    """
    sigma = math.hypot(spread.memory_log_sigma, spread.memory_fit_log_sigma)
    u = log(capacity_bytes / needed_bytes) * (COVERED_T / COVERED_SIGMAS / sigma / math.sqrt(3.0))
    chance: FloatColumn = 0.5 + (u / (1.0 + u * u) + arctan(u)) / math.pi
    return chance

"""Computes how spreads widen, the range of predicted memory, and the chance that a GPU holds it.

The errors ln(measured / predicted) of published runs have long tails: of the normal, the logistic and Student's t
distribution the last, with about 3 degrees of freedom, fits them best by far, and its chances score better (Brier).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from opsk.costmodel.efficiency.efficiency import Efficiency, Spread
from opsk.costmodel.elementwise import arctan, log
from opsk.costmodel.table import FloatColumn, Range
from opsk.hardware.spec import ClusterSpec

COVERED_SIGMAS = 1.645
"""Half of the range, in standard deviations: 90 % of a normal distribution."""
USUAL_ASSUMED = 3
"""Assumed inputs of a run at which the spread of runs with assumed inputs holds: their median in published tables."""


def widen_log_sigma(stated: float, assumed: float, inputs: npt.ArrayLike) -> FloatColumn:
    """Return the standard deviation of ln(measured / predicted) of predictions with assumed inputs.

    Half of the added variance comes with the first assumed input, whichever it is: tables that leave out one thing
    leave out others as well. The rest grows with their number. (Of 546 published runs nine of ten are within 27 % with
    one assumed input, within 25 % with two to six, within 50 % with more.)

    Parameters
    ----------
    stated
        Standard deviation where every input is stated.
    assumed
        The same with `USUAL_ASSUMED` assumed inputs.
    inputs
        Number of assumed inputs of each prediction.
    """
    count = np.asarray(inputs, dtype=np.float64)
    result: FloatColumn = np.sqrt(stated**2 + max(assumed**2 - stated**2, 0.0) * share_of_added_variance(count))
    return result


def share_of_added_variance(inputs: npt.ArrayLike) -> FloatColumn:
    """Return the variance that assumed inputs add, over that of `USUAL_ASSUMED` of them: 0, 2/3, 5/6, 1, 7/6, ..."""
    count = np.asarray(inputs, dtype=np.float64)
    result: FloatColumn = np.where(count > 0, (1.0 + count / USUAL_ASSUMED) / 2.0, 0.0)
    return result


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


_RANGE = 1e3
"""The bound lies within this factor of a GPU's memory: chances fall from one to nothing much closer to it."""
_HALVINGS = 60
"""Halvings of that range, on a logarithmic scale, after which no double lies between its ends."""


def largest_bytes(cluster: ClusterSpec, efficiency: Efficiency, *, chance: float) -> float:
    """Return the most that `MemoryTable.needed_bytes` can be with at least so much chance to fit [bytes].

    The chance falls with what is needed, so it is found by halving, and rounded up.
    """
    capacity = float(cluster.node.gpu.capacity_bytes)
    low, high = capacity / _RANGE, capacity * _RANGE
    for _ in range(_HALVINGS):
        middle = (low * high) ** 0.5
        probability = fit_probability(np.asarray(middle), np.asarray(capacity), efficiency.spread)
        low, high = (middle, high) if probability >= chance else (low, middle)
    return high

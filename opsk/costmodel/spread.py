"""How wide is the range of a prediction, and how does it widen with inputs that nobody stated?"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from opsk.costmodel.table import FloatColumn

COVERED_SIGMAS = 1.645
"""Half of the range, in standard deviations: 90 % of a normal distribution."""
USUAL_ASSUMED = 3
"""Assumed inputs of a run at which the spread of runs with assumed inputs holds: their median in published tables."""


def widened_log_sigma(stated: float, assumed: float, inputs: npt.ArrayLike) -> FloatColumn:
    """Return the standard deviation of ln(measured / predicted) of predictions with assumed inputs.

    Each assumed input adds the same variance, independent of the others.

    Parameters
    ----------
    stated
        Standard deviation where every input is stated.
    assumed
        The same with `USUAL_ASSUMED` assumed inputs.
    inputs
        Number of assumed inputs of each prediction.
    """
    added = max(assumed**2 - stated**2, 0.0) / USUAL_ASSUMED
    found: FloatColumn = np.sqrt(stated**2 + added * np.asarray(inputs, dtype=np.float64))
    return found

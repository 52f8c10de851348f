"""Computes the spread of a prediction, and how it widens with inputs that are assumed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from opsk.costmodel.table import FloatColumn

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

"""Computes the largest memory that a plan may need so that its chance to fit stays above a bound."""

from __future__ import annotations

import numpy as np

from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.uncertainty.chance import fit_probability
from opsk.hardware.spec import ClusterSpec

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

"""Which stage's GPUs are fullest, with what, and will it fit?"""

from __future__ import annotations

import math

import numpy as np

from opsk.costmodel.efficiency import Efficiency
from opsk.costmodel.memory.activations import activation_bytes, gradient_working_bytes
from opsk.costmodel.memory.buffers import gather_bytes, logits_bytes, nccl_bytes
from opsk.costmodel.memory.states import state_bytes
from opsk.costmodel.parameters import ParameterCount
from opsk.costmodel.pipeline import Stages
from opsk.costmodel.shape import ShapeColumns
from opsk.costmodel.shares import Shares
from opsk.costmodel.table import FloatColumn, MemoryTable, Range

CONFIDENCE_SIGMAS = 1.645
"""A range holds 90 % of a normal distribution."""


def peak_memory(
    model: ShapeColumns,
    shares: Shares,
    stages: Stages,
    parameters: ParameterCount,
    capacity_bytes: FloatColumn,
    efficiency: Efficiency,
) -> MemoryTable:
    """Return the memory of a GPU of the fullest stage, as the device reports it (context and all)."""
    states = state_bytes(shares, parameters)
    activations = activation_bytes(model, shares, stages) + gradient_working_bytes(model, shares)
    logits = logits_bytes(shares, stages)
    gathered = gather_bytes(shares, parameters)
    columns = {
        "weights": states.weights,
        "gradients": states.gradients,
        "optimizer": states.optimizer,
        "activations": activations,
        "logits": logits,
        "communication": gathered + nccl_bytes(shares, efficiency),
        "slack": efficiency.memory.slack_fraction * (activations + logits + gathered),
    }
    total: FloatColumn = np.sum([np.broadcast_to(column, states.weights.shape) for column in columns.values()], axis=0)
    total += efficiency.memory.context_bytes
    fullest = np.argmax(total, axis=0)
    rows = np.arange(fullest.shape[0])
    components = {name: np.broadcast_to(column, total.shape)[fullest, rows] for name, column in columns.items()}
    components["context"] = np.full(rows.shape, efficiency.memory.context_bytes)
    expected = total[fullest, rows]
    spread = math.exp(CONFIDENCE_SIGMAS * efficiency.spread.memory_log_sigma)
    return MemoryTable(
        capacity_bytes=capacity_bytes,
        total_bytes=Range(low=expected / spread, expected=expected, high=expected * spread),
        components=components,
        stage=stages.index[fullest, rows].astype(np.int64),
        fit_probability=fit_probability(expected, capacity_bytes, efficiency.spread.memory_log_sigma),
    )


def fit_probability(expected_bytes: FloatColumn, capacity_bytes: FloatColumn, log_sigma: float) -> FloatColumn:
    """Return the chance that a prediction turns out below the capacity, errors being log-normal.

    The normal distribution's tail is taken from the logistic function that stays within 0.01 % of it (1.5976 z +
    0.07056 z^3; Page 1977, Applied Statistics 26), since numpy has no error function.
    """
    z = np.clip(np.log(capacity_bytes / expected_bytes) / log_sigma, -8.0, 8.0)
    return 1.0 / (1.0 + np.exp(-(1.5976 * z + 0.07056 * z**3)))

"""How many bytes of weights, gradients and optimizer states does one GPU hold?

Bytes of a parameter by precision (weights + gradients + optimizer): 16-bit training with fp32 main gradients, as
Megatron-LM does it, 2 + 4 + 12 = 18; fp32 training 4 + 4 + 8 = 16; FP8 holds an FP8 weight and its transpose, 2 bytes
together. Sharding divides the optimizer (ZeRO-1, distributed optimizer: 6 + 12/dp), then gradients (ZeRO-2), then
weights (ZeRO-3, FSDP) by the replicas.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opsk.costmodel.parameters import ParameterCount
from opsk.costmodel.shares import Shares
from opsk.costmodel.table import PRECISIONS, FloatColumn
from opsk.workload.plan import Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Bytes of one parameter: ``weights``, ``gradients``, ``optimizer`` (fp32 master copy and Adam's two moments)."""

    weights: float
    gradients: float
    optimizer: float


RECIPES = {
    Precision.FP32: Recipe(weights=4, gradients=4, optimizer=8),
    Precision.FP16: Recipe(weights=2, gradients=4, optimizer=12),
    Precision.BF16: Recipe(weights=2, gradients=4, optimizer=12),
}
"""Sources: Megatron-LM megatron/training/theoretical_memory_usage.py (18, or 6 + 12/dp); Transformer Engine guide."""

_WEIGHTS = np.array([RECIPES.get(precision, RECIPES[Precision.BF16]).weights for precision in PRECISIONS], dtype=np.float64)
_GRADIENTS = np.array([RECIPES.get(precision, RECIPES[Precision.BF16]).gradients for precision in PRECISIONS], dtype=np.float64)
_OPTIMIZER = np.array([RECIPES.get(precision, RECIPES[Precision.BF16]).optimizer for precision in PRECISIONS], dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """Bytes of the states on the candidate stages, shape (3, plans) each."""

    weights: FloatColumn
    gradients: FloatColumn
    optimizer: FloatColumn


def state_bytes(shares: Shares, parameters: ParameterCount) -> States:
    """Return the bytes of the three kinds of state on every candidate stage."""
    whole = parameters.dense + parameters.experts
    split = parameters.dense / shares.replicas + parameters.experts / shares.expert_replicas
    return States(
        weights=_WEIGHTS[shares.precision] * np.where(shares.shards_weights, split, whole),
        gradients=_GRADIENTS[shares.precision] * np.where(shares.shards_gradients, split, whole),
        optimizer=_OPTIMIZER[shares.precision] * np.where(shares.shards_optimizer, split, whole),
    )

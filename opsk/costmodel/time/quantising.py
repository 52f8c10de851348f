"""Computes the time to quantise the operands of low-precision products, by implementation.

Products in FP8 and FP4 read operands that a kernel has cast before: it reads the 16-bit tensor once or twice (for its
largest entry), and writes it in one or two layouts. Bytes are those of torchao's roofline model
(torchao/testing/training/roofline_utils.py) and of Transformer Engine's documentation on low-precision training; each
recipe is described in benchmarks/published/fp8.md of the repository.
"""

from __future__ import annotations

import numpy as np

from opsk.costmodel.elementwise import any_of, lookup, where
from opsk.costmodel.machine import Machine
from opsk.costmodel.sizes.shares import Shares
from opsk.costmodel.table import PRECISIONS, SOFTWARE, BoolColumn, FloatColumn, PlanTable
from opsk.workload.plan import Precision, Software

_TORCHAO: dict[Precision, tuple[float, float]] = {
    Precision.FP8: (6.0, 8.0),
    Precision.FP8_CURRENT: (6.0, 8.0),
    Precision.FP8_ROWWISE: (8.0, 10.0),
    Precision.FP8_BLOCK: (6.0, 6.0),
    Precision.MXFP8: (6.0, 6.0),
    Precision.NVFP4: (9.0, 9.0),
}
"""Bytes read and written for an element of an activation or its gradient, and for one of a weight."""
_TRANSFORMER_ENGINE: dict[Precision, tuple[float, float]] = {
    Precision.FP8: (3.5, 3.5),
    Precision.FP8_CURRENT: (5.5, 5.5),
    Precision.FP8_ROWWISE: (5.5, 5.5),
    Precision.FP8_BLOCK: (4.0, 4.0),
    Precision.MXFP8: (4.0, 4.0),
    Precision.NVFP4: (9.0, 9.0),
}
"""The same: one read (delayed, blocks) or two (current), and one written copy or two. NVFP4's Hadamard transform runs
at half of the memory's rate, so its 5 bytes count as 9."""
_BYTES = np.array(
    [
        [(by.get(precision) or (0.0, 0.0))[kind] for precision in PRECISIONS]
        for by in (_TORCHAO, _TRANSFORMER_ENGINE)
        for kind in (0, 1)
    ]
)
_PYTORCH = SOFTWARE.index(Software.PYTORCH)
_IS_LOW = np.array([precision.is_low for precision in PRECISIONS])


def is_low(plans: PlanTable) -> BoolColumn:
    """Return which plans multiply in less than 16 bits."""
    return lookup(_IS_LOW, plans.precision)


def quantising_s(
    plans: PlanTable,
    shares: Shares,
    machine: Machine,
    *,
    inputs: FloatColumn,
    gradients: FloatColumn,
    weights: FloatColumn,
) -> tuple[FloatColumn, FloatColumn] | None:
    """Return the time of casts in the forward and in the backward pass [s]; ``None`` where no plan casts.

    Parameters
    ----------
    inputs, gradients
        Elements of the products' inputs and output gradients of one micro-batch on this GPU.
    weights
        Elements of their weights; Transformer Engine casts them once a step, torchao for every micro-batch.
    """
    if not any_of(is_low(plans)):
        return None
    table = lookup(_BYTES, slice(None), plans.precision)
    is_pytorch = plans.software == _PYTORCH
    activation, weight = (where(is_pytorch, table[kind], table[2 + kind]) for kind in (0, 1))
    often = where(is_pytorch, 1.0, 1.0 / shares.micro_batches)
    forward = activation * inputs + weight * often * weights
    return forward / machine.hbm_bytes_per_s, activation * gradients / machine.hbm_bytes_per_s

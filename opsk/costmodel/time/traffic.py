"""Computes how much each parallel axis sends in a step, and the share of GPU pairs that exchange data.

The rail-only paper (arXiv 2307.12169, figures 2 to 4) concludes from this that a network of rails is enough: nearly all
bytes stay in the HB domain, and nearly no pair of GPUs ever communicates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opsk.costmodel.sizes.shape import ShapeColumns
from opsk.costmodel.sizes.shares import Shares
from opsk.costmodel.table import FloatColumn
from opsk.costmodel.time import volumes


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisTraffic:
    """What one GPU of a middle pipeline stage sends in a step, by axis, one entry a plan [bytes]."""

    tp_bytes: FloatColumn
    pp_bytes: FloatColumn
    dp_bytes: FloatColumn

    @property
    def total_bytes(self) -> FloatColumn:
        """All axes together."""
        return self.tp_bytes + self.pp_bytes + self.dp_bytes


def axis_traffic(model: ShapeColumns, shares: Shares, parameters: FloatColumn) -> AxisTraffic:
    """Return what one GPU sends in a step with ring collectives [bytes].

    ``parameters`` are those that it holds; their gradients are all-reduced once a step. GPT-1T of Megatron-LM (3,072
    GPUs, TP8 PP64 DP6, batch 3,072, 16-bit gradients) sends 752 GB for TP, 13.4 for PP and 6.6 for DP. Context and
    expert parallelism, and the repeated gathers of ZeRO-3, are left out.
    """
    tp_calls = model.layers / shares.pp * shares.micro_batches * volumes.passes(shares)
    pp_calls = np.where(shares.pp > 1, 2.0 * shares.vpp * shares.micro_batches, 0.0)
    return AxisTraffic(
        tp_bytes=2.0 * volumes.ring_share(shares.tp) * volumes.tensor_parallel_bytes(model, shares) * tp_calls,
        pp_bytes=volumes.pipeline_bytes(model, shares) * pp_calls,
        dp_bytes=2.0 * volumes.ring_share(shares.replicas) * parameters * shares.reduced_bytes,
    )


def compute_active_pair_share(gpus: FloatColumn, partners: FloatColumn | float = 1.0) -> FloatColumn:
    """Return the share of ordered pairs of GPUs that carry traffic when each sends to ``partners`` others [ratio].

    A ring has one partner. 1,024 GPUs with one each for TP, PP and DP: 0.3 %.
    """
    return partners / (gpus - 1)

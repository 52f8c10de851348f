"""Which layers does each pipeline stage hold, how many micro-batches are in flight there, and how long is the bubble?

The schedule is 1F1B, interleaved where ``vpp`` > 1 (Narayanan et al. 2021, section 2.2). Only three stages can carry
the peak of memory or time: the first (embedding, most micro-batches in flight), the second (a layer more than the first
where layers do not divide evenly) and the last (head, logits, loss). Their columns have shape (3, plans).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opsk.costmodel.shape import ShapeColumns
from opsk.costmodel.shares import Shares
from opsk.costmodel.table import FloatColumn


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """The three candidate stages of every plan, shape (3, plans) each.

    ``layers`` held, ``in_flight`` micro-batches whose activations are kept at the peak, ``is_first`` and ``is_last``
    as 0.0 or 1.0, ``index`` of the stage from 0.
    """

    index: FloatColumn
    layers: FloatColumn
    in_flight: FloatColumn
    is_first: FloatColumn
    is_last: FloatColumn


def stages_of(model: ShapeColumns, shares: Shares) -> Stages:
    """Return the candidate stages of every plan.

    Layers that do not divide evenly go to the middle stages first, as Megatron-LM and DeepSpeed do when embedding and
    head count as layers of the split.
    """
    pp, last = shares.pp, shares.pp - 1
    index = np.stack([np.zeros_like(pp), np.minimum(1.0, last), last])
    is_first, is_last = index == 0, index == last
    even = np.floor(model.layers / pp)
    rest = model.layers - even * pp
    extra = np.where(is_first, rest == last, ~is_last) & (rest > 0)
    return Stages(
        index=index,
        layers=even + extra,
        in_flight=_in_flight(shares, index),
        is_first=is_first.astype(np.float64),
        is_last=is_last.astype(np.float64),
    )


def _in_flight(shares: Shares, index: FloatColumn) -> FloatColumn:
    """Return the micro-batches that a stage keeps at its peak, in micro-batches of all its layers.

    1F1B keeps min(m, p - i); interleaving keeps 2(p - i - 1) + (v - 1) p + 1 chunks of 1/v of the layers, which is
    p (1 + (p - 1) / (p v)) on the first stage (Korthikanti et al. 2022, section 4.2.3).
    """
    pp, vpp, micro_batches = shares.pp, shares.vpp, shares.micro_batches
    plain = np.minimum(micro_batches, pp - index)
    chunks = np.minimum(micro_batches * vpp, 2.0 * (pp - index - 1) + (vpp - 1) * pp + 1)
    return np.where(vpp > 1, chunks / vpp, plain)


def bubble_micro_batches(shares: Shares) -> FloatColumn:
    """Return the time that a stage waits in one step, in micro-batches of its own work: (p - 1) / v.

    Source: Narayanan et al. 2021, equations in sections 2.2.1 and 2.2.2.
    """
    return (shares.pp - 1) / shares.vpp

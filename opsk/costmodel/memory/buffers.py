"""What else lies in GPU memory: logits and loss, gather and NCCL buffers, the CUDA context, the allocator's slack?"""

from __future__ import annotations

import numpy as np

from opsk.costmodel.efficiency import Efficiency
from opsk.costmodel.parameters import ParameterCount
from opsk.costmodel.pipeline import Stages
from opsk.costmodel.shares import Shares
from opsk.costmodel.table import FloatColumn

LOSS_BYTES = 4.0
"""The fp32 copy of a logit, which the loss turns in place into the softmax that its backward needs."""
GATHERED_LAYERS = 2.0
"""FSDP and ZeRO-3 hold the layer at work and prefetch the next."""
REDUCED_BYTES = 4.0
"""Bytes of an element of an unsharded gradient waiting to be reduce-scattered."""


def logits_bytes(shares: Shares, stages: Stages) -> FloatColumn:
    """Return logits, their fp32 copy and their gradient on the last stage, shape (3, plans) [bytes].

    One micro-batch at a time: 2 + 4 bytes a logit, split over tp; the gradient takes the place of the softmax.
    """
    return stages.is_last * shares.tokens * shares.vocab * (shares.activation_bytes + LOSS_BYTES)


def gather_bytes(shares: Shares, parameters: ParameterCount) -> FloatColumn:
    """Return the buffers that sharded states pass through, shape (3, plans) [bytes].

    ZeRO-3 and FSDP gather two layers and the unit around them (embedding, head, final norm), and hold one layer's
    gradients before they are reduced; ZeRO-2 holds the latter only.
    """
    layer = parameters.layer + parameters.layer_experts
    gathered = shares.activation_bytes * (GATHERED_LAYERS * layer + parameters.ends)
    waiting = REDUCED_BYTES * layer
    return np.where(shares.shards_weights, gathered, 0.0) + np.where(shares.shards_gradients, waiting, 0.0)


def communicators(shares: Shares) -> FloatColumn:
    """Return how many NCCL communicators a rank opens: one an axis in use, and the world."""
    axes = np.stack([shares.tp, shares.pp, shares.cp, shares.dp, shares.ep, shares.gpus])
    used: FloatColumn = np.sum(np.where(axes > 1, 1.0, 0.0), axis=0)
    return used


def nccl_bytes(shares: Shares, efficiency: Efficiency) -> FloatColumn:
    """Return the NCCL buffers of all communicators [bytes]."""
    return communicators(shares) * efficiency.memory.communicator_bytes

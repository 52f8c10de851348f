"""How many bytes of activations does one GPU keep between forward and backward?

Counted tensor by tensor as in Korthikanti et al. 2022, section 4, whose formulas a GPT shape gives exactly: with s, b,
h, a heads and tp = t, a layer keeps s b h (10 + 24/t + 5 a s/(h t)), all of it over t with sequence parallelism,
34 s b h/t with selective recomputation, 2 s b h with full recomputation.
"""

from __future__ import annotations

import numpy as np

from opsk.costmodel.pipeline import Stages
from opsk.costmodel.shape import ShapeColumns
from opsk.costmodel.shares import Shares
from opsk.costmodel.table import PRECISIONS, FloatColumn
from opsk.workload.plan import Precision

MASK_BYTES = 1.0
"""Bytes of one element of a dropout mask."""
_FP8 = PRECISIONS.index(Precision.FP8)
SOFTMAX_STATISTIC_BYTES = 4.0
"""Fused attention keeps one fp32 log-sum-exp a row and head instead of the scores."""


def scores_bytes(model: ShapeColumns, shares: Shares) -> FloatColumn:
    """Return what unfused attention keeps of its a s^2 scores: softmax, dropout and its mask; 5 a s^2 b / t [bytes]."""
    scores = shares.tokens * model.seq * (model.heads / shares.tp)
    dropout = model.dropout
    return scores * (shares.activation_bytes * (1.0 + dropout) + MASK_BYTES * dropout)


def stored_layer_bytes(model: ShapeColumns, shares: Shares) -> FloatColumn:
    """Return what one layer keeps for one micro-batch when nothing is recomputed [bytes].

    Outside the tensor-parallel regions: input of both norms, of the projections and of the MLP (4 h elements) and two
    dropout masks. Inside: query, key, value and attention output (2 q + 2 kv), the MLP's inner tensors (input and
    output of the activation function, twice the input when gated). A mixture of experts keeps the latter for every
    expert that a token passes, and the tokens dispatched to them. Under FP8 recipes the inputs of the projections
    and of the MLP are kept in one byte.
    """
    size, hidden = shares.activation_bytes, model.hidden
    linear = np.where(shares.precision == _FP8, 1.0, size)
    dropout, gated, is_moe = model.dropout, model.gated_mlp, model.is_moe
    plain = shares.plain_tokens * hidden * (2.0 * size + 2.0 * linear + 2.0 * MASK_BYTES * dropout)
    inner = (1 - is_moe) * shares.ffn_width + is_moe * (model.top_k * shares.expert_width + shares.shared_width)
    attention = 2.0 * (shares.query_width + shares.kv_width) * size
    mlp = inner * ((1.0 + gated) * size + linear)
    dispatched = is_moe * 2.0 * model.top_k * shares.plain_tokens * hidden * size
    return plain + shares.tokens * (attention + mlp) + dispatched + _kept_by_attention(model, shares)


def _kept_by_attention(model: ShapeColumns, shares: Shares) -> FloatColumn:
    """Return what the attention core keeps beyond its inputs and its output [bytes]."""
    statistic = shares.tokens * (model.heads / shares.tp) * SOFTMAX_STATISTIC_BYTES
    return np.where(model.flash_attention > 0, statistic, scores_bytes(model, shares))


def checkpoint_bytes(model: ShapeColumns, shares: Shares) -> FloatColumn:
    """Return what full recomputation keeps of one layer, its input: 2 s b h, over t with sequence parallelism."""
    return shares.plain_tokens * model.hidden * shares.activation_bytes


def kept_layer_bytes(model: ShapeColumns, shares: Shares) -> FloatColumn:
    """Return what one layer keeps for one micro-batch under the plan's recomputation [bytes]."""
    stored = stored_layer_bytes(model, shares)
    selective = stored - _kept_by_attention(model, shares)
    return np.where(
        shares.full_recompute,
        checkpoint_bytes(model, shares),
        np.where(shares.selective_recompute, selective, stored),
    )


def activation_bytes(model: ShapeColumns, shares: Shares, stages: Stages) -> FloatColumn:
    """Return the activations of every candidate stage at its peak, shape (3, plans) [bytes].

    Kept layers of all micro-batches in flight; the dropout mask of the embedding on the first stage (GPT style); the
    inputs of final norm and head on the last; and the working set of the layer whose backward runs: what recomputation
    brings back of it, and the gradients of its widest tensors.
    """
    kept = kept_layer_bytes(model, shares)
    stored = stored_layer_bytes(model, shares)
    stream = shares.plain_tokens * model.hidden
    embedding = stages.is_first * stream * MASK_BYTES * model.dropout * stages.in_flight
    head = stages.is_last * stream * 2.0 * shares.activation_bytes
    return stages.layers * stages.in_flight * kept + (stored - kept) + embedding + head


def gradient_working_bytes(model: ShapeColumns, shares: Shares) -> FloatColumn:
    """Return the gradients of activations that live while one layer's backward runs [bytes].

    Two tensors of the residual stream's width, and input and output gradient of the activation function.
    """
    is_moe = model.is_moe
    inner = (1 - is_moe) * shares.ffn_width + is_moe * (model.top_k * shares.expert_width + shares.shared_width)
    elements = 2.0 * shares.plain_tokens * model.hidden + (2.0 + model.gated_mlp) * shares.tokens * inner
    return elements * shares.activation_bytes

"""How long does one GPU compute on one layer, and on the head, for one micro-batch?

Every operation takes its arithmetic at the reached rate, plus its bytes at the reached memory bandwidth, plus the gap
before each kernel. The sum makes efficiency a smooth function of the operation's real shape: the smaller a product's
share of arithmetic (few tokens, high tp, small hidden), the more the bytes and the gaps weigh.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opsk.costmodel.efficiency import SoftwareColumns
from opsk.costmodel.machine import Machine
from opsk.costmodel.parameters import ParameterCount
from opsk.costmodel.shape import ShapeColumns
from opsk.costmodel.shares import Shares
from opsk.costmodel.table import FloatColumn

GRADIENT_UPDATE_BYTES = 8.0
"""Reading and writing the fp32 main gradient of a parameter (fused into the weight-gradient product)."""
FORWARD_KERNELS, BACKWARD_KERNELS = 24.0, 44.0
"""Kernels of one layer: products, norms, bias, activation, dropout, residual, reshapes; counted in Megatron traces."""
FUSED_BACKWARD_FLOP = 2.5
"""Fused attention's backward over its forward: five products against two (FlashAttention-2, section 3.1)."""
CAUSAL_SHARE = 0.5
"""Fused attention skips the masked half of the scores."""
LOSS_FORWARD_BYTES, LOSS_BACKWARD_BYTES = 20.0, 14.0
"""Traffic for one logit in the unfused fp32 cross entropy: cast, maximum, exponent, sum; gradient, cast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTime:
    """Seconds for one micro-batch, one entry a plan.

    ``forward``, ``backward`` and ``again`` (what recomputation repeats) of one layer; ``attention`` is the part of
    ``forward`` beside which context-parallel messages can hide; ``head`` is forward and backward of head and loss,
    ``embedding`` of the embedding.
    """

    forward: FloatColumn
    backward: FloatColumn
    again: FloatColumn
    attention: FloatColumn
    head: FloatColumn
    embedding: FloatColumn


def layer_time(
    model: ShapeColumns, shares: Shares, parameters: ParameterCount, machine: Machine, software: SoftwareColumns
) -> LayerTime:
    """Return how long one layer and the ends of the model take for one micro-batch [s]."""
    projections = _projections(model, shares, parameters, machine)
    attention = _attention(model, shares, machine)
    elementwise = _elementwise(model, shares, machine)
    gaps = software.kernel_gap_s
    forward = projections[0] + attention[0] + elementwise[0] + FORWARD_KERNELS * gaps
    backward = projections[1] + attention[1] + elementwise[1] + BACKWARD_KERNELS * gaps
    again = np.where(shares.full_recompute, forward, np.where(shares.selective_recompute, attention[0], 0.0))
    return LayerTime(
        forward=forward,
        backward=backward,
        again=again,
        attention=attention[0],
        head=_head(model, shares, machine),
        embedding=6.0 * shares.tokens * model.hidden * shares.activation_bytes / machine.hbm_bytes_per_s,
    )


def _projections(
    model: ShapeColumns, shares: Shares, parameters: ParameterCount, machine: Machine
) -> tuple[FloatColumn, FloatColumn]:
    """Return forward and backward time of a layer's projections and MLP [s].

    Bytes of a product of m tokens, k in, n out: m k + k n + m n elements, in each of forward, input gradient and
    weight gradient; the last also updates the fp32 gradient.
    """
    hidden, gated = model.hidden, model.gated_mlp
    is_moe = model.is_moe
    inner = (1 - is_moe) * shares.ffn_width + is_moe * (model.top_k * shares.expert_width + shares.shared_width)
    passes = (1 - is_moe) + is_moe * (model.top_k + model.shared_experts)
    attention_width = 2 * shares.query_width + 2 * shares.kv_width
    flop = 2.0 * shares.tokens * hidden * (attention_width + (2 + gated) * inner)
    activations = shares.tokens * (2 * hidden * (1 + passes) + attention_width + (2 + gated) * inner)
    weights = parameters.layer + parameters.layer_experts
    size = shares.activation_bytes
    moved_bytes = (activations + weights) * size
    forward = np.hypot(flop / machine.matmul_flop_per_s, moved_bytes / machine.hbm_bytes_per_s)
    update_bytes = activations * size + weights * GRADIENT_UPDATE_BYTES
    by_input, by_weight = forward, np.hypot(flop / machine.matmul_flop_per_s, update_bytes / machine.hbm_bytes_per_s)
    return forward, by_input + by_weight


def _attention(model: ShapeColumns, shares: Shares, machine: Machine) -> tuple[FloatColumn, FloatColumn]:
    """Return forward and backward time of the attention core [s].

    Unfused attention writes and reads the a s^2 scores: 2 passes in the products, 4.5 in masked softmax and dropout
    (mask of 1 byte) forward; 4 and 5.5 backward.
    """
    flop = 4.0 * shares.tokens * model.seq * shares.query_width
    fused = CAUSAL_SHARE * flop / machine.attention_flop_per_s
    arithmetic = flop / machine.plain_flop_per_s
    scores_bytes = shares.tokens * model.seq * (model.heads / shares.tp) * shares.activation_bytes
    scores_s = scores_bytes / machine.hbm_bytes_per_s
    is_fused = model.flash_attention > 0
    return (
        np.where(is_fused, fused, arithmetic + 6.5 * scores_s),
        np.where(is_fused, FUSED_BACKWARD_FLOP * fused, 2.0 * arithmetic + 9.5 * scores_s),
    )


def _elementwise(model: ShapeColumns, shares: Shares, machine: Machine) -> tuple[FloatColumn, FloatColumn]:
    """Return forward and backward time of norms, dropout, residual and activation function [s].

    Passes over the residual stream (elements read or written): norm 2 x 2 and bias-dropout-add 2 x 3.5 forward; norm
    2 x 3, dropout 2 x 2.5 and residual 2 x 1.5 backward. Over the MLP's inner width: 2 and 3, 3 and 5 when gated.
    Rotary positions read and write query and key once each way.
    """
    is_moe, gated = model.is_moe, model.gated_mlp
    inner = (1 - is_moe) * shares.ffn_width + is_moe * (model.top_k * shares.expert_width + shares.shared_width)
    rotary = (1.0 - model.learned_positions) * 2.0 * shares.tokens * (shares.query_width + shares.kv_width)
    stream = shares.plain_tokens * model.hidden
    mlp = shares.tokens * inner
    moved = shares.plain_tokens * model.hidden * 4.0 * (model.top_k * is_moe)
    rate = machine.hbm_bytes_per_s / shares.activation_bytes
    forward = (11.0 * stream + (2.0 + gated) * mlp + rotary + moved) / rate
    backward = (14.0 * stream + (3.0 + 2.0 * gated) * mlp + rotary + moved) / rate
    return forward, backward


def _head(model: ShapeColumns, shares: Shares, machine: Machine) -> FloatColumn:
    """Return the time of final norm, head and loss, forward and backward, for one micro-batch [s]."""
    logits = shares.tokens * shares.vocab
    size = shares.activation_bytes
    arithmetic = 3.0 * 2.0 * logits * model.hidden / machine.plain_flop_per_s
    weights = shares.vocab * model.hidden
    moved_bytes = 3.0 * (logits + weights + shares.tokens * model.hidden) * size + weights * GRADIENT_UPDATE_BYTES
    loss_bytes = logits * (LOSS_FORWARD_BYTES + LOSS_BACKWARD_BYTES)
    return np.hypot(arithmetic, moved_bytes / machine.hbm_bytes_per_s) + loss_bytes / machine.hbm_bytes_per_s

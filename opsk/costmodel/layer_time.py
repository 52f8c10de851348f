"""How long does one GPU compute on one layer, and on the head, for one micro-batch?

Every operation takes its arithmetic at the reached rate, joined with its bytes at the reached memory bandwidth, plus
the gap before each kernel. The rate of a product of m x k by k x n grows smoothly with each of its dimensions,
1 / (1 + s (1/m + 1/k + 1/n)) of that of a large one: tiles and pipelines of the tensor cores that are not full. So the
fewer tokens, the higher tp, the smaller hidden, the lower the efficiency, without steps.
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
PERMUTED_PASSES = 6.0
"""Reads and writes of a dispatched token's vector: permute, unpermute and weighted sum, each way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTime:
    """Seconds for one micro-batch, one entry a plan.

    ``forward``, ``backward`` and ``again`` (what recomputation repeats) of one layer, averaged over dense and MoE
    layers; ``attention`` is the part of ``forward`` beside which context-parallel messages can hide; ``head`` is
    forward and backward of head and loss, ``embedding`` of the embedding. ``weight_gradient`` is the part of
    ``backward`` that zero-bubble schedules move.
    """

    forward: FloatColumn
    backward: FloatColumn
    weight_gradient: FloatColumn
    again: FloatColumn
    attention: FloatColumn
    head: FloatColumn
    embedding: FloatColumn


@dataclass(frozen=True, slots=True, kw_only=True)
class _Products:
    """Forward of a group of products: arithmetic at the reached rate [s], bytes of activations and of weights."""

    arithmetic_s: FloatColumn
    activation_bytes: FloatColumn
    weights: FloatColumn


def layer_time(
    model: ShapeColumns, shares: Shares, parameters: ParameterCount, machine: Machine, software: SoftwareColumns
) -> LayerTime:
    """Return how long one layer and the ends of the model take for one micro-batch [s]."""
    projections = _projections(model, shares, machine)
    experts = _experts(model, shares, machine, software) if model.has_experts else (0.0, 0.0, 0.0)
    attention = _attention(model, shares, machine)
    elementwise = _elementwise(model, shares, machine, software)
    gaps = software.kernel_gap_s
    forward = projections[0] + experts[0] + attention[0] + elementwise[0] + FORWARD_KERNELS * gaps
    weight_gradient = projections[2] + experts[2]
    backward = projections[1] + experts[1] + weight_gradient + attention[1] + elementwise[1] + BACKWARD_KERNELS * gaps
    again = np.where(shares.full_recompute, forward, np.where(shares.selective_recompute, attention[0], 0.0))
    return LayerTime(
        forward=forward,
        backward=backward,
        weight_gradient=weight_gradient,
        again=again,
        attention=attention[0],
        head=_head(model, shares, machine, software),
        embedding=6.0 * shares.tokens * model.hidden * shares.activation_bytes / machine.hbm_bytes_per_s,
    )


def _passes(products: _Products, machine: Machine, shares: Shares) -> tuple[FloatColumn, FloatColumn, FloatColumn]:
    """Return forward, input gradient and weight gradient of a group of products [s].

    Each reads and writes m k + k n + m n elements; the last also updates the fp32 gradient.
    """
    moved = products.activation_bytes + products.weights * shares.activation_bytes
    updated = products.activation_bytes + products.weights * GRADIENT_UPDATE_BYTES
    forward = np.hypot(products.arithmetic_s, moved / machine.hbm_bytes_per_s)
    return forward, forward, np.hypot(products.arithmetic_s, updated / machine.hbm_bytes_per_s)


def _projections(model: ShapeColumns, shares: Shares, machine: Machine) -> tuple[FloatColumn, FloatColumn, FloatColumn]:
    """Return the passes of a layer's attention projections and of its dense MLP or shared experts [s].

    ``weights`` is the sum of k n over the products, ``sides`` that of k + n: the arithmetic is
    2 m / P ((1 + s/m) weights + s sides).
    """
    hidden, tokens, size = model.hidden, shares.tokens, machine.matmul_size
    moe = model.moe_layers / model.layers
    inner = (1.0 - moe) * shares.ffn_width + moe * shares.shared_width
    matrices = 2.0 + model.gated_mlp
    weights, sides, attention_width = _attention_products(model, shares)
    weights = weights + matrices * hidden * inner
    sides = sides + 2.0 * hidden + matrices * inner
    arithmetic_s = 2.0 / machine.matmul_flop_per_s * ((tokens + size) * weights + size * tokens * sides)
    activations = tokens * (4.0 * hidden + attention_width + matrices * inner) * shares.activation_bytes
    products = _Products(arithmetic_s=arithmetic_s, activation_bytes=activations, weights=weights)
    return _passes(products, machine, shares)


def _attention_products(model: ShapeColumns, shares: Shares) -> tuple[FloatColumn, FloatColumn, FloatColumn]:
    """Return sum of k n, sum of k + n, and summed widths of the projections around attention on one GPU.

    Latent attention compresses the query to ``q_lora_rank`` and keys and values to ``kv_lora_rank`` before it expands
    them to heads; the compressing products are not split over tp.
    """
    hidden, query, kv = model.hidden, shares.query_width, shares.kv_width
    plain = 2.0 * hidden * (query + kv)
    sides = 2.0 * hidden + 2.0 * (query + kv)
    if not np.any(model.is_latent):
        return plain, sides, 2.0 * (query + kv)
    value = model.heads * model.v_head_dim / shares.tp
    q_rank, kv_rank = model.q_lora_rank, model.kv_lora_rank
    compressed = np.where(q_rank > 0, hidden * q_rank + q_rank * query, hidden * query)
    nope = query - model.heads * model.qk_rope_dim / shares.tp
    latent = compressed + hidden * (kv_rank + model.qk_rope_dim) + kv_rank * (nope + value) + value * hidden
    latent_sides = sides + 2.0 * (q_rank + kv_rank)
    is_latent = model.is_latent > 0
    return np.where(is_latent, latent, plain), np.where(is_latent, latent_sides, sides), 2.0 * (query + kv)


def _experts(
    model: ShapeColumns, shares: Shares, machine: Machine, software: SoftwareColumns
) -> tuple[FloatColumn, FloatColumn, FloatColumn]:
    """Return the passes of the routed experts of an average layer, grouped products and permutation [s]."""
    hidden, size = model.hidden, machine.matmul_size
    matrices = 2.0 + model.gated_mlp
    local = np.maximum(model.experts / shares.ep, 1.0)
    width = np.maximum(shares.expert_width, 1.0)
    tokens = shares.expert_tokens
    weights, sides = matrices * hidden * width, matrices * (hidden + width)
    rate = machine.matmul_flop_per_s * software.expert_fraction
    arithmetic_s = 2.0 / rate * ((tokens + size * local) * weights + size * tokens * sides)
    moved = tokens * (2.0 * hidden + matrices * width) * shares.activation_bytes
    products = _Products(arithmetic_s=arithmetic_s, activation_bytes=moved, weights=weights * local)
    forward, by_input, by_weight = _passes(products, machine, shares)
    permuted = PERMUTED_PASSES * tokens * hidden * shares.activation_bytes / machine.hbm_bytes_per_s
    share = model.moe_layers / model.layers
    return (
        share * (forward + permuted + software.moe_gap_s),
        share * (by_input + permuted + software.moe_gap_s),
        share * by_weight,
    )


def _attention(model: ShapeColumns, shares: Shares, machine: Machine) -> tuple[FloatColumn, FloatColumn]:
    """Return forward and backward time of the attention core [s].

    Unfused attention writes and reads the a s^2 scores: 2 passes in the products, 4.5 in masked softmax and dropout
    (mask of 1 byte) forward; 4 and 5.5 backward.
    """
    value = (model.head_dim + model.v_head_dim) / (2.0 * model.head_dim)
    flop = 4.0 * shares.tokens * shares.attended * shares.query_width * value
    fused = CAUSAL_SHARE * flop / machine.attention_flop_per_s * (1.0 + machine.attention_size / model.head_dim)
    is_fused = model.flash_attention > 0
    if np.all(is_fused):
        return fused, FUSED_BACKWARD_FLOP * fused
    arithmetic = flop / machine.plain_flop_per_s * (1.0 + machine.matmul_size / model.head_dim)
    scores_bytes = shares.tokens * model.seq * (model.heads / shares.tp) * shares.activation_bytes
    scores_s = scores_bytes / machine.hbm_bytes_per_s
    return (
        np.where(is_fused, fused, arithmetic + 6.5 * scores_s),
        np.where(is_fused, FUSED_BACKWARD_FLOP * fused, 2.0 * arithmetic + 9.5 * scores_s),
    )


def _elementwise(
    model: ShapeColumns, shares: Shares, machine: Machine, software: SoftwareColumns
) -> tuple[FloatColumn, FloatColumn]:
    """Return forward and backward time of norms, dropout, residual and activation function [s].

    Passes over the residual stream (elements read or written): norm 2 x 2 and bias-dropout-add 2 x 3.5 forward; norm
    2 x 3, dropout 2 x 2.5 and residual 2 x 1.5 backward. Over the MLP's inner width: 2 and 3, 3 and 5 when gated.
    Rotary positions read and write query and key once each way.
    """
    gated, moe = model.gated_mlp, model.moe_layers / model.layers
    inner = (1.0 - moe) * shares.ffn_width + moe * shares.shared_width
    mlp = shares.tokens * inner + moe * shares.expert_tokens * shares.expert_width
    rotary = (1.0 - model.learned_positions) * 2.0 * shares.tokens * (shares.query_width + shares.kv_width)
    stream = shares.plain_tokens * model.hidden
    cost = software.elementwise_factor * shares.activation_bytes / machine.hbm_bytes_per_s
    forward = (11.0 * stream + (2.0 + gated) * mlp + rotary) * cost
    backward = (14.0 * stream + (3.0 + 2.0 * gated) * mlp + rotary) * cost
    return forward, backward


def _head(model: ShapeColumns, shares: Shares, machine: Machine, software: SoftwareColumns) -> FloatColumn:
    """Return the time of final norm, head and loss, forward and backward, for one micro-batch [s]."""
    tokens, size, hidden = shares.tokens, machine.matmul_size, model.hidden
    weights = shares.vocab * hidden
    arithmetic = 6.0 / machine.plain_flop_per_s * ((tokens + size) * weights + size * tokens * (hidden + shares.vocab))
    logits = tokens * shares.vocab
    moved = 3.0 * (logits + weights + tokens * hidden) * shares.activation_bytes + weights * GRADIENT_UPDATE_BYTES
    loss = logits * (LOSS_FORWARD_BYTES + LOSS_BACKWARD_BYTES) * software.elementwise_factor
    once = np.hypot(arithmetic, moved / machine.hbm_bytes_per_s) + loss / machine.hbm_bytes_per_s
    return once * (1.0 + model.mtp_layers)

"""How many floating-point operations does one step take, by the conventions in which rates are published?

*Model* FLOP are forward and backward of the matrix products with the whole s x s attention; *hardware* FLOP add what is
computed again. A multiply-add counts two. Elementwise work is not counted, by the same conventions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opsk.costmodel.shape import ShapeColumns
from opsk.costmodel.shares import Shares
from opsk.costmodel.table import FloatColumn

BACKWARD_PER_FORWARD = 2.0
"""Gradients by input and by weight: two products of the forward's size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFlop:
    """Forward FLOP of one token through the whole, unsplit model.

    ``projections`` and ``attention`` are those of one layer; ``attention`` counts all s x s scores; ``logits`` is the
    head.
    """

    projections: FloatColumn
    attention: FloatColumn
    logits: FloatColumn


def token_flop(model: ShapeColumns) -> TokenFlop:
    """Return the forward FLOP of one token.

    For a GPT shape: 24 h^2 + 4 s h a layer and 2 h V for the head (Narayanan et al. 2021, appendix).
    """
    query, kv = model.heads * model.head_dim, model.kv_heads * model.head_dim
    attention_projections = 4.0 * model.hidden * (query + kv)
    matrices = 2 + model.gated_mlp
    inner = model.top_k * model.expert_ffn + model.shared_ffn
    dense = 2.0 * model.hidden * matrices * model.ffn
    moe = 2.0 * model.hidden * (matrices * inner + model.experts)
    mlp = np.where(model.is_moe > 0, moe, dense)
    return TokenFlop(
        projections=attention_projections + mlp,
        attention=4.0 * model.seq * query,
        logits=2.0 * model.hidden * model.vocab,
    )


def model_flop(model: ShapeColumns, global_batch: FloatColumn) -> FloatColumn:
    """Return the FLOP of one step without recomputation [FLOP]: 72 B s l h^2 (1 + s/6h + V/12lh) for a GPT shape."""
    flop = token_flop(model)
    per_token = model.layers * (flop.projections + flop.attention) + flop.logits
    return (1 + BACKWARD_PER_FORWARD) * per_token * model.seq * global_batch


def hardware_flop(model: ShapeColumns, shares: Shares) -> FloatColumn:
    """Return the FLOP of one step with recomputation [FLOP].

    Full recomputation repeats the forward of all layers, not of the head: 96 B s l h^2 (1 + s/6h + V/16lh) for a GPT
    shape. Selective recomputation repeats the attention scores and their product with the values once: 4 B s^2 h a
    layer. Korthikanti et al. 2022 print three times that in their hardware FLOP; `closed_forms` has their formula.
    """
    flop = token_flop(model)
    again = np.where(
        shares.full_recompute,
        flop.projections + flop.attention,
        np.where(shares.selective_recompute, flop.attention, 0.0),
    )
    return model_flop(model, shares.global_batch) + model.layers * again * model.seq * shares.global_batch

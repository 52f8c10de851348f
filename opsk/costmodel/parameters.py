"""How many parameters has the model, and how many of them does one GPU of each pipeline stage hold?

Counted exactly: projections, biases and norms of the GPT style (two-matrix MLP: biases everywhere, LayerNorm with
bias) or of the Llama style (gated MLP: no biases, RMSNorm), experts, shared experts, router, embedding, positions,
final norm and head.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opsk.costmodel.pipeline import Stages
from opsk.costmodel.shape import ShapeColumns
from opsk.costmodel.shares import Shares
from opsk.costmodel.table import FloatColumn
from opsk.workload.model import ModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterCount:
    """Parameters on one GPU, by how they are replicated.

    ``layer`` and ``layer_experts`` are those of one layer, one entry a plan; ``dense`` and ``experts`` those of the
    candidate stages, shape (3, plans); ``ends`` the part of ``dense`` that is embedding, positions, head, final norm.
    """

    layer: FloatColumn
    layer_experts: FloatColumn
    dense: FloatColumn
    experts: FloatColumn
    ends: FloatColumn


def has_biases(model: ModelShape) -> bool:
    """Return whether projections have biases and norms have two vectors: the GPT style, told by its plain MLP."""
    return not model.gated_mlp


def total_parameters(model: ModelShape) -> int:
    """Return the parameters of the whole model, with ``vocab`` rows as stated (no padding).

    A tied head is counted once. For a GPT shape this is 12 l h^2 (1 + 13/(12 h) + (V + s)/(12 l h)) + 2 h, equation 2
    of Narayanan et al. 2021 plus the final norm.
    """
    bias = 1 if has_biases(model) else 0
    query, kv = model.heads * model.head_dim, model.kv_heads * model.head_dim
    attention = 2 * model.hidden * (query + kv) + bias * (query + 2 * kv + model.hidden)
    norms = 2 * (1 + bias) * model.hidden
    experts = model.experts + model.shared_experts
    if model.experts:
        mlp = experts * _mlp(model.hidden, model.expert_ffn, model.gated_mlp) + model.hidden * model.experts
    else:
        mlp = _mlp(model.hidden, model.ffn, model.gated_mlp)
    copies = 1 if model.tied_embeddings else 2
    ends = copies * model.vocab * model.hidden + (1 + bias) * model.hidden
    ends += model.seq * model.hidden if model.learned_positions else 0
    return model.layers * (attention + norms + mlp) + ends


def _mlp(hidden: int, inner: int, gated: bool) -> int:
    """Return the parameters of one MLP: three matrices when gated, else two with biases."""
    return 3 * hidden * inner if gated else 2 * hidden * inner + inner + hidden


def count_parameters(model: ShapeColumns, shares: Shares, stages: Stages) -> ParameterCount:
    """Return the parameters that one GPU holds, padding of the vocabulary included.

    A tied head is a copy of the embedding on the last stage where pp > 1, and costs nothing where pp = 1.
    """
    bias, hidden = model.norm_bias, model.hidden
    layer = _layer_without_experts(model, shares, bias)
    layer_experts = _layer_experts(model, shares, bias)
    rows = shares.vocab * hidden
    head = rows * np.where(shares.pp > 1, 1.0, 1.0 - model.tied_embeddings)
    positions = model.learned_positions * model.position_rows * hidden
    ends = stages.is_first * (rows + positions) + stages.is_last * (head + (1 + bias) * hidden)
    return ParameterCount(
        layer=layer,
        layer_experts=layer_experts,
        dense=stages.layers * layer + ends,
        experts=stages.layers * layer_experts,
        ends=ends,
    )


def _layer_without_experts(model: ShapeColumns, shares: Shares, bias: float) -> FloatColumn:
    """Return the parameters of one layer on one GPU, routed experts left out."""
    hidden, is_moe = model.hidden, model.is_moe
    projections = 2 * hidden * (shares.query_width + shares.kv_width)
    projections = projections + bias * (shares.query_width + 2 * shares.kv_width + hidden)
    norms = 2 * (1 + bias) * hidden
    dense = _sharded_mlp(model, shares.ffn_width, bias)
    shared = _sharded_mlp(model, shares.shared_width, bias) * (model.shared_ffn > 0)
    router = hidden * model.experts
    return projections + norms + (1 - is_moe) * dense + is_moe * (shared + router)


def _layer_experts(model: ShapeColumns, shares: Shares, bias: float) -> FloatColumn:
    """Return the parameters of the routed experts of one layer on one GPU."""
    return model.experts / shares.ep * _sharded_mlp(model, shares.expert_width, bias)


def _sharded_mlp(model: ShapeColumns, inner: FloatColumn, bias: float) -> FloatColumn:
    """Return the parameters of one MLP whose inner width on this GPU is ``inner``; the output bias is not split."""
    return (2 + model.gated_mlp) * model.hidden * inner + bias * (inner + model.hidden)

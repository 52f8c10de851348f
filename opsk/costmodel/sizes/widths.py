"""Computes the widths of the parts of a model that a plan splits: in the whole model, and on one GPU."""

from __future__ import annotations

from dataclasses import dataclass

from opsk.costmodel.sizes.shape import ShapeColumns
from opsk.costmodel.sizes.shares import Shares
from opsk.costmodel.table import FloatColumn


@dataclass(frozen=True, slots=True, kw_only=True)
class Widths:
    """The widths that a plan splits, each of shape () or (plans,).

    ``query``, ``keys_values`` (keys and values together), ``unrotated`` (queries without their rotary part) and
    ``context`` (values of all query heads) are widths of projections; ``ffn``, ``shared`` and ``expert`` inner widths
    of MLPs; ``experts`` counts routed experts, ``rows`` those of the embedding and ``heads`` query heads.
    """

    query: FloatColumn
    keys_values: FloatColumn
    unrotated: FloatColumn
    context: FloatColumn
    ffn: FloatColumn
    shared: FloatColumn
    expert: FloatColumn
    experts: FloatColumn
    rows: FloatColumn
    heads: FloatColumn


def build_model_widths(model: ShapeColumns) -> Widths:
    """Return the widths of the model itself; the embedding is not padded."""
    return Widths(
        query=model.heads * model.head_dim,
        keys_values=model.kv_heads * (model.head_dim + model.v_head_dim),
        unrotated=model.heads * (model.head_dim - model.qk_rope_dim),
        context=model.heads * model.v_head_dim,
        ffn=model.ffn,
        shared=model.shared_ffn,
        expert=model.expert_ffn,
        experts=model.experts,
        rows=model.vocab,
        heads=model.heads,
    )


def build_gpu_widths(model: ShapeColumns, shares: Shares) -> Widths:
    """Return the widths on one GPU."""
    heads = model.heads / shares.tp
    return Widths(
        query=shares.query_width,
        keys_values=2.0 * shares.kv_width,
        unrotated=heads * (model.head_dim - model.qk_rope_dim),
        context=heads * model.v_head_dim,
        ffn=shares.ffn_width,
        shared=shares.shared_width,
        expert=shares.expert_width,
        experts=model.experts / shares.ep,
        rows=shares.vocab,
        heads=heads,
    )

"""Computes the widths that a plan splits, and the sizes and times of layers that mix tokens by a state.

Each kind of mixer is reduced to the same few numbers of one layer (`opsk.costmodel.sizes.mixer_kinds`), so that this
module does not depend on the kind.
"""

from __future__ import annotations

from dataclasses import dataclass

from opsk.costmodel.elementwise import minimum, to_float
from opsk.costmodel.machine import Machine
from opsk.costmodel.passes import Passes
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


CONSUMED_BYTES = 2.0
"""Bytes of an element that the kernels read and write: 16-bit, fp32 ones counted as two."""


def mixer_passes(model: ShapeColumns, shares: Shares, machine: Machine) -> Passes:
    """Return the passes of convolution, scan, gate and norm of one layer with a mixer [s].

    Kernels of a scan are short: products of a chunk, then traffic of what the next kernel reads, one after the other.
    """
    tokens = shares.tokens / shares.tp
    arithmetic_s = tokens * model.mixer_kernel_flop / machine.plain_flop_per_s
    moved = tokens * model.mixer_moved * (shares.activation_bytes / CONSUMED_BYTES)
    forward = arithmetic_s + moved * CONSUMED_BYTES / machine.hbm_bytes_per_s
    return Passes(forward=forward, by_input=model.mixer_backward * forward, by_weight=to_float(0.0))


def mixer_products(model: ShapeColumns, shares: Shares) -> tuple[FloatColumn, FloatColumn, FloatColumn]:
    """Return sum of k n, sum of k + n, and elements that the products of one layer read and write for all tokens."""
    hidden, tp = model.hidden, shares.tp
    inner = model.mixer_inner / tp
    into = model.mixer_into / tp + model.mixer_shared_into / minimum(tp, model.mixer_groups)
    low = model.mixer_low + model.mixer_low_split / tp
    weights = hidden * (into + inner) + low
    sides = 2.0 * hidden + into + inner + low / hidden
    return weights, sides, shares.tokens * (2.0 * hidden + into + inner)


def mixer_parameters(model: ShapeColumns, widths: Widths) -> FloatColumn:
    """Return the parameters of one mixer, without the norm before it; a rank holds one group at least."""
    share = widths.heads / model.heads
    into = model.mixer_into * share + model.mixer_shared_into / minimum(1.0 / share, model.mixer_groups)
    split = model.mixer_inner * model.hidden + model.mixer_low_split + model.mixer_small
    return model.hidden * into + model.mixer_low + split * share + model.mixer_whole


def mixer_adapters(model: ShapeColumns, widths: Widths) -> FloatColumn:
    """Return inputs and outputs of the projections into and out of one mixer, for LoRA."""
    share = widths.heads / model.heads
    return 2.0 * model.hidden + share * (model.mixer_into + model.mixer_shared_into + model.mixer_inner)


def mixer_flop(model: ShapeColumns) -> FloatColumn:
    """Return the forward FLOP of one token in the products of one mixer that have weights."""
    into = model.mixer_into + model.mixer_shared_into + model.mixer_inner
    return 2.0 * (model.hidden * into + model.mixer_low + model.mixer_low_split)


def mixer_bytes(model: ShapeColumns, shares: Shares, linear: FloatColumn) -> FloatColumn:
    """Return what one mixer stores of a micro-batch for its backward, without the input of its projection [bytes].

    The input of the output projection has ``linear`` bytes an element.
    """
    bytes_per_token = model.mixer_stored * shares.activation_bytes + model.mixer_inner * linear
    return shares.tokens / shares.tp * bytes_per_token

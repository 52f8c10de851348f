"""Computes the parameters of LoRA adapters of rank 1 on the linear layers of decoder and encoder.

A layer of k inputs and n outputs gets two matrices, r x k and n x r (Hu et al. 2021, arXiv 2106.09685): k + n
parameters for each unit of rank. All linear layers have adapters, those of attention, or those of queries and values
(``targets``, an index into ``LORA_TARGETS``). Queries, keys, values, gate and up projection have adapters of their own,
as in PEFT and torchtune; embedding, head and routers have none. Of a split layer, the adapter's matrix on the split
side is split.
"""

from __future__ import annotations

from opsk.costmodel.elementwise import when, where
from opsk.costmodel.sizes.shape import ShapeColumns
from opsk.costmodel.sizes.widths import Widths
from opsk.costmodel.table import LORA_TARGETS, FloatColumn, IntColumn
from opsk.workload.plan import LoraTargets

_ALL, _QUERY_VALUE = LORA_TARGETS.index(LoraTargets.ALL), LORA_TARGETS.index(LoraTargets.QUERY_VALUE)


def attention_adapters(model: ShapeColumns, widths: Widths, targets: IntColumn) -> FloatColumn:
    """Return inputs and outputs of the projections of one decoder layer, cross attention included."""
    hidden = model.hidden
    out = widths.context + hidden
    plain = 3.0 * hidden + widths.query + widths.keys_values
    into = plain
    if model.has_latent:
        into = where(model.is_latent > 0, _latent(model, widths), plain)
    every = into + out + when(model.encoder_layers > 0, plain + out)
    of_two = (2.0 * hidden + widths.query + widths.keys_values / 2.0) * (1.0 + when(model.encoder_layers > 0, 1.0))
    return where(targets == _QUERY_VALUE, of_two, every)


def _latent(model: ShapeColumns, widths: Widths) -> FloatColumn:
    """Return inputs and outputs of the projections into latent attention."""
    hidden, of_query, of_values = model.hidden, model.q_lora_rank, model.kv_lora_rank
    query = hidden + widths.query + 2.0 * of_query
    return query + hidden + 2.0 * of_values + model.qk_rope_dim + widths.unrotated + widths.context


def encoder_adapters(model: ShapeColumns, widths: Widths, targets: IntColumn) -> FloatColumn:
    """Return inputs and outputs of the linear layers of one encoder layer."""
    every = 4.0 * model.hidden + widths.query + widths.keys_values + widths.context
    of_two = 2.0 * model.hidden + widths.query + widths.keys_values / 2.0
    return where(targets == _QUERY_VALUE, of_two, every) + mlp_adapters(model, widths.ffn, targets)


def mlp_adapters(model: ShapeColumns, inner: FloatColumn, targets: IntColumn) -> FloatColumn:
    """Return inputs and outputs of the linear layers of one MLP."""
    return when(targets == _ALL, (2.0 + model.gated_mlp) * (model.hidden + inner))

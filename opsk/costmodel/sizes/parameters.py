"""Counts the parameters of a model, and those that one GPU of each pipeline stage holds.

Counted exactly: every matrix, bias, norm and table of `ModelShape`. The same formulas compute the whole model and the
share of one GPU: they take the widths that are present (`opsk.costmodel.sizes.mixers`).

LoRA adapters: A layer of k inputs and n outputs gets two matrices, r x k and n x r (Hu et al. 2021, arXiv 2106.09685):
k + n parameters for each unit of rank. All linear layers have adapters, those of attention, or those of queries and
values (``targets``, an index into ``LORA_TARGETS``). Queries, keys, values, gate and up projection have adapters of
their own, as in PEFT and torchtune; embedding, head and routers have none. Of a split layer, the adapter's matrix on
the split side is split.
"""

from __future__ import annotations

from dataclasses import dataclass

from opsk.costmodel.elementwise import any_of, to_float, when, where
from opsk.costmodel.sizes.flops import index_matrices
from opsk.costmodel.sizes.mixers import Widths, build_gpu_widths, build_model_widths, mixer_adapters, mixer_parameters
from opsk.costmodel.sizes.pipeline import Stages
from opsk.costmodel.sizes.shape import ShapeColumns, build_shape
from opsk.costmodel.sizes.shares import Shares
from opsk.costmodel.table import LORA_TARGETS, FloatColumn, IntColumn
from opsk.workload.model import ModelShape
from opsk.workload.plan import LoraTargets

_ALL, _QUERY_VALUE = LORA_TARGETS.index(LoraTargets.ALL), LORA_TARGETS.index(LoraTargets.QUERY_VALUE)
MTP_NORMS = 3.0
"""Norms of a multi-token-prediction layer outside its transformer layer: of the two inputs and of the output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterCount:
    """Parameters on one GPU, by how they are replicated.

    ``layer`` (dense part) and ``layer_experts`` (routed experts) are those of the average layer, one entry a plan:
    where only some layers have experts it is their mixture, and an encoder's layers are spread over the decoder's.
    ``dense`` and ``experts`` are those of the candidate stages, shape (3, plans), and know which stage holds the dense
    layers of a mixture of experts; ``ends`` is the part of ``dense`` that belongs to no such layer: embedding,
    positions, head, final norms and the dense part of multi-token prediction.

    ``frozen`` are those of models next to the trained one, in 16 bits, which no plan splits.
    ``adapters`` and ``expert_adapters`` are the LoRA adapters of the candidate stages, 0 where the plan has none; they
    come on top of ``dense`` and ``experts``, and are then all that is trained.
    """

    layer: FloatColumn
    layer_experts: FloatColumn
    dense: FloatColumn
    experts: FloatColumn
    ends: FloatColumn
    adapters: FloatColumn
    expert_adapters: FloatColumn
    frozen: FloatColumn


def total_parameters(model: ModelShape) -> int:
    """Return the parameters of the whole model, with ``vocab`` rows as stated (no padding).

    Shared parameters count once: a tied head, embedding and head of multi-token prediction. For a GPT shape this is
    12 l h^2 (1 + 13/(12 h) + (V + s)/(12 l h)) + 2 h, equation 2 of Narayanan et al. 2021 plus the final norm.
    """
    shape = build_shape(model)
    return round(float(_total(shape, shape.experts)))


def active_parameters(model: ModelShape) -> int:
    """Return the parameters that one token passes: all but the routed experts that it is not sent to.

    Embedding, head and multi-token prediction count. Published numbers differ in whether they count the embedding.
    """
    shape = build_shape(model)
    return round(float(_total(shape, shape.top_k)))


def _total(model: ShapeColumns, experts: FloatColumn) -> FloatColumn:
    """Return the parameters of the whole model with so many experts a layer."""
    widths = build_model_widths(model)
    attention, mlp = _attention(model, widths), _mlp(model, widths.ffn)
    routed = _non_routed_experts(model, widths) + experts * _mlp(model, widths.expert)
    last = attention + model.is_moe * routed + (1.0 - model.is_moe) * mlp
    common = _average_mixed_layer(model, widths, attention) if model.has_mixers else attention
    plain, sparse = common + model.mlp_share * mlp, common + model.mlp_share * routed
    ends = _embedding(model, widths) + widths.rows * model.hidden * (1.0 - model.tied_embeddings) + _final_norms(model)
    return (
        model.plain_layers * plain
        + model.moe_layers * sparse
        + model.encoder_layers * _encoder_layer(model, widths)
        + model.mtp_layers * (last + _mtp_projection(model))
        + ends
        + model.head_bias * widths.rows
    )


def count_parameters(model: ShapeColumns, shares: Shares, stages: Stages) -> ParameterCount:
    """Return the parameters that one GPU holds, padding of the vocabulary included.

    A tied head is a copy of the embedding on the last stage where pp > 1, and costs nothing where pp = 1; so is the
    embedding that multi-token prediction reads (Megatron Core). What tensor parallelism does not split is held by every
    rank: norms, output biases, router, positions, the projections of latent attention into their ranks.
    """
    widths, zero = build_gpu_widths(model, shares), to_float(0.0)
    common = _attention(model, widths)
    plain = _mlp(model, widths.ffn)
    sparse, expert = zero, zero
    if model.has_experts:
        sparse, expert = _non_routed_experts(model, widths), widths.experts * _mlp(model, widths.expert)
    ends, mtp, of_mtp = _ends(model, shares, stages, widths), zero, expert
    if model.has_mtp:
        mtp = model.mtp_layers * stages.is_last
        last = common + model.is_moe * sparse + (1.0 - model.is_moe) * plain
        ends = ends + mtp * (last + _mtp_projection(model))
    if model.has_mixers:
        common = _average_mixed_layer(model, widths, common)
        plain, sparse, expert = (model.mlp_share * part for part in (plain, sparse, expert))
    if model.has_encoder:
        common = common + model.encoder_layers / model.layers * _encoder_layer(model, widths)
    moe, copies = model.moe_layers / model.layers, stages.weight_copies
    adapters, expert_adapters = _adapters(model, shares, stages, widths) if any_of(shares.lora_rank) else (zero, zero)
    if model.has_measured:
        return _count_measured(model, stages, adapters)
    return ParameterCount(
        layer=common + (1.0 - moe) * plain + moe * sparse,
        layer_experts=moe * expert,
        dense=copies * (stages.layers * (common + plain) + stages.moe_layers * (sparse - plain)) + ends,
        experts=copies * stages.moe_layers * expert + mtp * of_mtp,
        ends=ends,
        adapters=adapters,
        expert_adapters=expert_adapters,
        frozen=model.measured_frozen,
    )


def _count_measured(model: ShapeColumns, stages: Stages, adapters: FloatColumn) -> ParameterCount:
    """Return the parameters of models that were measured, which no pipeline splits.

    Their adapters are those of a transformer of the same size: a few thousandths of it.
    """
    zero = to_float(0.0)
    whole = model.measured_parameters * to_float(stages.is_first >= 0)
    layer = model.measured_parameters / model.layers
    return ParameterCount(
        layer=layer,
        layer_experts=zero,
        dense=whole,
        experts=zero,
        ends=zero * whole,
        adapters=adapters,
        expert_adapters=zero,
        frozen=model.measured_frozen,
    )


def _adapters(model: ShapeColumns, shares: Shares, stages: Stages, widths: Widths) -> tuple[FloatColumn, FloatColumn]:
    """Return the LoRA adapters outside of routed experts, and those of routed experts, shape (3, plans)."""
    targets = shares.lora_targets
    attention, plain = attention_adapters(model, widths, targets), mlp_adapters(model, widths.ffn, targets)
    if model.has_mixers:
        attention = model.attention_share * attention + model.mixer_share * mixer_adapters(model, widths)
    if model.has_encoder:
        attention = attention + model.encoder_layers / model.layers * encoder_adapters(model, widths, targets)
    shared = when(model.shared_ffn > 0, mlp_adapters(model, widths.shared, targets))
    outside_experts = stages.layers * attention + model.mlp_share * (
        stages.plain_layers * plain + stages.moe_layers * shared
    )
    experts = model.mlp_share * stages.moe_layers * (widths.experts * mlp_adapters(model, widths.expert, targets))
    rank = shares.lora_rank * stages.weight_copies
    return rank * outside_experts, rank * experts


def _attention(model: ShapeColumns, widths: Widths) -> FloatColumn:
    """Return the parameters of attention and of the norms of one decoder layer.

    Plain: h q + h kv + c h. Latent (DeepSeek-V2, section 2.1): h r_q + r_q q (h q where r_q = 0), h (r_kv + rope),
    r_kv (q - rope + c), c h, with norms of both latents.
    """
    hidden, norm = model.hidden, 1.0 + model.norm_bias
    inputs = widths.query + widths.keys_values
    plain = parameters = (hidden + model.qkv_bias) * inputs
    if model.has_latent:
        parameters = where(model.is_latent > 0, _latent(model, widths) + model.qkv_bias * inputs, plain)
    if model.has_attention_gate:
        parameters = parameters + model.attention_gate * (hidden + model.qkv_bias) * widths.query
    if model.has_index:
        parameters = parameters + index_matrices(model) + when(model.index_top_k > 0, 2.0 * model.index_head_dim)
    parameters = parameters + widths.context * hidden + (model.output_bias + norm * model.norms_per_layer) * hidden
    if model.has_head_details:
        parameters = parameters + norm * _qk_norm(model, widths) + model.attention_sinks * widths.heads
    if model.has_encoder:
        cross = plain + widths.context * hidden + (model.output_bias + norm) * hidden
        parameters = parameters + when(model.encoder_layers > 0, cross)
    return parameters


def _average_mixed_layer(model: ShapeColumns, widths: Widths, attention: FloatColumn) -> FloatColumn:
    """Return the same of the average layer of a model whose layers are of several kinds; all of them have the norms."""
    norms = (1.0 + model.norm_bias) * model.norms_per_layer * model.hidden
    return norms + model.attention_share * (attention - norms) + model.mixer_share * mixer_parameters(model, widths)


def _latent(model: ShapeColumns, widths: Widths) -> FloatColumn:
    """Return the parameters of the projections into latent attention, norms of the latents included."""
    hidden, norm = model.hidden, 1.0 + model.norm_bias
    of_query = model.q_lora_rank * (hidden + norm + widths.query)
    query = where(model.q_lora_rank > 0, of_query, hidden * widths.query)
    latent = model.kv_lora_rank * (hidden + norm + widths.unrotated + widths.context)
    return query + latent + hidden * model.qk_rope_dim


def _qk_norm(model: ShapeColumns, widths: Widths) -> FloatColumn:
    """Return the width of the norms of queries and keys together."""
    by_head, of_all = 2.0 * model.head_dim, widths.query + widths.keys_values / 2.0
    return model.qk_norm * ((1.0 - model.qk_norm_whole) * by_head + model.qk_norm_whole * of_all)


def _encoder_layer(model: ShapeColumns, widths: Widths) -> FloatColumn:
    """Return the parameters of one encoder layer: attention without the cross attention, two norms, MLP."""
    hidden = model.hidden
    into = (hidden + model.qkv_bias) * (widths.query + widths.keys_values)
    rest = (model.output_bias + 2.0 * (1.0 + model.norm_bias)) * hidden
    return into + widths.context * hidden + rest + _mlp(model, widths.ffn)


def _mlp(model: ShapeColumns, inner: FloatColumn) -> FloatColumn:
    """Return the parameters of one MLP with the inner width ``inner``; the output bias is not split."""
    hidden, inputs = model.hidden, 1.0 + model.gated_mlp
    return ((1.0 + inputs) * hidden + model.mlp_bias * inputs) * inner + model.mlp_bias * hidden


def _non_routed_experts(model: ShapeColumns, widths: Widths) -> FloatColumn:
    """Return the parameters of a layer's mixture of experts without the routed experts: router, shared experts."""
    shared = when(model.shared_ffn > 0, _mlp(model, widths.shared)) + model.shared_gate * model.hidden
    return shared + model.experts * (model.hidden + model.router_bias)


def _mtp_projection(model: ShapeColumns) -> FloatColumn:
    """Return the parameters of a multi-token-prediction layer beyond a transformer layer: 2 h^2 and norms."""
    return 2.0 * model.hidden**2 + MTP_NORMS * (1.0 + model.norm_bias) * model.hidden


def _embedding(model: ShapeColumns, widths: Widths) -> FloatColumn:
    """Return the parameters before the first layer: embedding, positions and its norm; tables of relative positions."""
    norm = model.embedding_norm * (1.0 + model.norm_bias)
    tables = model.hidden * (widths.rows + (model.learned_positions * model.position_rows + norm))
    if model.has_relative_positions:
        tables = tables + (1.0 + to_float(model.encoder_layers > 0)) * model.relative_positions * widths.heads
    return tables


def _final_norms(model: ShapeColumns) -> FloatColumn:
    """Return the parameters of the norm after the last layer, of decoder and encoder."""
    stacks = 1.0 + to_float(model.encoder_layers > 0)
    return when(model.norms_per_layer > 0, stacks * (1.0 + model.norm_bias) * model.hidden)


def _ends(model: ShapeColumns, shares: Shares, stages: Stages, widths: Widths) -> FloatColumn:
    """Return what first and last stage hold outside of layers, shape (3, plans)."""
    copies = where(shares.pp > 1, 1.0 + to_float(model.mtp_layers > 0), 1.0 - model.tied_embeddings)
    last = widths.rows * (model.hidden * copies + model.head_bias) + _final_norms(model)
    return stages.is_first * _embedding(model, widths) + stages.is_last * last


def attention_adapters(model: ShapeColumns, widths: Widths, targets: IntColumn) -> FloatColumn:
    """Return inputs and outputs of the projections of one decoder layer, cross attention included."""
    hidden = model.hidden
    out = widths.context + hidden
    plain = 3.0 * hidden + widths.query + widths.keys_values
    into = plain
    if model.has_latent:
        into = where(model.is_latent > 0, _latent_adapters(model, widths), plain)
    every = into + out + when(model.encoder_layers > 0, plain + out)
    of_two = (2.0 * hidden + widths.query + widths.keys_values / 2.0) * (1.0 + when(model.encoder_layers > 0, 1.0))
    return where(targets == _QUERY_VALUE, of_two, every)


def _latent_adapters(model: ShapeColumns, widths: Widths) -> FloatColumn:
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

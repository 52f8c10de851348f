"""Computes the floating-point operations of one step, by the conventions in which rates are published.

*Model* FLOP are forward and backward of the matrix products; *hardware* FLOP add what is recomputed. A multiply-add
counts two. Elementwise work and routers are not counted, by the same conventions. They differ in the attention that
they count: the whole s x s square, the half that a causal mask leaves, or none (6 N of Kaplan et al. 2020); see
`ATTENTION_SHARES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from opsk.costmodel.elementwise import any_of, maximum, minimum, to_float, when, where
from opsk.costmodel.sizes.mixers import mixer_flop
from opsk.costmodel.sizes.shape import ShapeColumns, attended_tokens
from opsk.costmodel.sizes.shares import Shares
from opsk.costmodel.table import RECOMPUTE_BITS, FloatColumn
from opsk.workload.plan import RecomputeModule

BACKWARD_PER_FORWARD = 2.0
"""Gradients by input and by weight: two products of the forward's size."""
ATTENTION_SHARES: Mapping[str, float] = {"full": 1.0, "causal": 0.5, "none": 0.0}
"""Part of a decoder's attention square that a convention counts: Narayanan et al. 2021 and Chowdhery et al. 2022 count
it in full, Megatron-Bridge 25.09 and later causally, 6 N not at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFlop:
    """Forward FLOP of one token of the decoder through the whole, unsplit model.

    Of the average layer: ``attention_projections``, ``mlp`` (dense, or the experts that a token passes and the shared
    ones), ``router`` (with the gate of shared experts), ``attention`` (the whole square of the decoder's scores, less
    with sliding windows) and ``encoder_attention`` (cross attention, the encoder's own and scans of mixers, which no
    mask halves).
    Outside the layers: ``logits`` of the head, and ``mtp_projections``, ``mtp_attention`` and ``mtp_logits`` of
    multi-token prediction. An encoder's work is spread over the tokens and layers of the decoder.
    """

    attention_projections: FloatColumn
    mlp: FloatColumn
    router: FloatColumn
    attention: FloatColumn
    encoder_attention: FloatColumn
    logits: FloatColumn
    mtp_projections: FloatColumn
    mtp_attention: FloatColumn
    mtp_logits: FloatColumn

    @property
    def projections(self) -> FloatColumn:
        """The products of the average layer that have weights, as published rates count them: without the router."""
        return self.attention_projections + self.mlp


def token_flop(model: ShapeColumns) -> TokenFlop:
    """Return the forward FLOP of one token.

    For a GPT shape: 24 h^2 + 4 s h a layer and 2 h V for the head (Narayanan et al. 2021, appendix). Multi-token
    prediction passes one more layer, a projection of 2 h to h and the head again (DeepSeek-V3, section 2.2).
    """
    hidden, zero = model.hidden, to_float(0.0)
    matrices = 2.0 * (2.0 + model.gated_mlp) * hidden
    projections = 2.0 * attention_matrices(model)
    dense, sparse, router = matrices * model.ffn, zero, zero
    moe = model.moe_layers / model.layers
    if model.has_experts:
        sparse = matrices * (model.top_k * model.expert_ffn + model.shared_ffn)
        router = 2.0 * hidden * (model.experts + model.shared_gate)
    mlp = (1.0 - moe) * dense + moe * sparse
    attention = whole_attention = (
        2.0 * attended_tokens(model, as_run=False) * model.heads * (model.head_dim + model.v_head_dim)
    )
    logits = 2.0 * hidden * model.vocab
    mtp_projections = mtp_attention = mtp_logits = encoder_attention = zero
    whole_projections = projections
    if model.has_mixers:
        attention = model.attention_share * attention
        projections = model.attention_share * projections + model.mixer_share * mixer_flop(model)
        encoder_attention = model.mixer_share * model.mixer_scan_flop
        mlp, router = model.mlp_share * mlp, model.mlp_share * router
    if model.has_mtp:
        last = where(model.is_moe > 0, sparse, dense)
        mtp_projections = model.mtp_layers * (whole_projections + last + 4.0 * hidden**2)
        mtp_attention, mtp_logits = model.mtp_layers * whole_attention, model.mtp_layers * logits
    if model.has_encoder:
        added, of_encoder = _encoder(model, dense)
        projections, encoder_attention = projections + added, encoder_attention + of_encoder
    return TokenFlop(
        attention_projections=projections,
        mlp=mlp,
        router=moe * router,
        attention=attention,
        encoder_attention=encoder_attention,
        logits=logits,
        mtp_projections=mtp_projections,
        mtp_attention=mtp_attention,
        mtp_logits=mtp_logits,
    )


def attention_matrices(model: ShapeColumns) -> FloatColumn:
    """Return the weights of the projections into and out of one self-attention [elements].

    Latent attention multiplies by its four or five matrices one after the other, as training does: nothing is absorbed.
    """
    hidden, query = model.hidden, model.heads * model.head_dim
    context = model.heads * model.v_head_dim
    into = hidden * (query + model.kv_heads * (model.head_dim + model.v_head_dim))
    if model.has_latent:
        of_query = where(model.q_lora_rank > 0, model.q_lora_rank * (hidden + query), hidden * query)
        unrotated = query - model.heads * model.qk_rope_dim
        latent = of_query + model.kv_lora_rank * (hidden + unrotated + context) + hidden * model.qk_rope_dim
        into = where(model.is_latent > 0, latent, into)
    if model.has_attention_gate:
        into = into + model.attention_gate * hidden * query
    if model.has_index:
        into = into + index_matrices(model)
    return into + hidden * context


def index_matrices(model: ShapeColumns) -> FloatColumn:
    """Return the weights of the indexer of sparse attention: queries (from the latent), one key, weights of heads."""
    latent = where(model.q_lora_rank > 0, model.q_lora_rank, model.hidden)
    queries = model.index_heads * model.index_head_dim
    return when(model.index_top_k > 0, latent * queries + model.hidden * (model.index_head_dim + model.index_heads))


def _encoder(model: ShapeColumns, dense: FloatColumn) -> tuple[FloatColumn, FloatColumn]:
    """Return projections and attention that encoder and cross attention add to one layer of the decoder.

    Cross attention projects queries and outputs of the decoder's tokens, keys and values of the encoder's.
    """
    has = model.encoder_layers > 0
    tokens = model.encoder_seq / model.seq
    layers = model.encoder_layers / model.layers
    query, keys_values = 2.0 * model.heads * model.head_dim, 2.0 * model.kv_heads * model.head_dim
    cross = 2.0 * model.hidden * (query + tokens * keys_values)
    encoder = layers * tokens * (2.0 * attention_matrices(model) + dense)
    score = 4.0 * model.heads * model.head_dim * model.encoder_seq
    return when(has, cross + encoder), when(has, score * (1.0 + layers * tokens))


def model_flop(
    model: ShapeColumns, global_batch: FloatColumn, attention_share: float | FloatColumn = 1.0
) -> FloatColumn:
    """Return the FLOP of one step without recomputation [FLOP]: 72 B s l h^2 (1 + s/6h + V/12lh) for a GPT shape.

    Parameters
    ----------
    global_batch
        Sequences of one step.
    attention_share
        Share of the decoder's attention that the convention counts, see `ATTENTION_SHARES`; with 0 no attention is
        counted.
    """
    return _of_step(model, token_flop(model), global_batch, to_float(attention_share), to_float(1.0))


def _of_step(
    model: ShapeColumns,
    flop: TokenFlop,
    global_batch: FloatColumn,
    attention_share: FloatColumn,
    trained_share: FloatColumn,
) -> FloatColumn:
    """Return forward and backward of all tokens of a step [FLOP]; what is frozen has no gradients of its weights."""
    attention = attention_share * (model.layers * flop.attention + flop.mtp_attention)
    attention = attention + when(attention_share > 0, model.layers * flop.encoder_attention)
    products = model.layers * flop.projections + flop.logits + flop.mtp_projections + flop.mtp_logits
    of_products = 1 + BACKWARD_PER_FORWARD / 2 * (1 + trained_share)
    return (of_products * products + (1 + BACKWARD_PER_FORWARD) * attention) * model.seq * global_batch


def hardware_flop(model: ShapeColumns, shares: Shares, attention_share: float | FloatColumn = 1.0) -> FloatColumn:
    """Return the FLOP of one step with recomputation [FLOP], see `step_flop`."""
    return step_flop(model, shares, attention_share)[1]


def step_flop(
    model: ShapeColumns, shares: Shares, attention_share: float | FloatColumn = 1.0
) -> tuple[FloatColumn, FloatColumn]:
    """Return the model FLOP and the hardware FLOP of one step [FLOP].

    Full recomputation repeats the forward of all layers, or of ``recompute_layers`` a stage, not of the head:
    96 B s l h^2 (1 + s/6h + V/16lh) for a GPT shape. Selective recomputation repeats the attention scores and their
    product with the values once: 4 B s^2 h a layer. Korthikanti et al. 2022 print three times that in their hardware
    FLOP; `closed_forms` has their formula. What fused attention recomputes is not counted, by the same convention.
    """
    share = to_float(attention_share)
    flop = token_flop(model)
    useful = _of_step(model, flop, shares.global_batch, share, shares.trained_share)
    scores = share * flop.attention + when(share > 0, flop.encoder_attention)
    requested = shares.recompute_layers * shares.pp * (model.layers / (model.layers + model.encoder_layers))
    layers = where(requested > 0, minimum(requested, model.layers), model.layers)
    repeated = when(shares.full_recompute, layers * (flop.projections + scores))
    repeated = repeated + repeated_flop(model, shares, scores)
    return useful, useful + repeated * (model.seq * shares.global_batch)


def repeated_flop(model: ShapeColumns, shares: Shares, scores: FloatColumn) -> FloatColumn:
    """Return the FLOP that selective recomputation repeats for a token in all layers [FLOP].

    ``scores`` is the attention of a token in one layer, which is counted of PyTorch's selection by operations, too.
    """
    core = maximum(shares.repeats(RecomputeModule.CORE_ATTN), to_float(shares.repeated_modules == 0))
    repeated = model.layers * core * scores
    if any_of(shares.repeated_modules & ~RECOMPUTE_BITS[RecomputeModule.CORE_ATTN]):
        flop_per_width = 2.0 * (2.0 + model.gated_mlp) * model.hidden
        moe, experts = model.moe_layers, shares.repeats(RecomputeModule.MOE)
        shared = maximum(experts, shares.repeats(RecomputeModule.SHARED_EXPERTS)) * model.shared_ffn
        routed = experts * model.top_k * model.expert_ffn
        repeated = repeated + flop_per_width * ((model.layers - moe) * shares.repeats(RecomputeModule.MLP) * model.ffn)
        repeated = repeated + flop_per_width * moe * (routed + shared)
        expanded = 2.0 * shares.tp * expanding_weights(model, shares) * model.is_latent
        repeated = repeated + model.layers * shares.repeats(RecomputeModule.MLA_UP_PROJ) * expanded
    return when(shares.selective_recompute, repeated)


def expanding_weights(model: ShapeColumns, shares: Shares) -> FloatColumn:
    """Return the weights of the products that expand latents to heads on one GPU.

    Queries without a rank are projected there, from the whole width (multi_latent_attention.py of Megatron Core).
    """
    value = model.heads * model.v_head_dim / shares.tp
    nope = shares.query_width - model.heads * model.qk_rope_dim / shares.tp
    rank = where(model.q_lora_rank > 0, model.q_lora_rank, model.hidden)
    return rank * shares.query_width + model.kv_lora_rank * (nope + value)

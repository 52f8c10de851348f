"""Computes the bytes of activations that one GPU stores between forward and backward.

Counted tensor by tensor as in Korthikanti et al. 2022, section 4, whose formulas a GPT shape gives exactly: with s, b,
h, a heads and tp = t, a layer stores s b h (10 + 24/t + 5 a s/(h t)), all of it over t with sequence parallelism,
34 s b h/t with selective recomputation, 2 s b h with full recomputation. Modules that run kernel by kernel (PyTorch's
own, HuggingFace's) store more: see `EAGER_NORM_BYTES` and the gated MLP.

A linear layer stores its input for the gradient of its weight only: a frozen one stores nothing of it (derivatives.yaml
of PyTorch, ``mm`` and ``linear``; bitsandbytes/autograd/_functions.py, ``MatMul4Bit``). An adapter stores what its
first matrix reads: the tensor that its neighbours read too, or a copy in another format of its own
(peft/tuners/lora/layer.py, ``_cast_input_dtype``). A dropout before it always makes that copy, and stores a mask. Under
a 4-bit base bitsandbytes before 0.43.2 (July 2024, its pull request 1270) stores inputs that nothing reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from opsk.costmodel.elementwise import any_of, logical_not, lookup, maximum, minimum, to_int, when, where
from opsk.costmodel.memory.family import has_fp32_residual, has_plain_modules, is_deepspeed, is_pytorch, widens_outputs
from opsk.costmodel.memory.measured import Activations, compute_measured_activations
from opsk.costmodel.memory.modules import ROUTER_BYTES, ModuleBytes, MovedBytes, compute_moved_bytes, is_by_module
from opsk.costmodel.sizes.mixers import mixer_bytes
from opsk.costmodel.sizes.pipeline import Stages
from opsk.costmodel.sizes.shape import ShapeColumns
from opsk.costmodel.sizes.shares import Shares
from opsk.costmodel.table import (
    ADAPTER_FORMATS,
    IS_WIDE,
    LORA_TARGETS,
    OFFLOADS,
    PRECISIONS,
    QKV_LAYOUTS,
    STATES,
    BoolColumn,
    FloatColumn,
    PlanTable,
)
from opsk.workload.plan import AdapterFormat, LoraTargets, Offload, Precision, QkvLayout, States

_HALF, _FULL = 2.0, 4.0
"""Bytes of an element in 16 bits and in fp32."""
_QLORA_BITS = 4
_AUTOCAST = STATES.index(States.AUTOCAST)
_PACKED_LAYOUT = QKV_LAYOUTS.index(QkvLayout.PACKED)
_MASK_BYTES = 1.0
"""Bytes of one element of a dropout's mask."""
_PROJECTIONS = {LoraTargets.ALL: 3.0, LoraTargets.ATTENTION: 3.0, LoraTargets.QUERY_VALUE: 2.0}
"""Adapters that read the input of attention."""
_FLAGS = (False, True)
_SHAPE = (2, 2, 2, 2, len(LORA_TARGETS), len(ADAPTER_FORMATS), 6)
MASK_BYTES = 1.0
"""Bytes of one element of a dropout mask."""
SOFTMAX_STATISTIC_BYTES = 4.0
"""Fused attention stores one fp32 log-sum-exp a row and head instead of the scores."""
EAGER_NORM_BYTES = 4.0
"""An RMSNorm written in PyTorch stores its fp32 input and its normalised one where a fused one stores the input only:
4 + 2 against 2 bytes. Where its weight is frozen the normalised one is not stored."""
FP32_STREAM_BYTES = 2.0
"""Extra bytes of an fp32 residual stream over a 16-bit one, wherever it is stored: by norms and checkpoints."""
WIDE_SOFTMAX_BYTES = 4.0
"""A softmax in fp32 of 16-bit scores is stored next to its 16-bit copy, which the values are multiplied by: autocast
runs it so, and so do Llama's modules of Transformers (modeling_llama.py, ``eager_attention_forward``)."""
LINGERING_BYTES = 4.0
"""Bytes an element of a layer's input that reentrant checkpoints of frozen FSDP units hold to the end of a backward.

FSDP hooks the inputs of a unit without gradients (torch/distributed/fsdp/_runtime_utils.py,
``_register_post_backward_reshard_only_hook``) and holds the hook until the backward is over. The input of a reentrant
checkpoint is a leaf, which holds its storage and its gradient: 2 + 2 bytes a layer.
"""
OFFLOADED_LAYERS = 2.0
"""Layers whose activations are on the GPU while the others' are in host memory: one in transfer each way."""
_LINEAR_BYTES = {
    Precision.FP8: 1.0,
    Precision.FP8_CURRENT: 1.0,
    Precision.FP8_ROWWISE: 1.0,
    Precision.FP8_BLOCK: 1.0 + 4 / 128,
    Precision.MXFP8: 1.0 + 1 / 32,
    Precision.NVFP4: 0.5 + 1 / 16,
}
"""Bytes of an element that a matrix product stores of its input under Transformer Engine's recipes, with scales."""
_LINEAR_WIDTHS = np.array([_LINEAR_BYTES.get(name, 0.0) for name in PRECISIONS])
_OFFLOADED = OFFLOADS.index(Offload.ACTIVATIONS)
_PACKED, _PERMUTED = (QKV_LAYOUTS.index(layout) for layout in (QkvLayout.PACKED, QkvLayout.PERMUTED))
_QUERY_VALUE = LORA_TARGETS.index(LoraTargets.QUERY_VALUE)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerBytes:
    """What one layer stores for one micro-batch without recomputation, one entry a plan [bytes].

    Parameters
    ----------
    plain, sparse
        All of it, for a layer with the dense MLP and for one with experts.
    attention_core
        The part that selective recomputation of the attention core restores.
    checkpoint
        Input of the layer, which full recomputation stores.
    working
        Gradients of activations that live while the layer's backward runs, and the weight that it unpacks.
    moved
        What is recomputed and what is offloaded, module by module; ``None`` where no plan names modules.
    """

    plain: FloatColumn
    sparse: FloatColumn
    attention_core: FloatColumn
    checkpoint: FloatColumn
    working: FloatColumn
    moved: MovedBytes | None = None


def scores_bytes(model: ShapeColumns, shares: Shares) -> FloatColumn:
    """Return the stored a s^2 scores of unfused attention: softmax, dropout and its mask; 5 a s^2 b / t [bytes]."""
    scores = shares.tokens * model.seq * (model.heads / shares.tp)
    return scores * (shares.activation_bytes * (1.0 + model.dropout) + MASK_BYTES * model.dropout)


def layer_bytes(model: ShapeColumns, plans: PlanTable, shares: Shares) -> LayerBytes:
    """Return what a layer stores for one micro-batch.

    Outside the tensor-parallel regions: input of both norms, of the projections and of the MLP (4 h elements) and two
    dropout masks. Inside: query, key, value and attention output, and the MLP's inner tensors (input and output of the
    activation function, twice the input when gated; PyTorch's own modules also store the activated gate). Latent
    attention adds its latents before and after their norms. Experts store the tokens sent to them and the inner tensors
    of each; probabilities are applied inside of them (Megatron Core), else to their output, which is then stored. Under
    FP8 recipes inputs of products are stored in FP8, that of the output projection next to the attention output. The
    backward of a quantised weight unpacks it, the largest matrix at the most (bitsandbytes, ``MatMul4Bit``).
    """
    size, hidden = shares.activation_bytes, model.hidden
    low = where(is_pytorch(plans), 0.0, lookup(_LINEAR_WIDTHS, plans.precision))
    linear = where(low > 0, low, size)
    inputs = compute_stored_inputs(model, plans, shares, linear)
    eager = has_plain_modules(plans) & logical_not(plans.compiled)
    residual_extra = when(has_fp32_residual(model, plans, shares), FP32_STREAM_BYTES)
    core = _attention_core(model, plans, shares)
    # a frozen norm stores its fp32 input only, which is the stream itself where that is in fp32
    eager_norm = EAGER_NORM_BYTES - where(shares.lora_rank > 0, size + residual_extra, 0.0)
    is_eager_norm = eager & logical_not(plans.fused_norms)
    norms = model.norms_per_layer * (size + residual_extra + when(is_eager_norm, (1.0 - model.norm_bias) * eager_norm))
    stream = shares.plain_tokens * hidden
    read = where(plans.keeps_gathered, shares.tokens, shares.plain_tokens) * hidden
    output = model.heads * model.v_head_dim / shares.tp
    keys = shares.query_width + shares.kv_width
    inside = (shares.query_width + 2.0 * shares.kv_width + output + model.qk_norm * keys) * size
    inside = inside + output * (low + inputs.output) + inputs.ranks
    if any_of(plans.qkv_layout):
        inside = inside + when(plans.qkv_layout == _PACKED, _packed_elements(plans, shares) * size)
        inside = inside + when(plans.qkv_layout == _PERMUTED, _permuted_elements(plans, shares, output) * size)
    if model.has_attention_gate:
        inside = inside + model.attention_gate * (shares.query_width * size + output * linear)
    inner = (1.0 + model.gated_mlp) * size + inputs.down + when(eager, model.gated_mlp * size)
    around = stream * (norms + 2.0 * MASK_BYTES * model.dropout)
    common = around + read * inputs.attention + shares.tokens * inside + core
    latents = 0.0 * core
    if model.has_latent:
        latents = (model.q_lora_rank + model.kv_lora_rank) * (size + linear) + model.qk_rope_dim * size
        latents = shares.plain_tokens * model.is_latent * latents
        common = common + latents
    of_mlp = read * inputs.mlp
    mlp = shares.tokens * shares.ffn_width * inner
    if model.has_mixers:
        attention = common - around
        mixer = stream * linear + mixer_bytes(model, shares, linear)
        common = around + model.attention_share * attention + model.mixer_share * mixer
        core, mlp, of_mlp = model.attention_share * core, model.mlp_share * mlp, model.mlp_share * of_mlp
    outside_mlp = common + of_mlp
    plain = outside_mlp + mlp
    if model.has_encoder:
        plain = plain + model.encoder_layers / model.layers * plain * model.encoder_seq / model.seq
    matrices = 2.0 + model.gated_mlp
    gradients = 2.0 * stream + (1.0 - model.is_moe) * matrices * shares.tokens * shares.ffn_width
    sparse, routed, shared, router = plain, 0.0 * core, 0.0 * core, 0.0 * core
    if model.has_experts:
        combined = where(has_plain_modules(plans) | is_deepspeed(plans), size, 0.0)
        routed = shares.expert_tokens * (shares.expert_width * inner + hidden * (inputs.mlp + combined))
        shared = shares.tokens * shares.shared_width * inner
        router = shares.plain_tokens * model.experts * ROUTER_BYTES
        sparse = outside_mlp + model.is_moe * model.mlp_share * (routed + shared + router)
        of_experts = shares.expert_tokens * (2.0 * hidden + matrices * shares.expert_width)
        gradients = gradients + model.is_moe * (of_experts + matrices * shares.tokens * shares.shared_width)
    modules = None
    if is_by_module(plans):
        of_experts = shares.expert_tokens * shares.expert_width
        parts = ModuleBytes(
            core=core,
            heads=shares.tokens * (shares.query_width + 2.0 * shares.kv_width) * size,
            attended=shares.tokens * output * (size + low),
            latents=latents,
            stream=stream * size,
            normed=stream * linear,
            inner=shares.tokens * shares.ffn_width * inner,
            experts_input=routed - of_experts * inner,
            experts_inner=of_experts * inner,
            experts_gate=of_experts * (1.0 + model.gated_mlp) * size,
            shared=shared,
            router=router,
        )
        modules = compute_moved_bytes(model, plans, shares, parts)
    working = gradients * size
    if any_of(plans.base_bits < 16):
        working = working + when(plans.base_bits < 16, size * hidden * maximum(shares.ffn_width, shares.expert_width))
    return LayerBytes(
        plain=plain,
        sparse=sparse,
        attention_core=core,
        checkpoint=stream * (size + residual_extra),
        working=working,
        moved=modules,
    )


def _packed_elements(plans: PlanTable, shares: Shares) -> FloatColumn:
    """Return the elements a token that one product of queries, keys and values stores beyond these three.

    Values are a view of it and hold all of it, next to rotated queries and keys. Where heads share keys and values,
    these are repeated for each head, and the product is freed (litgpt/model.py, ``CausalSelfAttention``). Adapters of
    queries and values alone are copied into place by ``index_copy``, which stores them to determine its result's
    shape (derivatives.yaml of PyTorch; litgpt/lora.py, ``zero_pad``).
    """
    query, kv = shares.query_width, shares.kv_width
    held: FloatColumn = where(kv < query, 2.0 * (query - kv), query + kv)
    padded = (shares.lora_rank > 0) & (plans.lora_targets == _QUERY_VALUE)
    return held + when(padded, query + kv)


def _permuted_elements(plans: PlanTable, shares: Shares, output: FloatColumn) -> FloatColumn:
    """Return the elements a token that permuted copies store beyond queries, keys, values and the attention output.

    Queries are a view of the permuted product and hold all of it, next to keys and values copied out of it; heads that
    share keys and values have copies of all three. The output projection reads a transposed copy where there are
    several sequences (nanotron/models/llama.py, ``CausalSelfAttention``).
    """
    query, kv = shares.query_width, shares.kv_width
    return where(kv < query, 0.0, 2.0 * kv) + when(plans.micro_batch > 1, output)


def _attention_core(model: ShapeColumns, plans: PlanTable, shares: Shares) -> FloatColumn:
    """Return what the attention core stores beyond its inputs and its output [bytes]."""
    heads = model.heads / shares.tp
    statistic = shares.tokens * heads * SOFTMAX_STATISTIC_BYTES
    scores = scores_bytes(model, shares)
    is_wide = has_plain_modules(plans) & (model.flash_attention == 0) & logical_not(lookup(IS_WIDE, plans.precision))
    if any_of(is_wide):
        is_wide = is_wide & ((model.norm_bias == 0) | (plans.states == _AUTOCAST)) & logical_not(plans.compiled)
        scores = scores + when(is_wide, WIDE_SOFTMAX_BYTES * shares.tokens * model.seq * heads)
    return where(model.flash_attention > 0, statistic, scores)


def _selected_bytes(model: ShapeColumns, plans: PlanTable, shares: Shares) -> FloatColumn:
    """Return what PyTorch's selective activation checkpointing stores of a layer, without the attention core [bytes].

    Input of the layer, output of attention and of every second matrix product (torchtitan's default policy): of those
    of queries, keys, values, output, gate, up and down the first, third, fifth and seventh. A compiler omits the
    last, which no backward reads.
    """
    inner = (1.0 - model.is_moe) * shares.ffn_width + model.is_moe * (
        model.top_k * shares.expert_width + shares.shared_width
    )
    heads = shares.query_width + shares.kv_width
    output = model.heads * model.v_head_dim / shares.tp
    if model.has_mixers:
        mixer = 0.5 * ((model.mixer_into + model.mixer_shared_into) / shares.tp + 2.0 * model.hidden)
        heads = model.attention_share * heads + model.mixer_share * mixer
        output = model.attention_share * output + model.mixer_share * model.mixer_inner / shares.tp
        inner = model.mlp_share * inner
    products = heads + inner + when(logical_not(plans.compiled), model.gated_mlp * model.hidden)
    return (shares.plain_tokens * model.hidden + shares.tokens * (products + output)) * shares.activation_bytes


def compute_activations(model: ShapeColumns, plans: PlanTable, shares: Shares, stages: Stages) -> Activations:
    """Return the activations of every candidate stage.

    Stored layers of all micro-batches in flight; the dropout mask of the embedding on the first stage (GPT style); the
    inputs of final norm and head on the last; DeepSpeed's and PyTorch's pipelines store the output of a stage for
    each micro-batch in flight too (torch/distributed/pipelining/stage.py, ``fwd_cache``). Micro-batches that wait for
    weight gradients (zero-bubble) retain all. Keys and values that a model returns outlive its backward, too.
    """
    if model.has_measured:
        return compute_measured_activations(model, plans, shares, stages)
    layer = layer_bytes(model, plans, shares)
    plain, sparse = stored_layer_bytes(model, plans, shares, layer)
    layers = stages.layers
    if model.has_experts:
        stage_bytes = stages.plain_layers * plain + stages.moe_layers * sparse
        whole = stages.plain_layers * layer.plain + stages.moe_layers * layer.sparse
        largest = where(stages.moe_layers > 0, maximum(layer.sparse, layer.plain), layer.plain)
        smallest = where(stages.moe_layers > 0, sparse, plain)
        largest_stored = where(stages.moe_layers > 0, maximum(sparse, plain), plain)
    else:
        stage_bytes, whole, largest, smallest = layers * plain, layers * layer.plain, layer.plain, plain
        largest_stored = plain
    if any_of(shares.recompute_layers):
        requested = shares.recompute_layers * (model.layers / (model.layers + model.encoder_layers))
        share = minimum(maximum(requested, 0.0), layers) / layers
        partly = shares.full_recompute & (shares.recompute_layers > 0)
        stage_bytes = where(partly, share * stage_bytes + (1.0 - share) * whole, stage_bytes)
    stream = shares.plain_tokens * model.hidden
    ends = stages.is_first * stages.in_flight * MASK_BYTES * model.dropout
    ends = (
        ends
        + (2.0 * stages.is_last + when((is_deepspeed(plans) | is_pytorch(plans)) & (shares.pp > 1), stages.in_flight))
        * shares.activation_bytes
    )
    stored = stages.in_flight * stage_bytes
    if any_of(shares.schedule):
        stored = stored + stages.deferred * (whole - stage_bytes)
    brought_back = maximum(largest - smallest, 0.0)
    if layer.moved is not None:
        passing, restored = _by_module(layer.moved, stages, plans)
        stored = stored + passing
        brought_back = maximum(brought_back - passing / OFFLOADED_LAYERS, 0.0)
        brought_back = where(shares.selective_recompute & (plans.recompute_modules > 0), restored, brought_back)
    if any_of(plans.offload == _OFFLOADED):
        staying = where(plans.offload_layers > 0, maximum(1.0 - plans.offload_layers / layers, 0.0), 0.0)
        fewer = minimum(stored, staying * stored + OFFLOADED_LAYERS * largest_stored)
        stored = where(plans.offload == _OFFLOADED, fewer, stored)
    if model.has_mtp:
        stored = stored + stages.is_last * model.mtp_layers * (smallest + 4.0 * stream * shares.activation_bytes)
    lingering = when(_lingers(plans, shares), LINGERING_BYTES * layers * stream)
    if any_of(plans.keeps_kv_cache):
        cached = 2.0 * shares.tokens * shares.kv_width * shares.activation_bytes * stages.in_flight * layers
        cached = when(plans.keeps_kv_cache & shares.full_recompute, cached)
        stored, lingering = stored + cached, lingering + cached
    return Activations(
        stored=stored + stream * ends,
        restored=brought_back,
        working=layer.working,
        layer=largest,
        lingering=lingering,
    )


def _by_module(moved: MovedBytes, stages: Stages, plans: PlanTable) -> tuple[FloatColumn, FloatColumn]:
    """Return what is in transfer to or from the host, and what the backward of one layer restores [bytes].

    A layer of the kind that moves more decides, where the stage has it.
    """
    has_plain, has_sparse = stages.plain_layers > 0, stages.moe_layers > 0
    passing = OFFLOADED_LAYERS * maximum(
        when(has_plain, moved.plain_offloaded), when(has_sparse, moved.sparse_offloaded)
    )
    restored = maximum(when(has_plain, moved.plain_restored), when(has_sparse, moved.sparse_restored))
    return passing, restored


def _lingers(plans: PlanTable, shares: Shares) -> BoolColumn:
    """Return whether inputs of recomputed layers outlive their backward."""
    is_frozen_unit = shares.shards_weights & is_pytorch(plans) & (shares.lora_rank > 0)
    return is_frozen_unit & plans.reentrant & shares.full_recompute


def stored_layer_bytes(
    model: ShapeColumns, plans: PlanTable, shares: Shares, layer: LayerBytes
) -> tuple[FloatColumn, FloatColumn]:
    """Return what a layer stores on the GPU for one micro-batch, without and with experts [bytes].

    ``layer.moved`` gives what modules free; else Megatron's selective recomputation frees the attention core, and
    PyTorch's stores what its policy selects.
    """
    plain = _stored_bytes(model, plans, shares, layer, layer.plain, *_leaving(layer, plans, sparse=False))
    if not model.has_experts:
        return plain, plain
    return plain, _stored_bytes(model, plans, shares, layer, layer.sparse, *_leaving(layer, plans, sparse=True))


def _leaving(layer: LayerBytes, plans: PlanTable, *, sparse: bool) -> tuple[FloatColumn, FloatColumn]:
    """Return what selective recomputation frees of a layer, and what is offloaded [bytes]."""
    if layer.moved is None:
        return layer.attention_core, 0.0 * layer.attention_core
    freed = layer.moved.sparse_freed if sparse else layer.moved.plain_freed
    offloaded = layer.moved.sparse_offloaded if sparse else layer.moved.plain_offloaded
    return where(plans.recompute_modules > 0, freed, layer.attention_core), offloaded


def _stored_bytes(
    model: ShapeColumns,
    plans: PlanTable,
    shares: Shares,
    layer: LayerBytes,
    stored: FloatColumn,
    freed: FloatColumn,
    offloaded: FloatColumn,
) -> FloatColumn:
    """Return what remains of the ``stored`` tensors of a layer [bytes]."""
    selective = stored - freed
    if any_of(is_pytorch(plans)):
        selected = minimum(_selected_bytes(model, plans, shares) + layer.attention_core, stored)
        selective = where(is_pytorch(plans) & (plans.recompute_modules == 0), selected, selective)
    remaining = where(shares.full_recompute, layer.checkpoint, where(shares.selective_recompute, selective, stored))
    return maximum(remaining - offloaded, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredInputs:
    """Bytes an element that are stored of the inputs of linear layers, one entry a plan.

    Parameters
    ----------
    attention
        Of the input of attention, ``hidden`` wide.
    output
        Of the input of the output projection, beyond the output of the attention core, which the core stores itself.
    mlp, down
        Of the input of the MLP, ``hidden`` wide, and of its inner product, which the last projection reads.
    ranks
        Of the outputs of the first matrices of adapters, a rank wide each, times the number of adapters of a layer.
    """

    attention: FloatColumn
    output: FloatColumn
    mlp: FloatColumn
    down: FloatColumn
    ranks: FloatColumn


def compute_stored_inputs(model: ShapeColumns, plans: PlanTable, shares: Shares, linear: FloatColumn) -> StoredInputs:
    """Return what is stored of the inputs of a layer's products.

    Parameters
    ----------
    linear
        Bytes of an element in which a trained product stores its input. Autocast from an fp32 residual makes a 16-bit
        copy for each product that reads it, unless a compiler makes it once.
    """
    # autocast caches weights, not activations
    copies = where(has_fp32_residual(model, plans, shares) & (plans.compiled == 0), 1.0, 0.0)
    attention, mlp = linear * (1.0 + 2.0 * copies), linear * (1.0 + copies * model.gated_mlp)
    zero = 0.0 * linear
    if not any_of(shares.lora_rank):
        return StoredInputs(attention=attention, output=zero, mlp=mlp, down=linear, ranks=zero)
    is_lora, is_quantised = (
        shares.lora_rank > 0,
        to_int((plans.base_bits < 16) & logical_not(plans.upcast_base | widens_outputs(model, plans))),
    )
    drops, packed = to_int(plans.lora_dropout), to_int(plans.qkv_layout == _PACKED_LAYOUT)
    keeps = to_int(plans.keeps_base_inputs & (plans.base_bits == _QLORA_BITS))
    codes = (is_quantised, drops, keeps, packed, plans.lora_targets, plans.adapter_format)
    columns = lookup(_ADAPTER_BYTES, slice(None), *codes)
    of_attention, output, first, gate, down, count = columns
    return StoredInputs(
        attention=where(is_lora, of_attention, attention),
        output=where(is_lora, output, zero),
        mlp=where(is_lora, first + gate * model.gated_mlp, mlp),
        down=where(is_lora, down, linear),
        ranks=where(is_lora, count * shares.lora_rank, zero),
    )


def _adapter_bytes(
    targets: LoraTargets, stored: AdapterFormat, *, is_quantised: bool, drops: bool, keeps: bool, packed: bool
) -> list[float]:
    """Return the bytes an element of `StoredInputs` for each kind of adapter; a gated MLP has its own entry.

    A quantised layer of bitsandbytes omits the cast of the base under autocast, so that its neighbours share their
    input again (peft/tuners/lora/bnb.py, ``requires_conversion``); an fp32 input is cast by each of them all the same.
    The one adapter of a packed product has one input. Inputs that a base stores are those of adapters where they share
    them; else they are separate, cast for each product from an fp32 stream.
    """
    has_output, has_mlp = targets is not LoraTargets.QUERY_VALUE, targets is LoraTargets.ALL
    projections = 1.0 if packed else _PROJECTIONS[targets]
    is_shared = stored is AdapterFormat.BASE or (stored is AdapterFormat.AUTOCAST and is_quantised)
    stored_width = _FULL if stored is AdapterFormat.FP32 else _HALF
    width = stored_width + _MASK_BYTES * drops
    is_shared = is_shared and not drops
    of_base, again = _HALF * keeps, 0.0 if is_quantised else _HALF * keeps
    reads_same = is_shared and is_quantised
    return [
        (width if is_shared else width * projections) + (0.0 if reads_same else of_base + 2.0 * again),
        0.0 if is_shared or not has_output else width,
        width * has_mlp + (0.0 if reads_same and has_mlp else of_base),
        (0.0 if is_shared else width * has_mlp) + again,
        width * has_mlp + (0.0 if reads_same and has_mlp else of_base),
        stored_width * (_PROJECTIONS[targets] + has_output + 3.0 * has_mlp),
    ]


_ADAPTER_BYTES = np.moveaxis(
    np.array(
        [
            _adapter_bytes(targets, stored, is_quantised=quantised, drops=drops, keeps=keeps, packed=packed)
            for quantised, drops, keeps, packed in product(_FLAGS, repeat=4)
            for targets, stored in product(LORA_TARGETS, ADAPTER_FORMATS)
        ]
    ).reshape(_SHAPE),
    -1,
    0,
)

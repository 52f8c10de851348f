"""Computes the time of one layer, and of the head, on one GPU for one micro-batch.

Every operation takes its arithmetic at the reached rate, combined with its bytes at the reached memory bandwidth, plus
the gap before each kernel. The rate of a product of m x k by k x n grows smoothly with each of its dimensions,
1 / (1 + s (1/m + 1/k + 1/n)) of that of a large one: tiles and pipelines of the tensor cores that are not full. So the
fewer tokens, the higher tp, the smaller hidden, the lower the efficiency, without steps.

The rates of attention are data (``attention.toml``), measured with one launch over a whole batch; the differences in
training are modelled here: chunks of context parallelism, and launches with too few tiles for all multiprocessors.

Products in FP8 and FP4 read operands that a kernel has cast before: it reads the 16-bit tensor once or twice (for its
largest entry), and writes it in one or two layouts. Bytes are those of torchao's roofline model
(torchao/testing/training/roofline_utils.py) and of Transformer Engine's documentation on low-precision training; each
recipe is described in benchmarks/published/fp8.md of the repository.

A GPU runs no faster than its kernels are launched. Where a layer's kernels take less time than the host needs to submit
them, the host decides. Figures are those of benchmarks/published/host.md and launches.csv of the repository: kernels
counted in the frameworks' code, times measured on x86 servers; Grace CPUs take `GpuSpec.launch_factor` times as long.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opsk.costmodel.efficiency.efficiency import SoftwareColumns
from opsk.costmodel.elementwise import (
    all_of,
    any_of,
    hypot,
    log2,
    logical_not,
    lookup,
    maximum,
    minimum,
    to_float,
    to_int,
    when,
    where,
)
from opsk.costmodel.machine import Machine, load_kernel_rates
from opsk.costmodel.passes import GRADIENT_UPDATE_BYTES, Passes
from opsk.costmodel.sizes.flops import attention_matrices, index_matrices, token_flop
from opsk.costmodel.sizes.mixers import mixer_passes, mixer_products
from opsk.costmodel.sizes.shape import ShapeColumns
from opsk.costmodel.sizes.shares import Shares
from opsk.costmodel.table import IS_WIDE, PRECISIONS, SOFTWARE, STATES, BoolColumn, FloatColumn, PlanTable
from opsk.costmodel.time.adapter_time import adapter_time, count_launches, unpacked_s
from opsk.costmodel.time.elementwise_time import FormatWidths, activation_time, around_attention
from opsk.costmodel.time.experts import expert_time
from opsk.costmodel.time.gradient_time import accumulation_s
from opsk.costmodel.time.head_time import head_s
from opsk.workload.plan import Precision, Software, States

_TORCHAO: dict[Precision, tuple[float, float]] = {
    Precision.FP8: (6.0, 8.0),
    Precision.FP8_CURRENT: (6.0, 8.0),
    Precision.FP8_ROWWISE: (8.0, 10.0),
    Precision.FP8_BLOCK: (6.0, 6.0),
    Precision.MXFP8: (6.0, 6.0),
    Precision.NVFP4: (9.0, 9.0),
}
"""Bytes read and written for an element of an activation or its gradient, and for one of a weight."""
_TRANSFORMER_ENGINE: dict[Precision, tuple[float, float]] = {
    Precision.FP8: (3.5, 3.5),
    Precision.FP8_CURRENT: (5.5, 5.5),
    Precision.FP8_ROWWISE: (5.5, 5.5),
    Precision.FP8_BLOCK: (4.0, 4.0),
    Precision.MXFP8: (4.0, 4.0),
    Precision.NVFP4: (9.0, 9.0),
}
"""The same: one read (delayed, blocks) or two (current), and one written copy or two. NVFP4's Hadamard transform runs
at half of the memory's rate, so its 5 bytes count as 9."""
_BYTES = np.array(
    [
        [(by.get(precision) or (0.0, 0.0))[kind] for precision in PRECISIONS]
        for by in (_TORCHAO, _TRANSFORMER_ENGINE)
        for kind in (0, 1)
    ]
)
_PYTORCH = SOFTWARE.index(Software.PYTORCH)
_IS_LOW = np.array([precision.is_low for precision in PRECISIONS])
FORWARD_LAUNCH_S, BACKWARD_LAUNCH_S = 9e-6, 6e-6
_EAGER_S = (40 * FORWARD_LAUNCH_S, 90 * BACKWARD_LAUNCH_S)
"""Forward and backward of a layer of PyTorch modules: 38 to 44 kernels of 8 to 13 us, 85 to 100 of 5 to 8 us."""
_COMPILED_S = (13 * 5e-6, 28 * 5e-6)
"""The same compiled: 12 to 14 kernels and 25 to 30, of 3 to 6 us."""
_ENGINE_S = (14 * 13e-6, 28 * 9e-6)
"""Megatron Core with Transformer Engine: 12 to 15 kernels and 25 to 30, behind modules that take longer each."""
_FUSED_S = (24 * 9e-6, 44 * 6e-6)
"""Megatron-LM's own fused kernels (`opsk.costmodel.time.elementwise_time.FORWARD_KERNELS`)."""
_DISTRIBUTED_S = (3.9e-3, 6.7e-3)
"""What PyTorch's distributed tensors add to `_EAGER_S` under tensor parallelism: torchtitan's plan of a Llama layer
takes 4.4 and 7.5 ms of a CPU where plain tensors take 0.54 and 0.83 (torch 2.14; benchmarks/published/host.md)."""
LOW_PRECISION_FACTOR = 2.0
"""Casts and scales about double what the host does for a layer (TransformerEngine issue 761)."""
_BY_SOFTWARE = {Software.MEGATRON_CORE: _ENGINE_S, Software.MEGATRON: _FUSED_S, Software.DEEPSPEED: _FUSED_S}
_TABLE = np.array([_BY_SOFTWARE.get(member, _EAGER_S) for member in SOFTWARE]).T
FUSED_BACKWARD_FLOP = 2.5
"""Fused attention's backward over its forward: five products against two (FlashAttention-2, section 3.1)."""
CAUSAL_SHARE = 0.5
"""Fused attention skips the masked half of the scores."""
TILE_QUERIES = 128.0
"""Queries of a head that one multiprocessor works on at a time (FlashAttention-2 and -3, cuDNN: 64 to 192)."""
BENCHMARK_TILES = 2048.0
"""Tiles of the benchmarks: 16k tokens of 16 heads."""
LATENT_WIDTH = 128.0
"""Kernels for latent attention (192 wide queries, 128 wide values) reach what those for heads of 128 do: 0.98 to 1.05
of it forward and 0.81 to 0.93 backward on H200 and GB200 (benchmarks/published/attention_fits.csv)."""
_WIDTHS = (64.0, 128.0, 256.0)
ALIGNED_ELEMENTS = 8.0
"""Tensor cores take rows of 16 bytes (NVIDIA, Matrix Multiplication Background, section 3): heads of 8 elements."""
UNALIGNED_FACTOR = 8.0
"""How much slower unfused attention runs with heads that are no multiple of that: BLOOM's trials of head counts, whose
steps of 175B to 200B models are 20 to 25 % longer with heads of 108, 150 or 450 than of 96 to 224 (A100, 2022)."""
AUTOCAST_WEIGHT_BYTES = 6.0
"""Autocast reads an fp32 weight and writes its 16-bit copy, which it holds for the forward."""
_AUTOCAST = STATES.index(States.AUTOCAST)
_NOTHING = to_float(0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTime:
    """Seconds for one micro-batch, one entry a plan.

    ``plain`` is a layer with the dense MLP, ``sparse`` one with experts (the same object for a model without any),
    ``average`` their mixture over the model; ``attention`` is the part of a forward that context-parallel
    messages can overlap, and what selective recomputation repeats; ``mlp``, ``experts`` and ``shared_experts`` are the
    forwards of these modules; ``head`` is forward and backward of head and loss,
    ``embedding`` of the embedding, ``mtp`` of the projection and the head of multi-token prediction.
    """

    plain: Passes
    sparse: Passes
    average: Passes
    attention: FloatColumn
    mlp: FloatColumn
    experts: FloatColumn
    shared_experts: FloatColumn
    head: FloatColumn
    embedding: FloatColumn
    mtp: FloatColumn


@dataclass(frozen=True, slots=True, kw_only=True)
class _Products:
    """Forward of a group of products: arithmetic at the reached rate [s], bytes of activations and of weights."""

    arithmetic_s: FloatColumn
    activation_bytes: FloatColumn
    weights: FloatColumn


def layer_time(
    model: ShapeColumns, plans: PlanTable, shares: Shares, machine: Machine, software: SoftwareColumns
) -> LayerTime:
    """Return how long layers and the ends of the model take for one micro-batch [s]."""
    attention = _attention(model, plans, shares, machine)
    wide = FormatWidths.of(model, plans, shares)
    around = around_attention(model, shares, machine, software, wide)
    common = _projections(model, plans, shares, machine) + around + attention
    mlp = _mlp(model, plans, shares, machine, software, shares.ffn_width, wide)
    adapters = adapter_time(model, plans, shares, machine, software.elementwise_factor)
    of_experts = of_shared = _NOTHING
    with_attention = common
    if model.has_mixers:
        common = _average_mixed_layer(model, plans, shares, machine, around, common)
        attention, mlp = attention.times(model.attention_share), mlp.times(model.mlp_share)
    whole = common + mlp if adapters is None else common + mlp + adapters.plain
    plain = sparse = average = _add_launch_wait(_add_encoder(model, whole), plans, machine)
    if model.has_experts:
        routed = _experts(model, plans, shares, machine, software, wide)
        routed = routed.times(model.mlp_share) if model.has_mixers else routed
        sparse, of_experts = common + routed, routed.forward
        if any_of(model.shared_ffn):
            shared = _mlp(model, plans, shares, machine, software, shares.shared_width, wide)
            shared = shared.times(minimum(model.shared_ffn, 1.0) * model.mlp_share)
            sparse, of_shared = sparse + shared, shared.forward
        sparse = sparse if adapters is None else sparse + adapters.sparse
        sparse = _add_launch_wait(sparse, plans, machine)
        share = model.moe_layers / model.layers
        average = plain.times(1.0 - share) + sparse.times(share)
    head = head_s(model, plans, shares, machine, software)
    mtp = _NOTHING
    if model.has_mtp:
        last = where(model.is_moe > 0, sparse.total, plain.total)
        if model.has_mixers:
            last = with_attention.total + (last - common.total) / model.mlp_share
        projection = 12.0 * shares.tokens * model.hidden**2 / shares.tp / machine.matmul_flop_per_s
        mtp = model.mtp_layers * (last + projection + head)
    embedding = 6.0 * shares.tokens * model.hidden * shares.activation_bytes / machine.hbm_bytes_per_s
    return LayerTime(
        plain=plain,
        sparse=sparse,
        average=average,
        attention=attention.forward,
        mlp=mlp.forward,
        experts=of_experts,
        shared_experts=of_shared,
        head=head,
        embedding=embedding,
        mtp=mtp,
    )


def _add_launch_wait(layer: Passes, plans: PlanTable, machine: Machine) -> Passes:
    """Add the wait for the host to a layer's passes, where it launches kernels more slowly than they run."""
    forward, backward = launches_s(plans, machine)
    return Passes(
        forward=maximum(layer.forward, forward),
        by_input=layer.by_input + maximum(backward - layer.by_input - layer.by_weight, 0.0),
        by_weight=layer.by_weight,
    )


def _add_casts(passes: Passes, casts: tuple[FloatColumn, FloatColumn] | None) -> Passes:
    """Add the casts of the operands to the passes of products."""
    if casts is None:
        return passes
    forward, backward = casts
    return passes + Passes(forward=forward, by_input=backward, by_weight=_NOTHING)


def _average_mixed_layer(
    model: ShapeColumns, plans: PlanTable, shares: Shares, machine: Machine, around: Passes, attention: Passes
) -> Passes:
    """Return the average layer without its MLP where only some layers have attention.

    ``around`` are the norms and similar work of every layer, and ``attention`` a whole layer with attention.
    """
    weights, sides, elements = mixer_products(model, shares)
    mixer = _of_products(plans, shares, machine, weights, sides, elements * shares.activation_bytes)
    mixer = mixer + mixer_passes(model, shares, machine)
    rest = around.times(model.blocks / 2.0 - model.attention_share)
    return rest + attention.times(model.attention_share) + mixer.times(model.mixer_share)


def _add_encoder(model: ShapeColumns, decoder: Passes) -> Passes:
    """Add cross attention and the share of the encoder to a layer of the decoder, by their share of the FLOP."""
    if not model.has_encoder:
        return decoder
    flop = token_flop(model)
    decoder_flop = (
        2.0 * attention_matrices(model) + 2.0 * (2.0 + model.gated_mlp) * model.hidden * model.ffn + flop.attention
    )
    whole = flop.projections + flop.attention + flop.encoder_attention
    return decoder.times(where(model.encoder_layers > 0, whole / decoder_flop, 1.0))


def _passes(products: _Products, machine: Machine, shares: Shares) -> Passes:
    """Return the passes of a group of products [s].

    Each reads and writes m k + k n + m n elements; the weight gradient also updates the fp32 gradient, and is omitted
    for the share of the weights that is frozen.
    """
    moved = products.activation_bytes + products.weights * shares.activation_bytes
    updated = products.activation_bytes + products.weights * GRADIENT_UPDATE_BYTES
    forward = hypot(products.arithmetic_s, moved / machine.hbm_bytes_per_s)
    by_weight = hypot(products.arithmetic_s, updated / machine.hbm_bytes_per_s)
    return Passes(forward=forward, by_input=forward, by_weight=by_weight * shares.trained_share)


def _projections(model: ShapeColumns, plans: PlanTable, shares: Shares, machine: Machine) -> Passes:
    """Return the passes of a layer's attention projections [s].

    ``weights`` is the sum of k n over the products, ``sides`` that of k + n: the arithmetic is
    2 m / P ((1 + s/m) weights + s sides).
    """
    weights, sides, width = _attention_products(model, shares)
    activations = shares.tokens * (2.0 * model.hidden + width) * shares.activation_bytes
    casts = quantising_s(
        plans, shares, machine,
        inputs=shares.tokens * (model.hidden + shares.query_width),
        gradients=shares.tokens * (model.hidden + width - shares.query_width),
        weights=weights,
    )  # fmt: skip
    return _add_casts(_of_products(plans, shares, machine, weights, sides, activations), casts)


def _mlp(
    model: ShapeColumns,
    plans: PlanTable,
    shares: Shares,
    machine: Machine,
    software: SoftwareColumns,
    inner: FloatColumn,
    wide: FormatWidths | None,
) -> Passes:
    """Return the passes of an MLP of ``inner`` width on this GPU, dense or shared experts, activation included [s]."""
    hidden, gated = model.hidden, model.gated_mlp
    matrices = 2.0 + gated
    activations = shares.tokens * (2.0 * hidden + matrices * inner) * shares.activation_bytes
    weights = matrices * hidden * inner
    casts = quantising_s(
        plans, shares, machine,
        inputs=shares.tokens * (hidden + inner),
        gradients=shares.tokens * (hidden + (1.0 + gated) * inner),
        weights=weights,
    )  # fmt: skip
    sides = 2.0 * hidden + matrices * inner
    products = _add_casts(_of_products(plans, shares, machine, weights, sides, activations), casts)
    return products + activation_time(model, shares, machine, software, shares.tokens * inner, wide)


def _of_products(
    plans: PlanTable,
    shares: Shares,
    machine: Machine,
    weights: FloatColumn,
    sides: FloatColumn,
    activation_bytes: FloatColumn,
) -> Passes:
    """Return the passes of dense products of all tokens."""
    tokens, size = shares.tokens, machine.matmul_size
    arithmetic_s = 2.0 / machine.matmul_flop_per_s * ((tokens + size) * weights + size * tokens * sides)
    products = _Products(arithmetic_s=arithmetic_s, activation_bytes=activation_bytes, weights=weights)
    return _add_weight_work(_passes(products, machine, shares), plans, shares, machine, weights)


def _add_weight_work(
    passes: Passes, plans: PlanTable, shares: Shares, machine: Machine, weights: FloatColumn
) -> Passes:
    """Add the time in which weights are put into the products' format, and their gradients are added up.

    Autocast casts a whole fp32 weight once a forward (4 + 2 bytes), which FSDP does as it gathers.
    """
    unpacked = unpacked_s(plans, machine, weights)
    if unpacked is not None:
        passes = passes + Passes(forward=unpacked, by_input=unpacked, by_weight=_NOTHING)
    added_up = accumulation_s(plans, shares, machine, weights)
    if added_up is not None:
        passes = passes + Passes(forward=_NOTHING, by_input=_NOTHING, by_weight=added_up)
    is_cast: BoolColumn = plans.states == _AUTOCAST
    if any_of(is_cast):
        is_cast = is_cast & (plans.software == _PYTORCH) & logical_not(lookup(IS_WIDE, plans.precision))
        is_cast = is_cast & (shares.lora_rank == 0) & logical_not(shares.shards_weights)
        cast_s = when(is_cast, AUTOCAST_WEIGHT_BYTES * weights / machine.hbm_bytes_per_s)
        passes = passes + Passes(forward=cast_s, by_input=_NOTHING, by_weight=_NOTHING)
    return passes


def _attention_products(model: ShapeColumns, shares: Shares) -> tuple[FloatColumn, FloatColumn, FloatColumn]:
    """Return sum of k n, sum of k + n, and summed widths of the projections around attention on one GPU.

    Latent attention compresses the query to ``q_lora_rank`` and keys and values to ``kv_lora_rank`` before it expands
    them to heads; the compressing products are not split over tp.
    """
    hidden, query, kv = model.hidden, shares.query_width, shares.kv_width
    plain = 2.0 * hidden * (query + kv)
    sides = 2.0 * hidden + 2.0 * (query + kv)
    if model.has_attention_gate:
        gate = model.attention_gate * query
        plain, sides = plain + gate * hidden, sides + gate
    if not model.has_latent:
        return plain, sides, 2.0 * (query + kv)
    value = model.heads * model.v_head_dim / shares.tp
    q_rank, kv_rank = model.q_lora_rank, model.kv_lora_rank
    compressed = where(q_rank > 0, hidden * q_rank + q_rank * query, hidden * query)
    nope = query - model.heads * model.qk_rope_dim / shares.tp
    latent = compressed + hidden * (kv_rank + model.qk_rope_dim) + kv_rank * (nope + value) + value * hidden
    latent_sides = sides + 2.0 * (q_rank + kv_rank)
    if model.has_index:
        latent = latent + index_matrices(model)
    is_latent = model.is_latent > 0
    return where(is_latent, latent, plain), where(is_latent, latent_sides, sides), 2.0 * (query + kv)


def _experts(
    model: ShapeColumns,
    plans: PlanTable,
    shares: Shares,
    machine: Machine,
    software: SoftwareColumns,
    wide: FormatWidths | None,
) -> Passes:
    """Return the passes of the routed experts of one layer, without communication [s]."""
    tokens, width = shares.expert_tokens, maximum(shares.expert_width, 1.0)
    weights = maximum(model.experts / shares.ep, 1.0) * (2.0 + model.gated_mlp) * model.hidden * width
    casts = quantising_s(
        plans, shares, machine,
        inputs=tokens * (model.hidden + width),
        gradients=tokens * (model.hidden + (1.0 + model.gated_mlp) * width),
        weights=weights,
    )  # fmt: skip
    products = _add_casts(expert_time(model, shares, machine, software), casts)
    products = _add_weight_work(products, plans, shares, machine, weights)
    return products + activation_time(model, shares, machine, software, tokens * width, wide)


def _attention(model: ShapeColumns, plans: PlanTable, shares: Shares, machine: Machine) -> Passes:
    """Return forward and backward time of the attention core [s].

    Unfused attention writes and reads the a s^2 scores: 2 passes in the products, 4.5 in masked softmax and dropout
    (mask of 1 byte) forward; 4 and 5.5 backward.
    """
    forward, backward = attention_s(model, plans, shares, machine)
    is_fused = model.flash_attention > 0
    if all_of(is_fused):
        return Passes(forward=forward, by_input=backward, by_weight=_NOTHING)
    value = (model.head_dim + model.v_head_dim) / (2.0 * model.head_dim)
    flop = 4.0 * shares.tokens * shares.attended * shares.query_width * value
    slower = where(model.head_dim % ALIGNED_ELEMENTS == 0, 1.0, UNALIGNED_FACTOR)
    arithmetic = slower * flop / machine.plain_flop_per_s * (1.0 + machine.plain_size / model.head_dim)
    scores_bytes = shares.tokens * model.seq * (model.heads / shares.tp) * shares.activation_bytes
    scores_s = scores_bytes / machine.hbm_bytes_per_s
    return Passes(
        forward=where(is_fused, forward, arithmetic + 6.5 * scores_s),
        by_input=where(is_fused, backward, 2.0 * arithmetic + 9.5 * scores_s),
        by_weight=_NOTHING,
    )


def is_low(plans: PlanTable) -> BoolColumn:
    """Return which plans multiply in less than 16 bits."""
    return lookup(_IS_LOW, plans.precision)


def quantising_s(
    plans: PlanTable,
    shares: Shares,
    machine: Machine,
    *,
    inputs: FloatColumn,
    gradients: FloatColumn,
    weights: FloatColumn,
) -> tuple[FloatColumn, FloatColumn] | None:
    """Return the time of casts in the forward and in the backward pass [s]; ``None`` where no plan casts.

    Parameters
    ----------
    inputs, gradients
        Elements of the products' inputs and output gradients of one micro-batch on this GPU.
    weights
        Elements of their weights; Transformer Engine casts them once a step, torchao for every micro-batch. Frozen
        weights that are stored in FP8 are never cast (Transformer Engine's ``quantized_model_init``).
    """
    if not any_of(is_low(plans)):
        return None
    table = lookup(_BYTES, slice(None), plans.precision)
    is_pytorch = plans.software == _PYTORCH
    activation, weight = (where(is_pytorch, table[kind], table[2 + kind]) for kind in (0, 1))
    changed = where(plans.fp8_weights, shares.trained_share, 1.0)
    often = where(is_pytorch, 1.0, changed / shares.micro_batches)
    forward = activation * inputs + weight * often * weights
    return forward / machine.hbm_bytes_per_s, activation * gradients / machine.hbm_bytes_per_s


def launches_s(plans: PlanTable, machine: Machine) -> tuple[FloatColumn, FloatColumn]:
    """Return how long the host takes to launch forward and backward of one layer [s]; 0 with CUDA graphs."""
    default = lookup(_TABLE, slice(None), plans.software)
    factor = machine.launch_factor * where(is_low(plans), LOW_PRECISION_FACTOR, 1.0)
    factor = when(logical_not(plans.cuda_graphs), factor)
    forward, backward = (
        factor * where(plans.compiled & (plans.software == _PYTORCH), compiled, default[index])
        for index, compiled in enumerate(_COMPILED_S)
    )
    is_distributed = plans.distributed_tensors & (plans.tp > 1) & (plans.software == _PYTORCH)
    if any_of(is_distributed):
        is_distributed = is_distributed & logical_not(plans.compiled)
        forward = forward + when(is_distributed, factor * _DISTRIBUTED_S[0])
        backward = backward + when(is_distributed, factor * _DISTRIBUTED_S[1])
    more_forward, more_backward = count_launches(plans)
    return forward + factor * more_forward * FORWARD_LAUNCH_S, backward + factor * more_backward * BACKWARD_LAUNCH_S


def attention_s(
    model: ShapeColumns, plans: PlanTable, shares: Shares, machine: Machine
) -> tuple[FloatColumn, FloatColumn]:
    """Return forward and backward time of one layer's fused attention for one micro-batch [s].

    ``shares.attended`` are the keys a query attends to, before the causal mask halves them.
    """
    value = (model.head_dim + model.v_head_dim) / (2.0 * model.head_dim)
    flop = CAUSAL_SHARE * 4.0 * shares.tokens * shares.attended * shares.query_width * value
    rates = lookup(load_kernel_rates(), slice(None), to_int(machine.generation), plans.attention, plans.software)
    forward_share, backward_share = (_at_width(model, rates[first : first + 3]) for first in (0, 3))
    chunk = minimum(model.seq / shares.cp, shares.attended)
    filled = _filled_share(model, shares, rates[8], chunk)
    peak = machine.attention_flop_per_s * filled / flop
    forward = peak * forward_share * (chunk / (chunk + rates[6]))
    backward = peak * backward_share * (chunk / (chunk + rates[7])) / FUSED_BACKWARD_FLOP
    return 1.0 / forward, 1.0 / backward


def _at_width(model: ShapeColumns, shares: FloatColumn) -> FloatColumn:
    """Return the share of products' rate at the width of a head, between those that were measured."""
    width = where(model.is_latent > 0, LATENT_WIDTH, model.head_dim) if model.has_latent else model.head_dim
    doublings = minimum(maximum(log2(width / _WIDTHS[0]), -1.0), 2.0)
    low = shares[0] + (shares[1] - shares[0]) * doublings
    high = shares[1] + (shares[2] - shares[1]) * (doublings - 1.0)
    return maximum(where(doublings < 1.0, low, high), 0.1 * shares[1])


def _filled_share(model: ShapeColumns, shares: Shares, units: FloatColumn, chunk: FloatColumn) -> FloatColumn:
    """Return how full multiprocessors are over how full the benchmarks had them.

    Tiles run in waves: on average half of the last one is empty.
    """
    tiles = shares.tokens / chunk * maximum(model.heads / shares.tp, 1.0) * maximum(chunk / TILE_QUERIES, 1.0)
    return (1.0 + 0.5 * units / BENCHMARK_TILES) / (1.0 + 0.5 * units / tiles)

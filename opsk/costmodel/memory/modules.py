"""Computes what recomputing or offloading a module of a layer frees, and what it restores.

By the modules of Megatron Core (``megatron/core/transformer``, 0.20: ``transformer_layer.py``, ``attention.py``,
``multi_latent_attention.py``, ``moe/moe_layer.py``, ``moe/experts.py``; ``docs/user-guide/features/
fine_grained_activation_offloading.md``). Transformer Engine fuses a norm with the product behind it: norms that stand
alone are that before latent attention, and that before experts.

An offloaded module moves what the autograd of its context saves: its input, and for the attention core query, key and
value. What is recomputed anyway is not offloaded.
"""

from __future__ import annotations

from dataclasses import dataclass

from opsk.costmodel.elementwise import any_of, maximum, when, where
from opsk.costmodel.sizes.shape import ShapeColumns
from opsk.costmodel.sizes.shares import Shares
from opsk.costmodel.table import OFFLOAD_BITS, RECOMPUTE_BITS, BoolColumn, FloatColumn, IntColumn, PlanTable
from opsk.workload.plan import OffloadModule, RecomputeModule

ROUTER_BYTES = 8.0
"""Logits and probabilities of the router, in fp32, for each expert and token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleBytes:
    """What the modules of one layer store for one micro-batch, one entry a plan [bytes].

    Parameters
    ----------
    core, heads, attended
        Attention: scores or statistics of its core; query, key and value; its output.
    latents
        Latents before and after their norms.
    stream, normed
        The layer's residual stream as a norm stores it, and as the product after the norm does.
    inner, experts_input, experts_inner, experts_gate, shared, router
        Inner tensors of the dense MLP; of routed experts the tokens that they are sent, their inner tensors, and those
        before the activation function alone; inner tensors of shared experts; the router's.
    """

    core: FloatColumn
    heads: FloatColumn
    attended: FloatColumn
    latents: FloatColumn
    stream: FloatColumn
    normed: FloatColumn
    inner: FloatColumn
    experts_input: FloatColumn
    experts_inner: FloatColumn
    experts_gate: FloatColumn
    shared: FloatColumn
    router: FloatColumn


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedBytes:
    """What of a layer is not stored for a micro-batch, ``plain`` with the dense MLP, ``sparse`` with experts [bytes].

    ``freed`` is discarded and recomputed; ``restored`` of it exists at one time, attention and MLP one after the
    other; ``offloaded`` is moved to host memory.
    """

    plain_freed: FloatColumn
    sparse_freed: FloatColumn
    plain_restored: FloatColumn
    sparse_restored: FloatColumn
    plain_offloaded: FloatColumn
    sparse_offloaded: FloatColumn


def repeats(plans: PlanTable, module: RecomputeModule) -> BoolColumn:
    """Return whether a plan recomputes a module."""
    result: BoolColumn = (plans.recompute_modules & RECOMPUTE_BITS[module]) > 0
    return result


def _is_offloaded(plans: PlanTable, shares: Shares, module: OffloadModule) -> BoolColumn:
    """Return whether the activations of a module are offloaded; full recomputation leaves none."""
    result: BoolColumn = where(shares.full_recompute, False, (plans.offload_modules & OFFLOAD_BITS[module]) > 0)
    return result


def compute_moved_bytes(model: ShapeColumns, plans: PlanTable, shares: Shares, stored: ModuleBytes) -> MovedBytes:
    """Return what a layer frees and what it offloads."""
    attention, plain_mlp, sparse_mlp = _freed_bytes(model, plans, shares, stored)
    plain_offloaded, sparse_offloaded = 0.0 * attention, 0.0 * attention
    if any_of(plans.offload_modules):
        plain_offloaded, sparse_offloaded = _offloaded_bytes(model, plans, shares, stored)
    return MovedBytes(
        plain_freed=attention + plain_mlp,
        sparse_freed=attention + sparse_mlp,
        plain_restored=maximum(attention, plain_mlp),
        sparse_restored=maximum(attention, sparse_mlp),
        plain_offloaded=plain_offloaded,
        sparse_offloaded=sparse_offloaded,
    )


def _freed_bytes(
    model: ShapeColumns, plans: PlanTable, shares: Shares, stored: ModuleBytes
) -> tuple[FloatColumn, FloatColumn, FloatColumn]:
    """Return what is freed of attention, of the dense MLP, and of experts [bytes].

    The MLP includes the norm fused into its first product. The experts' checkpoint stores their input, which their
    norm can recompute; in 16 bits, where the product after it would have stored its own format.
    """
    norm = repeats(plans, RecomputeModule.LAYERNORM)
    attention = (
        when(repeats(plans, RecomputeModule.CORE_ATTN), stored.core)
        + when(norm, model.is_latent * stored.normed)
        + when(repeats(plans, RecomputeModule.MLA_UP_PROJ), model.is_latent * stored.heads)
    )
    plain = when(repeats(plans, RecomputeModule.MLP), stored.normed + stored.inner)
    if not model.has_experts:
        return attention, plain, plain
    all_of_experts = stored.experts_input + stored.experts_inner + stored.shared + stored.router
    some = when(repeats(plans, RecomputeModule.MOE_ACT), stored.experts_inner - stored.experts_gate) + when(
        repeats(plans, RecomputeModule.SHARED_EXPERTS), stored.shared
    )
    experts = repeats(plans, RecomputeModule.MOE)
    sparse = where(experts, all_of_experts, some)
    # without the norm, a checkpoint of the experts stores its input unchanged
    larger_input = when(experts, stored.stream - stored.normed)
    sparse = sparse + where(norm, stored.normed, -1.0 * larger_input)
    return attention, plain, model.is_moe * sparse + (1.0 - model.is_moe) * plain


def _offloaded_bytes(
    model: ShapeColumns, plans: PlanTable, shares: Shares, stored: ModuleBytes
) -> tuple[FloatColumn, FloatColumn]:
    """Return what of a layer is offloaded, without and with experts [bytes].

    ``qkv_linear`` includes the norm fused into it, and latents. Inputs of norms are those of norms that stand alone.
    """
    alone = model.is_latent
    norm = repeats(plans, RecomputeModule.LAYERNORM)
    normed = where(norm, 0.0, stored.normed)
    attention = (
        when(_is_offloaded(plans, shares, OffloadModule.ATTN_NORM), alone * stored.stream)
        + when(
            _is_offloaded(plans, shares, OffloadModule.QKV_LINEAR),
            alone * (normed + stored.latents) + (1.0 - alone) * (stored.stream + stored.normed),
        )
        + when(
            _is_offloaded(plans, shares, OffloadModule.CORE_ATTN),
            where(repeats(plans, RecomputeModule.MLA_UP_PROJ), (1.0 - alone) * stored.heads, stored.heads),
        )
        + when(_is_offloaded(plans, shares, OffloadModule.ATTN_PROJ), stored.attended)
    )
    if not model.has_experts:
        return attention, attention
    whole = _is_offloaded(plans, shares, OffloadModule.FUSED_GROUP_MLP)
    inner = where(repeats(plans, RecomputeModule.MOE_ACT), stored.experts_gate, stored.experts_inner)
    of_experts = (
        when(_is_offloaded(plans, shares, OffloadModule.EXPERT_FC1) | whole, stored.experts_input)
        + when(_is_offloaded(plans, shares, OffloadModule.MOE_ACT), stored.experts_gate)
        + when(whole, inner)
    )
    of_experts = where(repeats(plans, RecomputeModule.MOE), 0.0, of_experts)
    of_norm = when(_is_offloaded(plans, shares, OffloadModule.MLP_NORM), stored.stream)
    return attention, attention + model.is_moe * (of_experts + of_norm)


def moves_activations(plans: PlanTable, offloads: int) -> BoolColumn:
    """Return whether any activations are offloaded: all of them (``offloads``), or those of some modules."""
    result: BoolColumn = (plans.offload == offloads) | (plans.offload_modules > 0)
    return result


def is_by_module(plans: PlanTable) -> bool:
    """Return whether any plan names modules."""
    modules: IntColumn = plans.recompute_modules
    return bool(any_of(modules) or any_of(plans.offload_modules))

"""What does recomputing a module of a layer free, what does it bring back, and what leaves the GPU in its stead?

By the modules of Megatron Core (``megatron/core/transformer``, 0.20: ``transformer_layer.py``, ``attention.py``,
``multi_latent_attention.py``, ``moe/moe_layer.py``, ``moe/experts.py``; ``docs/user-guide/features/
fine_grained_activation_offloading.md``). Transformer Engine fuses a norm with the product behind it: norms that stand
alone are that before latent attention, and that before experts.

A module that waits in host memory leaves what the autograd of its context saves: its input, and for the attention core
query, key and value. What is thrown away anyway does not wait.
"""

from __future__ import annotations

from dataclasses import dataclass

from opsk.costmodel.elementwise import any_of, maximum, when, where
from opsk.costmodel.sizes.shape import ShapeColumns
from opsk.costmodel.sizes.shares import Shares
from opsk.costmodel.table import OFFLOAD_BITS, RECOMPUTE_BITS, BoolColumn, FloatColumn, IntColumn, PlanTable
from opsk.workload.modules import OffloadModule, RecomputeModule

ROUTER_BYTES = 8.0
"""Logits and probabilities of the router, in fp32, for each expert and token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What the modules of one layer keep for one micro-batch, one entry a plan [bytes].

    Parameters
    ----------
    core, heads, attended
        Attention: scores or statistics of its core; query, key and value; its output.
    latents
        Latents before and after their norms.
    stream, normed
        The layer's stream of tokens as a norm keeps it, and as the product behind the norm does.
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
class Moved:
    """What of a layer is not kept for a micro-batch, ``plain`` with the dense MLP, ``sparse`` with experts [bytes].

    ``freed`` is thrown away and computed again; ``restored`` of it is there at once, attention and MLP one after the
    other; ``offloaded`` waits in host memory.
    """

    plain_freed: FloatColumn
    sparse_freed: FloatColumn
    plain_restored: FloatColumn
    sparse_restored: FloatColumn
    plain_offloaded: FloatColumn
    sparse_offloaded: FloatColumn


def repeats(plans: PlanTable, module: RecomputeModule) -> BoolColumn:
    """Return whether a plan repeats a module."""
    found: BoolColumn = (plans.recompute_modules & RECOMPUTE_BITS[module]) > 0
    return found


def _offloads(plans: PlanTable, shares: Shares, module: OffloadModule) -> BoolColumn:
    """Return whether what a module keeps waits in host memory; full recomputation leaves it nothing to keep."""
    found: BoolColumn = where(shares.full_recompute, False, (plans.offload_modules & OFFLOAD_BITS[module]) > 0)
    return found


def moved(model: ShapeColumns, plans: PlanTable, shares: Shares, kept: Kept) -> Moved:
    """Return what a layer throws away and what it sends to the host."""
    attention, plain_mlp, sparse_mlp = _freed(model, plans, shares, kept)
    plain_offloaded, sparse_offloaded = 0.0 * attention, 0.0 * attention
    if any_of(plans.offload_modules):
        plain_offloaded, sparse_offloaded = _offloaded(model, plans, shares, kept)
    return Moved(
        plain_freed=attention + plain_mlp,
        sparse_freed=attention + sparse_mlp,
        plain_restored=maximum(attention, plain_mlp),
        sparse_restored=maximum(attention, sparse_mlp),
        plain_offloaded=plain_offloaded,
        sparse_offloaded=sparse_offloaded,
    )


def _freed(
    model: ShapeColumns, plans: PlanTable, shares: Shares, kept: Kept
) -> tuple[FloatColumn, FloatColumn, FloatColumn]:
    """Return what is thrown away of attention, of the dense MLP, and of experts [bytes].

    The MLP takes the norm fused into its first product along. The experts' checkpoint keeps their input, which their
    norm can make again; in 16 bits, where the product behind it would have kept a format of its own.
    """
    norm = repeats(plans, RecomputeModule.LAYERNORM)
    attention = (
        when(repeats(plans, RecomputeModule.CORE_ATTN), kept.core)
        + when(norm, model.is_latent * kept.normed)
        + when(repeats(plans, RecomputeModule.MLA_UP_PROJ), model.is_latent * kept.heads)
    )
    plain = when(repeats(plans, RecomputeModule.MLP), kept.normed + kept.inner)
    if not model.has_experts:
        return attention, plain, plain
    all_of_experts = kept.experts_input + kept.experts_inner + kept.shared + kept.router
    some = when(repeats(plans, RecomputeModule.MOE_ACT), kept.experts_inner - kept.experts_gate) + when(
        repeats(plans, RecomputeModule.SHARED_EXPERTS), kept.shared
    )
    experts = repeats(plans, RecomputeModule.MOE)
    sparse = where(experts, all_of_experts, some)
    # without the norm, a checkpoint of the experts keeps its input as it is
    larger_input = when(experts, kept.stream - kept.normed)
    sparse = sparse + where(norm, kept.normed, -1.0 * larger_input)
    return attention, plain, model.is_moe * sparse + (1.0 - model.is_moe) * plain


def _offloaded(model: ShapeColumns, plans: PlanTable, shares: Shares, kept: Kept) -> tuple[FloatColumn, FloatColumn]:
    """Return what of a layer waits in host memory, without and with experts [bytes].

    ``qkv_linear`` takes the norm fused into it along, and latents. Inputs of norms are those of norms that stand alone.
    """
    alone = model.is_latent
    norm = repeats(plans, RecomputeModule.LAYERNORM)
    normed = where(norm, 0.0, kept.normed)
    attention = (
        when(_offloads(plans, shares, OffloadModule.ATTN_NORM), alone * kept.stream)
        + when(
            _offloads(plans, shares, OffloadModule.QKV_LINEAR),
            alone * (normed + kept.latents) + (1.0 - alone) * (kept.stream + kept.normed),
        )
        + when(
            _offloads(plans, shares, OffloadModule.CORE_ATTN),
            where(repeats(plans, RecomputeModule.MLA_UP_PROJ), (1.0 - alone) * kept.heads, kept.heads),
        )
        + when(_offloads(plans, shares, OffloadModule.ATTN_PROJ), kept.attended)
    )
    if not model.has_experts:
        return attention, attention
    whole = _offloads(plans, shares, OffloadModule.FUSED_GROUP_MLP)
    inner = where(repeats(plans, RecomputeModule.MOE_ACT), kept.experts_gate, kept.experts_inner)
    of_experts = (
        when(_offloads(plans, shares, OffloadModule.EXPERT_FC1) | whole, kept.experts_input)
        + when(_offloads(plans, shares, OffloadModule.MOE_ACT), kept.experts_gate)
        + when(whole, inner)
    )
    of_experts = where(repeats(plans, RecomputeModule.MOE), 0.0, of_experts)
    of_norm = when(_offloads(plans, shares, OffloadModule.MLP_NORM), kept.stream)
    return attention, attention + model.is_moe * (of_experts + of_norm)


def moves_activations(plans: PlanTable, offloads: int) -> BoolColumn:
    """Return whether any activations wait in host memory: all of them (``offloads``), or those of some modules."""
    found: BoolColumn = (plans.offload == offloads) | (plans.offload_modules > 0)
    return found


def is_by_module(plans: PlanTable) -> bool:
    """Tell whether any plan names modules."""
    modules: IntColumn = plans.recompute_modules
    return any_of(modules) or any_of(plans.offload_modules)

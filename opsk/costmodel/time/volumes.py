"""Computes the bytes of each collective of a step, by axis, and what one GPU sends in all.

Sizes are those of the whole array, as nccl-tests defines them, for one call on one group; each docstring states how
often a step calls it. What each rank of a ring of n sends is in `ring_share`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opsk.costmodel.elementwise import any_of, where
from opsk.costmodel.sizes.shape import ShapeColumns
from opsk.costmodel.sizes.shares import Shares, expert_load
from opsk.costmodel.table import FloatColumn
from opsk.workload.plan import RecomputeModule


def ring_share(ranks: FloatColumn) -> FloatColumn:
    """Return the part of an array that each rank of a ring sends in an all-gather or reduce-scatter: (n - 1) / n.

    An all-reduce is both, one after the other: twice that.
    """
    return (ranks - 1) / ranks


def passes(shares: Shares) -> FloatColumn:
    """Return how often a micro-batch goes through a layer: forward, backward, and forward again if recomputed."""
    return 2.0 + shares.recomputed_share


def tensor_parallel_again(model: ShapeColumns, shares: Shares) -> FloatColumn:
    """Return what recomputed modules add to the passes: an MLP, dense or of experts, adds half of one."""
    if not any_of(shares.repeated_modules):
        return 0.0 * shares.tp
    moe = model.moe_layers / model.layers
    dense = (1.0 - moe) * shares.repeats(RecomputeModule.MLP)
    return 0.5 * (dense + moe * shares.repeats(RecomputeModule.MOE))


def expert_parallel_again(shares: Shares) -> FloatColumn:
    """Return what recomputed experts add to the passes: dispatch and combine of a forward."""
    return shares.repeats(RecomputeModule.MOE)


def tensor_parallel_bytes(model: ShapeColumns, shares: Shares) -> FloatColumn:
    """Return what one layer all-reduces in one pass of a micro-batch [bytes]: two arrays of s b h.

    With sequence parallelism as many reduce-scatters and all-gathers of the same volume take their place (Korthikanti
    et al. 2022, section 4.2.2). Cross attention has one more, and each layer of an encoder two of its own tokens.
    """
    arrays = 2.0 * shares.tokens * model.hidden * shares.activation_bytes
    if model.has_mixers:
        arrays = arrays * (model.blocks / 2.0)
    if not model.has_encoder:
        return arrays
    encoder = model.encoder_layers / model.layers * model.encoder_seq / model.seq
    return arrays * where(model.encoder_layers > 0, 1.5 + encoder, 1.0)


def context_parallel_bytes(shares: Shares) -> FloatColumn:
    """Return keys and values that pass round the ring in one layer [bytes].

    Ring attention sends them once in each pass, and their gradients once more in the backward pass: passes + 1 times.
    """
    return 2.0 * shares.tokens * shares.kv_width * shares.activation_bytes * shares.cp


def mixer_context_bytes(model: ShapeColumns, shares: Shares) -> FloatColumn:
    """Return what a rank sends in one layer with a mixer to have all tokens of some heads, and back [bytes]."""
    width = model.mixer_into + model.mixer_shared_into + model.mixer_inner
    return shares.tokens * width / shares.tp * shares.activation_bytes


def expert_parallel_bytes(model: ShapeColumns, shares: Shares) -> FloatColumn:
    """Return what the busiest rank moves in one all-to-all of one layer [bytes]; a pass has two, dispatch and combine.

    That is its capacity, padded, where tokens are dropped; else the mean times the imbalance.
    """
    return shares.plain_tokens * model.top_k * model.hidden * shares.activation_bytes * expert_load(model, shares.ep)


def pipeline_bytes(model: ShapeColumns, shares: Shares) -> FloatColumn:
    """Return one message between stages [bytes]: s b h / t, since every tensor-parallel rank sends its part.

    Each chunk of each micro-batch has one forward and one backward. Source: the scatter/gather optimisation of
    Narayanan et al. 2021, section 4.1; sequence parallelism splits the same way.
    """
    return shares.tokens * model.hidden * shares.activation_bytes / shares.tp


def data_parallel_bytes_per_element(shares: Shares) -> FloatColumn:
    """Return the bytes per parameter that data-parallel ranks reduce-scatter or gather.

    Once a step: gradients twice for an all-reduce, or gradients and weights where the optimizer is sharded. With ZeRO-3
    for every micro-batch: weights gathered twice and gradients reduce-scattered.
    """
    reduced, weight_bytes = shares.reduced_bytes, shares.gathered_bytes
    once = where(shares.shards_optimizer, reduced + weight_bytes, 2.0 * reduced)
    return where(shares.gathers_each, 2.0 * weight_bytes + reduced, once)


def data_parallel_calls(shares: Shares) -> FloatColumn:
    """Return how often a step does that: once, or once a micro-batch with ZeRO-3."""
    return where(shares.gathers_each, shares.micro_batches, 1.0)


def tied_embedding_bytes(model: ShapeColumns, shares: Shares) -> FloatColumn:
    """Return the gradient of a tied embedding, all-reduced between first and last stage once a step [bytes]; else 0."""
    is_shared = where(shares.pp > 1, model.tied_embeddings, 0.0)
    gradient_bytes: FloatColumn = shares.vocab * model.hidden * shares.reduced_bytes
    return is_shared * gradient_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisTraffic:
    """What one GPU of a middle pipeline stage sends in a step, by axis, one entry a plan [bytes]."""

    tp_bytes: FloatColumn
    pp_bytes: FloatColumn
    dp_bytes: FloatColumn

    @property
    def total_bytes(self) -> FloatColumn:
        """All axes together."""
        return self.tp_bytes + self.pp_bytes + self.dp_bytes


def axis_traffic(model: ShapeColumns, shares: Shares, parameters: FloatColumn) -> AxisTraffic:
    """Return what one GPU sends in a step with ring collectives [bytes].

    The rail-only paper (arXiv 2307.12169, figures 2 to 4) concludes from this that a network of rails is enough: nearly
    all bytes stay in the HB domain, and nearly no pair of GPUs ever communicates.

    ``parameters`` are those that it holds; their gradients are all-reduced once a step. GPT-1T of Megatron-LM (3,072
    GPUs, TP8 PP64 DP6, batch 3,072, 16-bit gradients) sends 752 GB for TP, 13.4 for PP and 6.6 for DP. Context and
    expert parallelism, and the repeated gathers of ZeRO-3, are left out.
    """
    tp_calls = model.layers / shares.pp * shares.micro_batches * passes(shares)
    pp_calls = np.where(shares.pp > 1, 2.0 * shares.vpp * shares.micro_batches, 0.0)
    return AxisTraffic(
        tp_bytes=2.0 * ring_share(shares.tp) * tensor_parallel_bytes(model, shares) * tp_calls,
        pp_bytes=pipeline_bytes(model, shares) * pp_calls,
        dp_bytes=2.0 * ring_share(shares.replicas) * parameters * shares.reduced_bytes,
    )


def compute_active_pair_share(gpus: FloatColumn, partners: FloatColumn | float = 1.0) -> FloatColumn:
    """Return the share of ordered pairs of GPUs that carry traffic when each sends to ``partners`` others [ratio].

    A ring has one partner. 1,024 GPUs with one each for TP, PP and DP: 0.3 %.
    """
    return partners / (gpus - 1)

"""Computes the bytes of weights, gradients and optimizer states that one GPU holds.

Bytes of a parameter (weights + gradients + master weights and Adam's moments), by the formats of the states: mixed
2 + 4 + 12 = 18 (Megatron-LM), with 16-bit gradients 2 + 2 + 12 (ZeRO, DeepSpeed), autocast and fp32 4 + 4 + 8, pure
16-bit 2 + 2 + 4. Sharding divides the optimizer (ZeRO-1, distributed optimizer: 6 + 12/dp), then gradients (ZeRO-2),
then weights (ZeRO-3, FSDP) by the sharding group, which with HSDP is a part of the replicas.

FP8 recipes of Megatron Core store weights in FP8 with their transposes, 2 bytes together, as many as 16-bit weights;
where weights stay in 16 bits (no ``--fp8-param-gather``) it stores both.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opsk.costmodel.elementwise import any_of, logical_not, lookup, maximum, minimum, to_float, when, where
from opsk.costmodel.memory.family import is_deepspeed, is_preallocated, is_pytorch, is_replicated_by_pytorch
from opsk.costmodel.sizes.parameters import ParameterCount
from opsk.costmodel.sizes.shares import Shares, has_low_gradients, names_formats, reads_low_gradients, state_sizes
from opsk.costmodel.table import (
    ADAPTER_FORMATS,
    IS_WIDE,
    OFFLOADS,
    OPTIMIZER_STEPS,
    OPTIMIZERS,
    PRECISIONS,
    SOFTWARE,
    STATES,
    BoolColumn,
    FloatColumn,
    PlanTable,
)
from opsk.workload.plan import AdapterFormat, Offload, Optimizer, OptimizerStep, Precision, Software
from opsk.workload.plan import States as Formats


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Bytes of one parameter: ``weights``, ``gradients``, ``master`` copy, and of one ``moment`` of the optimizer."""

    weights: float
    gradients: float
    master: float
    moment: float


RECIPES = {
    Formats.MIXED: Recipe(weights=2, gradients=4, master=4, moment=4),
    Formats.MIXED_16BIT_GRADIENTS: Recipe(weights=2, gradients=2, master=4, moment=4),
    Formats.AUTOCAST: Recipe(weights=4, gradients=4, master=0, moment=4),
    Formats.PURE_16BIT: Recipe(weights=2, gradients=2, master=0, moment=2),
}
"""Sources: Megatron-LM megatron/training/theoretical_memory_usage.py (18, or 6 + 12/dp); Rajbhandari et al. 2020, ZeRO,
section 3.1 (2 + 2 + 12); torchtune's full_finetune recipes (all in bf16)."""

QUANTIZED_MOMENT_BYTES = {
    Optimizer.ADAM_8BIT: 1 + 4 / 256,
    Optimizer.PAGED_ADAM_8BIT: 1 + 4 / 256,
    Optimizer.ADAM_4BIT: 1 / 2 + 4 / 128,
}
"""A moment of 8-bit optimizers is a byte, with an fp32 scale for each block of 256 (bitsandbytes since 0.45, torchao;
Dettmers et al. 2022 used 2048); of torchao's 4-bit one half a byte, with a scale for 128 (torchao/optim/adam.py)."""
MOMENT_COUNTS = {Optimizer.SGD: 1.0, Optimizer.LION: 1.0, Optimizer.MUON: 1.0, Optimizer.ADAFACTOR: 0.0}
"""Moments of a parameter; Adam's 2 where not named. Adafactor keeps sums of rows and columns only."""
_PAGED = (Optimizer.PAGED_ADAM, Optimizer.PAGED_ADAM_8BIT)

MXFP8_SCALES_BYTES = 2 / 32
"""MXFP8 keeps rows and columns, each with a scale of one byte for 32 elements (OCP MX specification 1.0)."""
NVFP4_COPIES_BYTES = 2 * (0.5 + 1 / 16)
"""NVFP4 keeps 16-bit weights, and rows and columns in 4 bits with a scale of one byte for 16 elements."""
FP8_COPIES_BYTES = 2.0
"""FP8 weights in addition to 16-bit ones, as rows and as columns, which Transformer Engine creates at the first
micro-batch of a step and reuses for the others (pytorch/module/base.py, ``get_weight_workspace``). Blackwell needs no
columns for scales of whole tensors; that is not modelled."""
SUB_GROUP_ELEMENTS = 1e9
"""DeepSpeed's ``sub_group_size`` unless configured: parameters that ZeRO-3 steps at once (config documentation)."""
NF4_BYTES = 4.127 / 8
"""A 4-bit weight of QLoRA with doubly quantised constants (Dettmers et al. 2023, arXiv 2305.14314, section 3)."""

FROZEN_BYTES = 2.0
"""A parameter of a frozen model next to the trained one: an autoencoder, a text encoder."""
HEAD_OF_ENDS = 0.5
"""Share of the head in the parameters outside of layers where it is not tied to the embedding."""

_ALL_FP32 = Recipe(weights=4.0, gradients=4.0, master=0.0, moment=4.0)
_RECIPES = [[_ALL_FP32 if precision.is_wide else RECIPES[name] for precision in PRECISIONS] for name in STATES]
_BYTES = np.array(
    [
        [[getattr(recipe, part) for recipe in row] for row in _RECIPES]
        for part in ("weights", "gradients", "master", "moment")
    ]
)
"""Bytes of weights, gradients, master copy and a moment, by formats of the states and of the products."""
_COUNT = np.array([MOMENT_COUNTS.get(name, 2.0) for name in OPTIMIZERS])
_QUANTIZED = np.array([QUANTIZED_MOMENT_BYTES.get(name, 0.0) for name in OPTIMIZERS])
_KEEPS_OPTIMIZER = np.array([place in (Offload.NONE, Offload.ACTIVATIONS) for place in OFFLOADS], dtype=np.float64)
_KEEPS_WEIGHTS = np.array([place is not Offload.OPTIMIZER_AND_WEIGHTS for place in OFFLOADS], dtype=np.float64)
_RESIDENT = np.array([name not in _PAGED for name in OPTIMIZERS], dtype=np.float64)
_EXTRA = np.array(
    [{Precision.MXFP8: MXFP8_SCALES_BYTES, Precision.NVFP4: NVFP4_COPIES_BYTES}.get(name, 0.0) for name in PRECISIONS]
)
_MUON = OPTIMIZERS.index(Optimizer.MUON)
_AUTOCAST, _MIXED = STATES.index(Formats.AUTOCAST), STATES.index(Formats.MIXED)
_IS_FP8 = np.array([name.peak_format == "fp8" for name in PRECISIONS])
_MEGATRON_CORE = SOFTWARE.index(Software.MEGATRON_CORE)
_OPTIMIZER_OFF = OFFLOADS.index(Offload.OPTIMIZER)
_EVERYTHING_OFF = OFFLOADS.index(Offload.OPTIMIZER_AND_WEIGHTS)
_16BIT_GRADIENTS = STATES.index(Formats.MIXED_16BIT_GRADIENTS)
_BASE, _UNDER_AUTOCAST = (ADAPTER_FORMATS.index(name) for name in (AdapterFormat.BASE, AdapterFormat.AUTOCAST))
_FOREACH, _IN_BACKWARD = (OPTIMIZER_STEPS.index(step) for step in (OptimizerStep.FOREACH, OptimizerStep.IN_BACKWARD))


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """Bytes of the states on the candidate stages, shape (3, plans) each.

    Parameters
    ----------
    weights, gradients, optimizer
        What is stored between steps; gradients at their peak.
    gradients_at_start
        Gradients that already exist when a backward begins: all of them where they are accumulated over micro-batches
        or are in a buffer that is never freed, none with a single micro-batch in PyTorch, which frees them each step.
    copies
        16-bit copies of fp32 weights that autocast makes for forward and backward where weights are not sharded.
    buckets
        Flat buckets of PyTorch's DDP, which copies gradients into them unless they are views of the buckets: as large
        as all gradients (``gradient_as_bucket_view``, documentation of DistributedDataParallel).
    step
        Temporary memory of the optimizer step: gradients converted to fp32, flattened by DeepSpeed.
    """

    weights: FloatColumn
    gradients: FloatColumn
    gradients_at_start: FloatColumn
    optimizer: FloatColumn
    copies: FloatColumn
    buckets: FloatColumn
    step: FloatColumn


def state_bytes(plans: PlanTable, shares: Shares, parameters: ParameterCount) -> States:
    """Return the bytes of the states on every candidate stage.

    Paged optimizer states live in host memory where the GPU is full and are not counted, like those offloaded. Under
    LoRA only the adapters have gradients and optimizer states, all in fp32 or in the formats of the states; the base
    has ``base_bits``.
    """
    weight, gradient, master, moment = lookup(_BYTES, slice(None), plans.states, plans.precision)
    if names_formats(plans):
        sizes = state_sizes(plans, gradient, master, moment)
        gradient, master, moment = sizes.gradient, sizes.master, sizes.moment
    whole = parameters.dense + parameters.experts
    split = parameters.dense / shares.shard_group + parameters.experts / shares.expert_shard_group
    trained, trained_split = 1.0 - plans.frozen_fraction, 1.0 - plans.frozen_fraction
    linear = whole - parameters.ends
    base = weight * whole + lookup(_EXTRA, plans.precision) * linear
    is_fp8 = lookup(_IS_FP8, plans.precision)
    if any_of(is_fp8):
        cached = (plans.software == _MEGATRON_CORE) & is_fp8 & logical_not(plans.fp8_weights)
        base = base + when(cached, FP8_COPIES_BYTES * linear)
    if any_of(shares.lora_rank):
        is_lora = shares.lora_rank > 0
        has_fp32 = is_lora & (plans.adapter_format != _BASE)
        weight, gradient, moment = (where(has_fp32, 4.0, size) for size in (weight, gradient, moment))
        master = where(has_fp32, 0.0, master)
        adapters = parameters.adapters + parameters.expert_adapters
        of_ends = where(plans.upcast_base | plans.gathers_fp32, 4.0, 2.0)
        head = when(plans.quantised_head, HEAD_OF_ENDS * parameters.ends)
        in_bits, as_they_are = linear + head, parameters.ends - head
        base = where(is_lora, base_weight_bytes(plans) * in_bits + of_ends * as_they_are + weight * adapters, base)
        trained = where(is_lora, adapters / whole, trained)
        adapters_split = parameters.adapters / shares.shard_group
        adapters_split = adapters_split + parameters.expert_adapters / shares.expert_shard_group
        trained_split = where(is_lora, adapters_split / split, trained_split)
    trained, trained_split = trained * whole, trained_split * split
    differentiated, differentiated_split = trained, trained_split
    if any_of(plans.flat_adapters) and any_of(shares.lora_rank):
        is_flat = plans.flat_adapters & (shares.lora_rank > 0) & shares.shards_weights
        differentiated = where(is_flat, linear + adapters, differentiated)
        differentiated_split = where(is_flat, (linear + adapters) * split / whole, differentiated_split)
    share = split / whole
    moments = _moment_bytes(plans, moment, parameters.ends / whole)
    held_parameters = where(shares.shards_optimizer, trained_split, trained)
    gradients, at_start = _gradient_bytes(plans, shares, gradient, differentiated, differentiated_split)
    if any_of(plans.optimizer_step == _IN_BACKWARD):
        steps_at_once = plans.optimizer_step == _IN_BACKWARD
        largest = gradient * maximum(parameters.layer + parameters.layer_experts, parameters.ends)
        gradients = where(steps_at_once, minimum(gradients, largest), gradients)
        at_start = where(steps_at_once, 0.0, at_start)
    on_device = lookup(_KEEPS_OPTIMIZER, plans.offload)
    if any_of(plans.offload_fraction < 1.0):
        on_device = where(plans.offload == _OPTIMIZER_OFF, 1.0 - plans.offload_fraction, on_device)
    return States(
        weights=base * where(shares.shards_weights, share, 1.0) * lookup(_KEEPS_WEIGHTS, plans.offload)
        + FROZEN_BYTES * parameters.frozen,
        gradients=gradients,
        gradients_at_start=at_start,
        optimizer=(master + moments) * held_parameters * on_device * lookup(_RESIDENT, plans.optimizer),
        copies=_copies(plans, shares, where(shares.lora_rank > 0, trained, linear * (1.0 - plans.frozen_fraction))),
        buckets=where(is_replicated_by_pytorch(plans, shares.replicas), gradients, 0.0),
        step=_step_bytes(plans, shares, held_parameters, moment, on_device),
    )


def base_weight_bytes(plans: PlanTable) -> FloatColumn:
    """Return the bytes of a frozen weight of a linear layer."""
    stored = where(plans.base_bits == 4, NF4_BYTES, plans.base_bits / 8.0)
    return where(plans.gathers_fp32 & (plans.base_bits == 16), 4.0, stored)


def _moment_bytes(plans: PlanTable, moment: FloatColumn, ends: FloatColumn) -> FloatColumn:
    """Return the bytes of all moments of a parameter; Muon leaves embedding and head (share ``ends``) to Adam."""
    quantized = lookup(_QUANTIZED, plans.optimizer)
    size = where(quantized > 0, quantized, moment)
    moments: FloatColumn = size * (lookup(_COUNT, plans.optimizer) + where(plans.optimizer == _MUON, ends, 0.0))
    return moments


def _gradient_bytes(
    plans: PlanTable, shares: Shares, gradient: FloatColumn, trained: FloatColumn, trained_split: FloatColumn
) -> tuple[FloatColumn, FloatColumn]:
    """Return gradients at their peak, and those that exist when a backward begins.

    DeepSpeed's bf16 optimizer with fp32 accumulation adds 16-bit gradients of the backward to fp32 ones, and stores
    both: 2 + 4 bytes, neither sharded by ZeRO-1. FSDP's are whole while they are added up without being sent, in the
    format in which they will be (torch/distributed/fsdp/_fully_shard/_fsdp_param.py, to_accumulated_grad_if_needed).
    Where weights live in host memory sharded gradients do too: FSDP2 copies a layer's as soon as it is reduced
    (foreach_reduce under CPUOffloadPolicy), DeepSpeed's ZeRO-Offload with the optimizer alone.
    """
    both = is_deepspeed(plans) & (plans.states == _MIXED)
    is_split = shares.shards_gradients
    if any_of(plans.accumulates_unsharded):
        is_whole = is_split & plans.accumulates_unsharded & (shares.micro_batches > 1) & is_pytorch(plans)
        is_split = is_split & logical_not(is_whole)
        gradient = where(is_whole, maximum(gradient, shares.reduced_bytes), gradient)
    gradients = (gradient + 2.0 * to_float(both)) * where(is_split, trained_split, trained)
    if any_of(plans.offload):
        gradients = where(is_split & _moves_gradients(plans), 0.0, gradients)
    stays = is_preallocated(plans) | both | (shares.micro_batches > 1)
    return gradients, where(stays, gradients, 0.0)


def _moves_gradients(plans: PlanTable) -> BoolColumn:
    """Return whether sharded gradients are copied to host memory while the backward runs."""
    with_weights = (plans.offload == _EVERYTHING_OFF) & is_pytorch(plans)
    result: BoolColumn = with_weights | (is_deepspeed(plans) & (lookup(_KEEPS_OPTIMIZER, plans.offload) == 0.0))
    return result


def _copies(plans: PlanTable, shares: Shares, trained: FloatColumn) -> FloatColumn:
    """Return the 16-bit copies of fp32 weights under autocast.

    PyTorch caches them for the whole forward, of weights that are trained: a frozen base is loaded in 16 bits or
    fewer, and what is frozen is cast again at each use.
    """
    has_fp32 = where(shares.lora_rank > 0, plans.adapter_format == _UNDER_AUTOCAST, plans.states == _AUTOCAST)
    is_copied = has_fp32 & logical_not(lookup(IS_WIDE, plans.precision)) & logical_not(shares.shards_weights)
    return where(is_copied, 2.0, 0.0) * trained


def _step_bytes(
    plans: PlanTable, shares: Shares, held: FloatColumn, moment: FloatColumn, on_device: FloatColumn
) -> FloatColumn:
    """Return the temporary memory of the optimizer step where gradients have 16 bits: 4 bytes in fp32.

    DeepSpeed first flattens them, 2 bytes more (runtime/zero/stage_1_and_2.py); ZeRO-3 does it in groups of parameters.
    PyTorch's ``foreach`` steps store the square roots of all second moments (torch/optim/adamw.py,
    _multi_tensor_adamw).
    """
    low = plans.states == _16BIT_GRADIENTS
    if names_formats(plans):
        low = has_low_gradients(plans, low) & logical_not(reads_low_gradients(plans))
    converted = where(low, 4.0 + 2.0 * to_float(is_deepspeed(plans)), 0.0)
    at_once = where(shares.shards_weights & is_deepspeed(plans), minimum(held, SUB_GROUP_ELEMENTS), held)
    roots = where(plans.optimizer_step == _FOREACH, moment, 0.0) * held
    return (converted * at_once + roots) * on_device

"""Computes the peak memory: the fullest stage, the moment of the step, its components, and the chance to fit.

Four moments can be the peak: the loss (all activations stored, logits), the start of a backward (activations, what is
recomputed, gradients of activations), the end of the last backward (all gradients, one layer) and the optimizer step.
Three quantities are distinguished: what PyTorch's tensors occupy (``torch.cuda.max_memory_allocated``), what its
caching allocator holds (``max_memory_reserved``) and what the device reports (nvidia-smi: context and NCCL's buffers
too).

The buffers beside weights and activations are those of gathered weights, reductions, the loss and NCCL.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.elementwise import (
    any_of,
    argmax,
    full_like,
    logical_not,
    lookup,
    maximum,
    minimum,
    to_float,
    to_int,
    when,
    where,
)
from opsk.costmodel.memory.activations import compute_activations
from opsk.costmodel.memory.family import has_plain_modules, is_deepspeed, is_pytorch
from opsk.costmodel.memory.measured import Activations
from opsk.costmodel.memory.states import States, base_weight_bytes, state_bytes
from opsk.costmodel.sizes.parameters import ParameterCount
from opsk.costmodel.sizes.pipeline import Extreme, Stages
from opsk.costmodel.sizes.shape import ShapeColumns
from opsk.costmodel.sizes.shares import Shares
from opsk.costmodel.table import (
    LOSSES,
    MOMENTS,
    SHARDINGS,
    STATES,
    FloatColumn,
    IntColumn,
    MemoryTable,
    PlanTable,
    StageMemory,
)
from opsk.costmodel.uncertainty.chance import compute_memory_range, fit_probability
from opsk.workload.plan import Loss, Sharding
from opsk.workload.plan import States as Formats

FUSED_LOSS_BYTES = 4.0
"""Megatron-LM: the fp32 copy of a logit, converted in place to the softmax that its backward needs."""
COMPILED_LOSS_BYTES = 8.0
"""The same in compiled functions, whose results are new tensors: exponentials next to their fp32 logits
(``calculate_predicted_logits`` in megatron/core/fusions/fused_cross_entropy.py)."""
EAGER_LOSS_BYTES = 12.0
"""PyTorch's cross entropy on fp32 logits: their copy, the logarithm of the softmax, and its gradient, 4 bytes each."""
NATIVE_LOSS_BYTES = 4.0
"""PyTorch's cross entropy on 16-bit logits, which it does not copy: the logarithm of the softmax and its gradient."""
CHUNKED_LOSS_BYTES = 4.0
"""Loss in chunks: the logarithms of the softmax of all chunks, copy and gradient of one only."""
KERNEL_LOSS_BYTES = 2.0
"""One kernel reads 16-bit logits and writes their gradient (flash_attn/ops/triton/cross_entropy.py; torch.compile of
torchtitan's loss, whose upcast is inside)."""
FP32_KERNEL_LOSS_BYTES = 6.0
"""The kernel overwrites its input, a shifted fp32 copy of the fp32 logits: 4 + 4 in place of the 2 of 16-bit logits
(transformers 4.45, modeling_llama.py; unsloth/kernels/cross_entropy_loss.py)."""
GATHERED_LAYERS = 2.0
"""FSDP holds the current layer and prefetches the next."""
REDUCED_BYTES = 4.0
"""Bytes of an element of an unsharded gradient that is reduce-scattered in fp32, in addition to the 16-bit one."""
BUCKET_ELEMENTS = 5e8
"""DeepSpeed's ``reduce_bucket_size`` unless configured: elements of a flat buffer of gradients (config documentation).
The same number bounds the buckets of its bf16 optimizer (MEMORY_OPT_ALLREDUCE_SIZE in runtime/engine.py)."""
DEEPSPEED_COMMUNICATORS = 3.0
"""Communicators that DeepSpeed's pipeline opens in addition to those of Megatron."""
LIVE_ELEMENTS = 1e9
"""DeepSpeed's ``stage3_max_live_parameters`` unless configured."""
_LOSS_BYTES = np.array(
    [
        {
            Loss.NATIVE: NATIVE_LOSS_BYTES,
            Loss.CHUNKED: CHUNKED_LOSS_BYTES,
            Loss.KERNEL: KERNEL_LOSS_BYTES,
            Loss.FP32_KERNEL: FP32_KERNEL_LOSS_BYTES,
            Loss.MEGATRON_FUSED: COMPILED_LOSS_BYTES,
        }.get(name, 0.0)
        for name in LOSSES
    ]
)
"""Bytes a logit in addition to the 16-bit logits, where the loss is not the plain one."""
_ZERO3 = SHARDINGS.index(Sharding.ZERO3)
_MIXED = STATES.index(Formats.MIXED)
_PLAIN = LOSSES.index(Loss.PLAIN)
_KEEPS_NO_LOGITS = np.array([name in (Loss.FUSED, Loss.RECOMPUTED, Loss.RECOMPUTED_FP32) for name in LOSSES])
PLAIN_MODULES_FRAGMENTATION = 0.15
"""Share of what lives for less than a step that lies between blocks where PyTorch's own modules run, whose tensors have
many sizes, without expandable segments: 15 % of what is reserved on average, up to 33 % (Guo et al. 2024, GMLake,
arXiv 2401.08156, eight models on A100). Megatron's few sizes leave less: `MemoryEfficiency.fragmentation_fraction`."""
VARIED_LENGTHS_FRACTION = 0.85
"""Blocks that micro-batches of other lengths left and the longest cannot use, over those that it allocates and frees
between forward and backward: the median of `benchmarks.costmodel.allocator_lengths`, which simulates PyTorch's caching
allocator (c10/cuda/CUDACachingAllocator.cpp); a case may reach 4."""
_LOSS, _BACKWARD, _STEP = MOMENTS.index("loss"), MOMENTS.index("backward"), MOMENTS.index("optimizer step")


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """Memory of the candidate stages at their peaks, shape (3, plans) or (plans,) each [bytes].

    Parameters
    ----------
    states, activations, buffers, logits, communication
        What it consists of.
    moments
        What is allocated at each of ``MOMENTS``.
    allocated, cached, fragments
        What tensors occupy at most, what the allocator holds for them without its fragments, and these.
    device
        What the device reports.
    """

    states: States
    activations: Activations
    buffers: Buffers
    logits: FloatColumn
    communication: FloatColumn
    moments: tuple[FloatColumn, FloatColumn, FloatColumn, FloatColumn]
    allocated: FloatColumn
    cached: FloatColumn
    fragments: FloatColumn
    device: FloatColumn


def compute_peaks(
    model: ShapeColumns,
    plans: PlanTable,
    shares: Shares,
    stages: Stages,
    parameters: ParameterCount,
    channels: FloatColumn,
    efficiency: Efficiency,
) -> Peaks:
    """Return the memory of every candidate stage at its peak.

    The allocator caches the blocks of freed activations; the large flat buffers of an optimizer step do
    not fit into them and are added. Its fragments are modelled as a share of what lives for less than a step, and for
    micro-batches of varied lengths as a larger share of transient tensors: logits, one layer and its gradients.
    Expandable segments leave none (c10/cuda/CUDACachingAllocator.cpp, ``ExpandableSegment``).
    """
    states = state_bytes(plans, shares, parameters)
    activations = compute_activations(model, plans, shares, stages)
    buffers = compute_buffers(model, plans, shares, parameters)
    logits = logits_bytes(model, plans, shares, stages)
    permanent = states.weights + states.optimizer + states.buckets + efficiency.memory.workspace_bytes
    moments = _moments(permanent, states, activations, buffers, logits)
    running = maximum(maximum(moments[0], moments[1]), moments[2])
    allocated = maximum(running, moments[3])
    lived = maximum(running - permanent - states.gradients_at_start, 0.0)
    cached = maximum(running + states.step, allocated) + efficiency.memory.slack_fraction * lived
    usual = efficiency.memory.fragmentation_fraction
    fragments = where(has_plain_modules(plans), maximum(usual, PLAIN_MODULES_FRAGMENTATION), usual) * lived
    if any_of(plans.varied_lengths):
        passing = maximum(logits, activations.restored + activations.working)
        fragments = fragments + when(plans.varied_lengths, VARIED_LENGTHS_FRACTION * passing)
    if any_of(plans.expandable_segments):
        fragments = where(plans.expandable_segments, 0.0, fragments)
    nccl = nccl_bytes(model, plans, shares, channels, efficiency)
    return Peaks(
        states=states,
        activations=activations,
        buffers=buffers,
        logits=logits,
        communication=nccl,
        moments=moments,
        allocated=allocated,
        cached=cached,
        fragments=fragments,
        device=cached + fragments + (nccl + efficiency.memory.context_bytes),
    )


def _give_back(peaks: Peaks, capacity_bytes: FloatColumn) -> Peaks:
    """Return the peaks with no more cached blocks than the GPU has room for: the allocator gives them back at need.

    What does not fit even without them keeps them.
    """
    held = peaks.cached - peaks.allocated + peaks.fragments
    room = capacity_bytes - (peaks.device - held)
    if not any_of((room >= 0) & (held > room)):
        return peaks
    share = where(room >= 0, minimum(room / maximum(held, 1.0), 1.0), 1.0)
    cached, fragments = peaks.allocated + share * (peaks.cached - peaks.allocated), share * peaks.fragments
    return replace(peaks, cached=cached, fragments=fragments, device=peaks.device - (1.0 - share) * held)


def peak_memory(
    model: ShapeColumns,
    plans: PlanTable,
    shares: Shares,
    stages: Stages,
    parameters: ParameterCount,
    capacity_bytes: FloatColumn,
    channels: FloatColumn,
    efficiency: Efficiency,
) -> MemoryTable:
    """Return the memory of a GPU of the fullest stage at its peak."""
    peaks = compute_peaks(model, plans, shares, stages, parameters, channels, efficiency)
    peaks = _give_back(peaks, capacity_bytes)
    peak_stage = Extreme.of(peaks.device)
    peak_moment = argmax([peak_stage.take(column) for column in peaks.moments])
    expected = peak_stage.take(peaks.device)
    components = _components(peak_stage, peak_moment, peaks)
    components |= {
        "workspace": full_like(expected, efficiency.memory.workspace_bytes),
        "slack": peak_stage.take(peaks.cached) - peak_stage.take(peaks.allocated),
        "fragmentation": peak_stage.take(peaks.fragments),
        "communication": peaks.communication,
        "context": full_like(expected, efficiency.memory.context_bytes),
    }
    needed = expected - components["slack"] - components["fragmentation"]
    reserved = peaks.cached + peaks.fragments
    return MemoryTable(
        capacity_bytes=capacity_bytes,
        total_bytes=compute_memory_range(expected, efficiency.spread),
        components=components,
        stage=to_int(peak_stage.take(stages.index)),
        moment=peak_moment,
        allocated_bytes=peak_stage.take(peaks.allocated),
        reserved_bytes=peak_stage.take(reserved),
        device_bytes=expected,
        by_stage=StageMemory(allocated=peaks.allocated, reserved=reserved, device=peaks.device),
        needed_bytes=compute_memory_range(needed, efficiency.spread),
        fit_probability=fit_probability(needed, capacity_bytes, efficiency.spread),
    )


def _moments(
    permanent: FloatColumn, states: States, activations: Activations, buffers: Buffers, logits: FloatColumn
) -> tuple[FloatColumn, FloatColumn, FloatColumn, FloatColumn]:
    """Return what is allocated at each of ``MOMENTS`` on the candidate stages, shape (3, plans) each [bytes]."""
    before = permanent + states.gradients_at_start + buffers.gathered + states.copies + activations.stored
    after = permanent + states.gradients
    return (
        before + logits,
        before + (activations.restored + activations.working + buffers.reduced),
        after + buffers.gathered + (activations.layer + activations.lingering + activations.working + buffers.at_end),
        after + states.step,
    )


def _components(peak_stage: Extreme, moment: IntColumn, peaks: Peaks) -> dict[str, FloatColumn]:
    """Return what is allocated at the fullest stage and moment of every plan, one entry a plan [bytes]."""
    states, activations, buffers = peaks.states, peaks.activations, peaks.buffers
    is_loss, is_backward, is_step = moment == _LOSS, moment == _BACKWARD, moment == _STEP
    before = is_loss | is_backward
    stored, working = peak_stage.take(activations.stored), peak_stage.take(activations.working)
    at_end = peak_stage.take(activations.layer) + peak_stage.take(activations.lingering)
    while_backward = where(is_backward, stored + peak_stage.take(activations.restored), at_end) + working
    waiting = where(is_backward, peak_stage.take(buffers.reduced), peak_stage.take(buffers.at_end))
    gathered = peak_stage.take(buffers.gathered) + where(before, peak_stage.take(states.copies), 0.0)
    passing = where(is_step, peak_stage.take(states.step), gathered + where(is_loss, 0.0, waiting))
    return {
        "weights": peak_stage.take(states.weights),
        "gradients": where(before, peak_stage.take(states.gradients_at_start), peak_stage.take(states.gradients)),
        "optimizer": peak_stage.take(states.optimizer),
        "activations": where(is_step, 0.0, where(is_loss, stored, while_backward)),
        "logits": where(is_loss, peak_stage.take(peaks.logits), 0.0),
        "buffers": passing + peak_stage.take(states.buckets),
    }


def logits_bytes(model: ShapeColumns, plans: PlanTable, shares: Shares, stages: Stages) -> FloatColumn:
    """Return the bytes of logits and loss on the last stage, shape (3, plans) [bytes].

    One micro-batch at a time, split over tp unless PyTorch gathers them. Megatron's vocabulary-parallel loss: 2 + 4
    bytes a logit at the most; the gradient takes the place of the softmax. PyTorch's: 2 + 12. Every head of multi-token
    prediction stores its softmax until the backward. Fused with the head no logits remain, but the gradients of both
    inputs of the head exist from the forward on (Liger, ops/fused_linear_cross_entropy.py). Under a checkpoint for each
    chunk they exist at the end of the head's backward (trl/trainer/sft_trainer.py, ``_chunked_cross_entropy_loss``).
    """
    plain = where(has_plain_modules(plans), EAGER_LOSS_BYTES, FUSED_LOSS_BYTES)
    bytes_per_logit = shares.activation_bytes + where(plans.loss == _PLAIN, plain, lookup(_LOSS_BYTES, plans.loss))
    if model.has_mtp:
        bytes_per_logit = bytes_per_logit + model.mtp_layers * FUSED_LOSS_BYTES
    logits = shares.tokens * shares.vocab * bytes_per_logit
    if any_of(plans.gathers_logits) and any_of(shares.tp > 1):
        logits = logits * where(plans.gathers_logits & is_pytorch(plans), shares.tp, 1.0)
    keeps_none = lookup(_KEEPS_NO_LOGITS, plans.loss)
    if any_of(keeps_none):
        of_head = model.hidden * (shares.tokens + shares.vocab * shares.trained_share) * shares.activation_bytes
        logits = where(keeps_none, of_head, logits)
    return stages.is_last * logits


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffers:
    """Buffers of sharded states and of data parallelism on the candidate stages, shape (3, plans) or (plans,) [bytes].

    Parameters
    ----------
    gathered
        Weights gathered for forward and backward, and permanent buckets.
    reduced
        Whole gradients of the layer whose backward ran, waiting to be reduced.
    at_end
        The same of embedding and head, at the end of the backward.
    """

    gathered: FloatColumn
    reduced: FloatColumn
    at_end: FloatColumn


def compute_buffers(model: ShapeColumns, plans: PlanTable, shares: Shares, parameters: ParameterCount) -> Buffers:
    """Return the buffers of sharded states and gradients.

    FSDP gathers two layers and holds the unit around them (embedding, head, final norm) from forward to backward, and
    holds one layer's gradients before and while they are reduced; a frozen base has none, and is gathered in the bits
    that it is stored in. A pipeline stage holds all of its weights gathered,
    and adds up whole gradients in fp32 (torchtitan; torch/distributed/pipelining/stage.py). DeepSpeed's ZeRO-3 gathers
    up to `LIVE_ELEMENTS` and has two buckets, its other stages one; its bf16 optimizer reduces and adds in fp32, the
    largest matrix at a time. Megatron Core's buffers are its gradients (`opsk.costmodel.memory.states`).
    """
    layer = parameters.layer + parameters.layer_experts
    size = where(plans.gathers_fp32, 4.0, shares.activation_bytes)
    gathered = GATHERED_LAYERS * layer * where(shares.lora_rank > 0, base_weight_bytes(plans), size)
    gathered = gathered + size * parameters.ends
    whole = size + when(shares.reduced_bytes > size, REDUCED_BYTES)
    reduced = whole * layer * where(plans.flat_adapters & (shares.lora_rank > 0), 1.0, shares.trained_share)
    at_end = whole * parameters.ends * shares.trained_share
    scattered = where(shares.shards_gradients, 1.0, 0.0)
    keeps = shares.shards_weights & logical_not(shares.gathers_each)
    if any_of(keeps):
        stage = parameters.dense + parameters.experts
        gathered = where(keeps, (size + REDUCED_BYTES * shares.trained_share) * stage, gathered)
        scattered = where(keeps, 0.0, scattered)
    buffers = Buffers(
        gathered=where(shares.shards_weights, gathered, 0.0),
        reduced=scattered * reduced,
        at_end=scattered * at_end,
    )
    if not any_of(is_deepspeed(plans)):
        return buffers
    return _add_deepspeed(model, plans, shares, parameters, buffers)


def _add_deepspeed(
    model: ShapeColumns, plans: PlanTable, shares: Shares, parameters: ParameterCount, others: Buffers
) -> Buffers:
    """Return ``others``, replaced by DeepSpeed's own buffers where it is the plan's engine."""
    is_engine, is_zero3 = is_deepspeed(plans), plans.sharding == _ZERO3
    whole = parameters.dense + parameters.experts
    bucket = when(shares.replicas > 1, minimum(BUCKET_ELEMENTS, whole))
    live = when(is_zero3, minimum(LIVE_ELEMENTS, whole) * shares.activation_bytes)
    in_fp32 = plans.states == _MIXED
    element = where(in_fp32, 4.0, shares.activation_bytes)
    largest = shares.vocab * model.hidden * where(in_fp32, 4.0, 0.0)
    gathered = live + bucket * element * (1.0 + to_float(is_zero3)) + largest
    return Buffers(
        gathered=where(is_engine, gathered, others.gathered),
        reduced=where(is_engine, 0.0, others.reduced),
        at_end=where(is_engine, 0.0, others.at_end),
    )


def communicators(model: ShapeColumns, plans: PlanTable, shares: Shares) -> FloatColumn:
    """Return how many NCCL communicators a rank opens.

    One an axis in use, and the world; with pipelines one for the gradient of a tied embedding and two for the
    neighbours; one for the norm of all gradients where a replica has several GPUs. DeepSpeed's pipeline opens its own
    for data parallelism, stages and slices in addition to Megatron's (runtime/pipe/topology.py, PipelineParallelGrid).
    """
    several = [shares.tp, shares.pp, shares.cp, shares.dp, shares.ep, shares.tp * shares.pp, shares.gpus]
    used = sum(to_float(ranks > 1) for ranks in several)
    between = 2.0 + model.tied_embeddings + DEEPSPEED_COMMUNICATORS * to_float(is_deepspeed(plans))
    return used + when(shares.pp > 1, between)


def nccl_bytes(
    model: ShapeColumns, plans: PlanTable, shares: Shares, channels: FloatColumn, efficiency: Efficiency
) -> FloatColumn:
    """Return the NCCL buffers of all communicators, each with so many ``channels`` [bytes]."""
    return communicators(model, plans, shares) * channels * efficiency.memory.channel_bytes

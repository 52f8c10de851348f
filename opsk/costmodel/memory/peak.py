"""Computes the peak memory: the fullest stage, the moment of the step, its components, and the chance to fit.

Four moments can be the peak: the loss (all activations stored, logits), the start of a backward (activations, what is
recomputed, gradients of activations), the end of the last backward (all gradients, one layer) and the optimizer step.
Three quantities are distinguished: what PyTorch's tensors occupy (``torch.cuda.max_memory_allocated``), what its
caching allocator holds (``max_memory_reserved``) and what the device reports (nvidia-smi: context and NCCL's buffers
too).
"""

from __future__ import annotations

from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.elementwise import any_of, argmax, full_like, maximum, to_int, when, where
from opsk.costmodel.memory.activations import Activations, compute_activations
from opsk.costmodel.memory.buffers import Buffers, compute_buffers, logits_bytes, nccl_bytes
from opsk.costmodel.memory.states import States, state_bytes
from opsk.costmodel.sizes.parameters import ParameterCount
from opsk.costmodel.sizes.pipeline import Extreme, Stages
from opsk.costmodel.sizes.shape import ShapeColumns
from opsk.costmodel.sizes.shares import Shares
from opsk.costmodel.table import MOMENTS, FloatColumn, IntColumn, MemoryTable, PlanTable, StageMemory
from opsk.costmodel.uncertainty.chance import compute_memory_range, fit_probability

VARIED_LENGTHS_FRACTION = 0.85
"""Blocks that micro-batches of other lengths left and the longest cannot use, over those that it allocates and frees
between forward and backward: the median of `benchmarks.allocator_lengths`, which simulates PyTorch's caching
allocator (c10/cuda/CUDACachingAllocator.cpp); a case may reach 4."""

_LOSS, _BACKWARD, _STEP = MOMENTS.index("loss"), MOMENTS.index("backward"), MOMENTS.index("optimizer step")


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
    """Return the memory of a GPU of the fullest stage at its peak.

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
    fragments = efficiency.memory.fragmentation_fraction * lived
    if any_of(plans.varied_lengths):
        passing = maximum(logits, activations.restored + activations.working)
        fragments = fragments + when(plans.varied_lengths, VARIED_LENGTHS_FRACTION * passing)
    if any_of(plans.expandable_segments):
        fragments = where(plans.expandable_segments, 0.0, fragments)
    reserved = cached + fragments
    nccl = nccl_bytes(model, plans, shares, channels, efficiency)
    device = reserved + (nccl + efficiency.memory.context_bytes)
    peak_stage = Extreme.of(device)
    peak_moment = argmax([peak_stage.take(column) for column in moments])
    expected = peak_stage.take(device)
    components = _components(peak_stage, peak_moment, states, activations, buffers, logits)
    components |= {
        "workspace": full_like(expected, efficiency.memory.workspace_bytes),
        "slack": peak_stage.take(cached) - peak_stage.take(allocated),
        "fragmentation": peak_stage.take(fragments),
        "communication": nccl,
        "context": full_like(expected, efficiency.memory.context_bytes),
    }
    needed = expected - components["slack"] - components["fragmentation"]
    return MemoryTable(
        capacity_bytes=capacity_bytes,
        total_bytes=compute_memory_range(expected, efficiency.spread),
        components=components,
        stage=to_int(peak_stage.take(stages.index)),
        moment=peak_moment,
        allocated_bytes=peak_stage.take(allocated),
        reserved_bytes=peak_stage.take(reserved),
        device_bytes=expected,
        by_stage=StageMemory(allocated=allocated, reserved=reserved, device=device),
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


def _components(
    peak_stage: Extreme,
    moment: IntColumn,
    states: States,
    activations: Activations,
    buffers: Buffers,
    logits: FloatColumn,
) -> dict[str, FloatColumn]:
    """Return what is allocated at the fullest stage and moment of every plan, one entry a plan [bytes]."""
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
        "logits": where(is_loss, peak_stage.take(logits), 0.0),
        "buffers": passing + peak_stage.take(states.buckets),
    }

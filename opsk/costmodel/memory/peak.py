"""Which stage's GPUs are fullest, at which moment of the step, with what, and will it fit?

Four moments can be the fullest: the loss (all activations kept, logits), the start of a backward (activations, what is
recomputed, gradients of activations), the end of the last backward (all gradients, one layer) and the optimizer step.
Three quantities are told apart: what PyTorch's tensors occupy (``torch.cuda.max_memory_allocated``), what its caching
allocator holds (``max_memory_reserved``) and what the device reports (nvidia-smi: context and NCCL's buffers too).
"""

from __future__ import annotations

from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.elementwise import any_of, filled, maximum, when, where, which_is_most, whole
from opsk.costmodel.memory.activations import Activations, activations_of
from opsk.costmodel.memory.buffers import Buffers, buffers_of, logits_bytes, nccl_bytes
from opsk.costmodel.memory.states import States, state_bytes
from opsk.costmodel.sizes.parameters import ParameterCount
from opsk.costmodel.sizes.pipeline import Extreme, Stages
from opsk.costmodel.sizes.shape import ShapeColumns
from opsk.costmodel.sizes.shares import Shares
from opsk.costmodel.table import MOMENTS, FloatColumn, IntColumn, MemoryTable, PlanTable, StageMemory
from opsk.costmodel.uncertainty.chance import fit_probability, range_of

VARIED_LENGTHS_FRACTION = 0.85
"""Blocks that micro-batches of other lengths left and the longest cannot use, over those that it makes and frees
between forward and backward: the median of `benchmarks.allocator_lengths`, which plays PyTorch's caching allocator
through (c10/cuda/CUDACachingAllocator.cpp); a case may reach 4."""

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
    """Return the memory of a GPU of the fullest stage at its fullest moment.

    The allocator keeps the blocks of activations when they are freed; the large flat buffers of an optimizer step do
    not fit into them and come on top. Its fragments are taken as a share of what lives for less than a step, and of
    micro-batches of varied lengths as a larger one of what passes: logits, a layer at work and its gradients.
    Segments that grow leave none (c10/cuda/CUDACachingAllocator.cpp, ``ExpandableSegment``).
    """
    states = state_bytes(plans, shares, parameters)
    activations = activations_of(model, plans, shares, stages)
    buffers = buffers_of(model, plans, shares, parameters)
    logits = logits_bytes(model, plans, shares, stages)
    at_rest = states.weights + states.optimizer + states.buckets + efficiency.memory.workspace_bytes
    moments = _moments(at_rest, states, activations, buffers, logits)
    running = maximum(maximum(moments[0], moments[1]), moments[2])
    allocated = maximum(running, moments[3])
    lived = maximum(running - at_rest - states.gradients_at_start, 0.0)
    cached = maximum(running + states.step, allocated) + efficiency.memory.slack_fraction * lived
    fragments = efficiency.memory.fragmentation_fraction * lived
    if any_of(plans.varied_lengths):
        passing = maximum(logits, activations.again + activations.working)
        fragments = fragments + when(plans.varied_lengths, VARIED_LENGTHS_FRACTION * passing)
    if any_of(plans.expandable_segments):
        fragments = where(plans.expandable_segments, 0.0, fragments)
    reserved = cached + fragments
    nccl = nccl_bytes(model, plans, shares, channels, efficiency)
    device = reserved + (nccl + efficiency.memory.context_bytes)
    at = Extreme.of(device)
    at_moment = which_is_most([at.chosen(column) for column in moments])
    expected = at.chosen(device)
    components = _components(at, at_moment, states, activations, buffers, logits)
    components |= {
        "workspace": filled(expected, efficiency.memory.workspace_bytes),
        "slack": at.chosen(cached) - at.chosen(allocated),
        "fragmentation": at.chosen(fragments),
        "communication": nccl,
        "context": filled(expected, efficiency.memory.context_bytes),
    }
    needed = expected - components["slack"] - components["fragmentation"]
    return MemoryTable(
        capacity_bytes=capacity_bytes,
        total_bytes=range_of(expected, efficiency.spread),
        components=components,
        stage=whole(at.chosen(stages.index)),
        moment=at_moment,
        allocated_bytes=at.chosen(allocated),
        reserved_bytes=at.chosen(reserved),
        device_bytes=expected,
        by_stage=StageMemory(allocated=allocated, reserved=reserved, device=device),
        needed_bytes=range_of(needed, efficiency.spread),
        fit_probability=fit_probability(needed, capacity_bytes, efficiency.spread),
    )


def _moments(
    at_rest: FloatColumn, states: States, activations: Activations, buffers: Buffers, logits: FloatColumn
) -> tuple[FloatColumn, FloatColumn, FloatColumn, FloatColumn]:
    """Return what is allocated at each of ``MOMENTS`` on the candidate stages, shape (3, plans) each [bytes]."""
    before = at_rest + states.gradients_at_start + buffers.gathered + states.copies + activations.kept
    after = at_rest + states.gradients
    return (
        before + logits,
        before + (activations.again + activations.working + buffers.reduced),
        after + buffers.gathered + (activations.layer + activations.lingering + activations.working + buffers.at_end),
        after + states.step,
    )


def _components(
    at: Extreme,
    moment: IntColumn,
    states: States,
    activations: Activations,
    buffers: Buffers,
    logits: FloatColumn,
) -> dict[str, FloatColumn]:
    """Return what is allocated at the fullest stage and moment of every plan, one entry a plan [bytes]."""
    is_loss, is_backward, is_step = moment == _LOSS, moment == _BACKWARD, moment == _STEP
    before = is_loss | is_backward
    kept, working = at.chosen(activations.kept), at.chosen(activations.working)
    at_end = at.chosen(activations.layer) + at.chosen(activations.lingering)
    while_backward = where(is_backward, kept + at.chosen(activations.again), at_end) + working
    waiting = where(is_backward, at.chosen(buffers.reduced), at.chosen(buffers.at_end))
    gathered = at.chosen(buffers.gathered) + where(before, at.chosen(states.copies), 0.0)
    passing = where(is_step, at.chosen(states.step), gathered + where(is_loss, 0.0, waiting))
    return {
        "weights": at.chosen(states.weights),
        "gradients": where(before, at.chosen(states.gradients_at_start), at.chosen(states.gradients)),
        "optimizer": at.chosen(states.optimizer),
        "activations": where(is_step, 0.0, where(is_loss, kept, while_backward)),
        "logits": where(is_loss, at.chosen(logits), 0.0),
        "buffers": passing + at.chosen(states.buckets),
    }

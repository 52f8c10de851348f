"""Which stage's GPUs are fullest, at which moment of the step, with what, and will it fit?

Four moments can be the fullest: the loss (all activations kept, logits), the start of a backward (activations, what is
recomputed, gradients of activations), the end of the last backward (all gradients, one layer) and the optimizer step.
Three quantities are told apart: what PyTorch's tensors occupy (``torch.cuda.max_memory_allocated``), what its caching
allocator holds (``max_memory_reserved``) and what the device reports (nvidia-smi: context and NCCL's buffers too).
"""

from __future__ import annotations

import numpy as np

from opsk.costmodel.efficiency import Efficiency
from opsk.costmodel.memory.activations import Activations, activations_of
from opsk.costmodel.memory.buffers import Buffers, buffers_of, logits_bytes, nccl_bytes
from opsk.costmodel.memory.chance import fit_probability, range_of
from opsk.costmodel.memory.states import States, state_bytes
from opsk.costmodel.parameters import ParameterCount
from opsk.costmodel.pipeline import Stages
from opsk.costmodel.shape import ShapeColumns
from opsk.costmodel.shares import Shares
from opsk.costmodel.table import MOMENTS, FloatColumn, MemoryTable, PlanTable, StageMemory

_STEP = len(MOMENTS) - 1


def peak_memory(
    model: ShapeColumns,
    plans: PlanTable,
    shares: Shares,
    stages: Stages,
    parameters: ParameterCount,
    capacity_bytes: FloatColumn,
    efficiency: Efficiency,
) -> MemoryTable:
    """Return the memory of a GPU of the fullest stage at its fullest moment.

    The allocator keeps the blocks of activations when they are freed; the large flat buffers of an optimizer step do
    not fit into them and come on top. Its fragments are taken as a share of what lives for less than a step.
    """
    states = state_bytes(plans, shares, parameters)
    activations = activations_of(model, plans, shares, stages)
    buffers = buffers_of(model, plans, shares, parameters)
    logits = logits_bytes(model, plans, shares, stages)
    moments = _moments(states, activations, buffers, logits)
    constant = states.weights + states.optimizer + efficiency.memory.workspace_bytes
    by_moment = np.stack([sum(parts.values(), start=constant) for parts in moments])
    moment = np.argmax(by_moment, axis=0)
    allocated = np.max(by_moment, axis=0)
    running = np.max(by_moment[:_STEP], axis=0)
    fragments = efficiency.memory.slack_fraction * np.maximum(running - constant - states.gradients_at_start, 0.0)
    reserved = np.maximum(running + states.step, allocated) + fragments
    nccl = nccl_bytes(model, plans, shares, efficiency)
    device = reserved + nccl + efficiency.memory.context_bytes
    fullest, rows = np.argmax(device, axis=0), np.arange(device.shape[1])

    def chosen(column: FloatColumn) -> FloatColumn:
        entries: FloatColumn = np.broadcast_to(column, device.shape)[fullest, rows]
        return entries

    at = moment[fullest, rows]
    components = {"weights": chosen(states.weights), "optimizer": chosen(states.optimizer)}
    for name in moments[0]:
        components[name] = np.stack([chosen(parts[name]) for parts in moments])[at, rows]
    components["workspace"] = np.full(rows.shape, efficiency.memory.workspace_bytes)
    components["slack"] = chosen(reserved - allocated)
    components["communication"] = chosen(nccl)
    components["context"] = np.full(rows.shape, efficiency.memory.context_bytes)
    expected = device[fullest, rows]
    return MemoryTable(
        capacity_bytes=capacity_bytes,
        total_bytes=range_of(expected, efficiency.spread),
        components=components,
        stage=stages.index[fullest, rows].astype(np.int64),
        moment=at,
        allocated_bytes=allocated[fullest, rows],
        reserved_bytes=reserved[fullest, rows],
        device_bytes=expected,
        by_stage=StageMemory(allocated=allocated, reserved=reserved, device=device),
        fit_probability=fit_probability(expected - components["slack"], capacity_bytes, efficiency.spread),
    )


def _moments(
    states: States, activations: Activations, buffers: Buffers, logits: FloatColumn
) -> tuple[dict[str, FloatColumn], ...]:
    """Return what comes on top of weights and optimizer at each of ``MOMENTS``, shape (3, plans) each [bytes]."""
    zero = np.zeros_like(states.weights)
    return (
        {
            "gradients": states.gradients_at_start,
            "activations": activations.kept,
            "logits": logits,
            "buffers": buffers.gathered + states.copies,
        },
        {
            "gradients": states.gradients_at_start,
            "activations": activations.kept + activations.again + activations.working,
            "logits": zero,
            "buffers": buffers.gathered + buffers.reduced + states.copies,
        },
        {
            "gradients": states.gradients,
            "activations": activations.layer + activations.working + zero,
            "logits": zero,
            "buffers": buffers.gathered + buffers.at_end + states.copies,
        },
        {
            "gradients": states.gradients,
            "activations": zero,
            "logits": zero,
            "buffers": states.step,
        },
    )

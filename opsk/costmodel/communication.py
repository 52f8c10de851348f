"""How much of the communication of one step is exposed, by axis?

Groups lie over the machine as Megatron-LM numbers ranks: tp innermost, then cp, then dp (ep inside it), pp outermost.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opsk.costmodel import volumes
from opsk.costmodel.collectives.hierarchical import (
    all_gather_s,
    all_reduce_s,
    all_to_all_s,
    group_of,
    point_to_point_s,
)
from opsk.costmodel.efficiency import SoftwareColumns
from opsk.costmodel.layer_time import LayerTime
from opsk.costmodel.machine import Machine
from opsk.costmodel.parameters import ParameterCount
from opsk.costmodel.shape import ShapeColumns
from opsk.costmodel.shares import Shares
from opsk.costmodel.table import FloatColumn


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCommunication:
    """Exposed communication of one layer for one micro-batch, one entry a plan [s]."""

    tp: FloatColumn
    cp: FloatColumn
    ep: FloatColumn


def layer_communication(
    model: ShapeColumns, shares: Shares, times: LayerTime, machine: Machine, software: SoftwareColumns
) -> LayerCommunication:
    """Return the exposed communication of one layer, forward, backward and recomputation [s]."""
    passes = volumes.passes(shares)
    return LayerCommunication(
        tp=_tensor_parallel_s(model, shares, times, machine, software, passes),
        cp=_context_parallel_s(shares, times, machine, software, passes),
        ep=_expert_parallel_s(model, shares, machine, passes),
    )


def _tensor_parallel_s(
    model: ShapeColumns,
    shares: Shares,
    times: LayerTime,
    machine: Machine,
    software: SoftwareColumns,
    passes: FloatColumn,
) -> FloatColumn:
    """Two all-reduces a pass, or as many reduce-scatters and all-gathers of the same volume."""
    group = group_of(machine, stride=1.0, size=shares.tp)
    total = passes * all_reduce_s(machine, group, volumes.tensor_parallel_bytes(model, shares), 2.0)
    return np.maximum(total - software.tp_overlap * (times.forward + times.backward), 0.0)


def _context_parallel_s(
    shares: Shares, times: LayerTime, machine: Machine, software: SoftwareColumns, passes: FloatColumn
) -> FloatColumn:
    """Ring attention: keys and values of one rank pass all others, and their gradients come back."""
    group = group_of(machine, stride=shares.tp, size=shares.cp)
    one_pass = all_gather_s(machine, group, volumes.context_parallel_bytes(shares), 1.0)
    return np.maximum(one_pass - software.cp_overlap * times.attention, 0.0) * (passes + 1.0)


def _expert_parallel_s(model: ShapeColumns, shares: Shares, machine: Machine, passes: FloatColumn) -> FloatColumn:
    """Dispatch and combine of every routed token, an all-to-all each."""
    group = group_of(machine, stride=shares.tp * shares.cp, size=shares.ep)
    return passes * all_to_all_s(machine, group, 2.0 * volumes.expert_parallel_bytes(model, shares), 2.0)


def pipeline_s(model: ShapeColumns, shares: Shares, machine: Machine) -> FloatColumn:
    """Return the time that one stage spends on messages for one micro-batch [s].

    One activation in and one gradient in for each of its chunks, never hidden.
    """
    calls = np.where(shares.pp > 1, 2.0 * shares.vpp, 0.0)
    stride = shares.tp * shares.cp * shares.dp
    return point_to_point_s(machine, stride=stride, size_bytes=volumes.pipeline_bytes(model, shares), calls=calls)


def data_parallel_s(
    model: ShapeColumns,
    shares: Shares,
    parameters: ParameterCount,
    machine: Machine,
    software: SoftwareColumns,
    compute_s: FloatColumn,
    backward_s: FloatColumn,
) -> FloatColumn:
    """Return the exposed data-parallel communication of one step, shape (3, plans) [s].

    Gradients are all-reduced once a step (reduce-scattered and weights gathered when the optimizer is sharded, the same
    volume in a ring); with ZeRO-3 weights are gathered twice and gradients reduce-scattered for every micro-batch, one
    layer at a time.

    Parameters
    ----------
    compute_s, backward_s
        Computation, and its backward part, of one micro-batch on each candidate stage [s].
    """
    dense_group = group_of(machine, stride=shares.tp, size=shares.replicas)
    per_element = volumes.data_parallel_bytes_per_element(shares)
    calls = np.where(shares.shards_weights, 3.0 * model.layers / shares.pp, 2.0)
    total = all_gather_s(machine, dense_group, parameters.dense * per_element, calls)
    if model.has_experts:
        expert_group = group_of(machine, stride=shares.tp * shares.ep, size=shares.expert_replicas)
        total = total + all_gather_s(machine, expert_group, parameters.experts * per_element, calls)
    window_s = np.where(shares.shards_weights, software.fsdp_overlap * compute_s, software.dp_overlap * backward_s)
    return np.maximum(total - window_s, 0.0) * volumes.data_parallel_calls(shares)


def tied_embedding_s(model: ShapeColumns, shares: Shares, machine: Machine) -> FloatColumn:
    """Return the time to all-reduce the gradient of a tied embedding between first and last stage [s]."""
    size_bytes = volumes.tied_embedding_bytes(model, shares)
    stride = shares.tp * shares.cp * shares.dp * np.maximum(shares.pp - 1, 1.0)
    return point_to_point_s(machine, stride=stride, size_bytes=size_bytes, calls=np.where(size_bytes > 0, 1.0, 0.0))

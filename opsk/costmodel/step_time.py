"""How long does one optimizer step take, and what takes it?"""

from __future__ import annotations

import math

import numpy as np

from opsk.costmodel.communication import data_parallel, layer_communication, pipeline, tied_embedding_s
from opsk.costmodel.efficiency import SoftwareColumns, Spread
from opsk.costmodel.flops import hardware_flop, model_flop
from opsk.costmodel.layer_time import layer_time
from opsk.costmodel.machine import Machine
from opsk.costmodel.parameters import ParameterCount
from opsk.costmodel.pipeline import Stages, bubble_micro_batches
from opsk.costmodel.shape import ShapeColumns
from opsk.costmodel.shares import Shares
from opsk.costmodel.table import FloatColumn, Range, TimeTable
from opsk.units import TERA

OPTIMIZER_BYTES_PER_PARAMETER = 42.0
"""Adam: gradient norm 4, unscale 8, gradient 4, master weight, momentum and variance read and written 24, weight 2."""
CONFIDENCE_SIGMAS = 1.645
"""A range holds 90 % of a normal distribution."""


def step_time(
    model: ShapeColumns,
    shares: Shares,
    stages: Stages,
    parameters: ParameterCount,
    machine: Machine,
    software: SoftwareColumns,
    spread: Spread,
) -> TimeTable:
    """Return the time of one step and its rates."""
    components, traffic = _components(model, shares, stages, parameters, machine, software)
    expected = np.sum(list(components.values()), axis=0)
    factor = math.exp(CONFIDENCE_SIGMAS * spread.time_log_sigma)
    step_s = Range(low=expected / factor, expected=expected, high=expected * factor)
    useful, done = model_flop(model, shares.global_batch), hardware_flop(model, shares)
    gpus = shares.gpus
    return TimeTable(
        step_s=step_s,
        tokens_per_s_per_gpu=_rate(model.seq * shares.global_batch / gpus, step_s),
        tflops_per_gpu=_rate(useful / gpus / TERA, step_s),
        mfu=_rate(useful / (gpus * machine.peak_flop_per_s), step_s),
        hfu=_rate(done / (gpus * machine.peak_flop_per_s), step_s),
        model_flop=useful,
        hardware_flop=done,
        components=components,
        communication=traffic,
    )


def _rate(work: FloatColumn, step_s: Range) -> Range:
    """Return work over time; the slowest step gives the lowest rate."""
    return Range(low=work / step_s.high, expected=work / step_s.expected, high=work / step_s.low)


def _components(
    model: ShapeColumns,
    shares: Shares,
    stages: Stages,
    parameters: ParameterCount,
    machine: Machine,
    software: SoftwareColumns,
) -> tuple[dict[str, FloatColumn], dict[str, FloatColumn]]:
    """Return the parts of the step, and the whole communication of each axis, hidden or not [s].

    The slowest stage sets the pace for all micro-batches; the pipeline fills and drains at the average stage's pace.
    """
    times = layer_time(model, shares, parameters, machine, software)
    layer = layer_communication(model, shares, times, machine, software)
    ends = stages.is_last * times.head + stages.is_first * times.embedding
    exposed_s = layer.tp.exposed + layer.cp.exposed + layer.ep.exposed
    layer_s = times.forward + times.backward + times.again + exposed_s
    stage_s = stages.layers * layer_s + ends
    slowest = np.argmax(stage_s, axis=0)
    rows = np.arange(slowest.shape[0])
    layers, slow_ends = stages.layers[slowest, rows], ends[slowest, rows]
    count = shares.micro_batches
    per_layer = count * layers
    messages = pipeline(model, shares, machine, software)
    average_s = (model.layers * layer_s + times.head + times.embedding) / shares.pp
    backward_s = stages.layers * times.backward + ends * (2.0 / 3.0)
    compute_s = stages.layers * (times.forward + times.backward + times.again) + ends
    synchronised = data_parallel(model, shares, parameters, machine, software, compute_s, backward_s)
    tied_s = tied_embedding_s(model, shares, machine)
    components = {
        "compute": per_layer * (times.forward + times.backward) + count * slow_ends,
        "recompute": per_layer * times.again,
        "tp": per_layer * layer.tp.exposed,
        "cp": per_layer * layer.cp.exposed,
        "ep": per_layer * layer.ep.exposed,
        "pp": count * messages.exposed,
        "bubble": bubble_micro_batches(shares) * (average_s + messages.exposed),
        "dp": synchronised.exposed.max(axis=0) + tied_s,
        "optimizer": _optimizer(shares, parameters, machine),
        "overhead": software.step_overhead_s,
    }
    components["straggler"] = _straggling(shares, machine, software) * np.sum(list(components.values()), axis=0)
    traffic = {
        "tp": per_layer * layer.tp.total,
        "cp": per_layer * layer.cp.total,
        "ep": per_layer * layer.ep.total,
        "pp": count * messages.total,
        "dp": synchronised.total.max(axis=0) + tied_s,
    }
    return components, traffic


def _straggling(shares: Shares, machine: Machine, software: SoftwareColumns) -> FloatColumn:
    """Return by what share the slowest of the nodes holds up the step: a part for each doubling of them.

    The maximum of n like times grows with the logarithm of n where their tails are exponential.
    """
    return software.straggler_fraction * np.log2(np.maximum(shares.gpus / machine.node_gpus, 1.0))


def _optimizer(shares: Shares, parameters: ParameterCount, machine: Machine) -> FloatColumn:
    """Return the time of the optimizer on the stage with most parameters, bound by memory [s]."""
    dense = parameters.dense / np.where(shares.shards_optimizer, shares.shard_group, 1.0)
    experts = parameters.experts / np.where(shares.shards_optimizer, shares.expert_shard_group, 1.0)
    largest: FloatColumn = (dense + experts).max(axis=0)
    return largest * OPTIMIZER_BYTES_PER_PARAMETER / machine.hbm_bytes_per_s

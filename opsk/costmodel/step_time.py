"""How long does one optimizer step take, and what takes it?"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from opsk.costmodel.communication import data_parallel_s, layer_communication, pipeline_s, tied_embedding_s
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
    components = _components(model, shares, stages, parameters, machine, software)
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
) -> Mapping[str, FloatColumn]:
    """Return the parts of the step [s].

    The slowest stage sets the pace for all micro-batches; the pipeline fills and drains at the average stage's pace.
    """
    times = layer_time(model, shares, parameters, machine, software)
    exposed = layer_communication(model, shares, times, machine, software)
    ends = stages.is_last * times.head + stages.is_first * times.embedding
    layer_s = times.forward + times.backward + times.again + exposed.tp + exposed.cp + exposed.ep
    stage_s = stages.layers * layer_s + ends
    slowest = np.argmax(stage_s, axis=0)
    rows = np.arange(slowest.shape[0])
    layers, slow_ends = stages.layers[slowest, rows], ends[slowest, rows]
    count = shares.micro_batches
    per_layer = count * layers
    messages = pipeline_s(model, shares, machine)
    average_s = (model.layers * layer_s + times.head + times.embedding) / shares.pp
    backward_s = stages.layers * times.backward + ends * (2.0 / 3.0)
    compute_s = stages.layers * (times.forward + times.backward + times.again) + ends
    synchronised = data_parallel_s(model, shares, parameters, machine, software, compute_s, backward_s)
    return {
        "compute": per_layer * (times.forward + times.backward) + count * slow_ends + software.step_overhead_s,
        "recompute": per_layer * times.again,
        "tp": per_layer * exposed.tp,
        "cp": per_layer * exposed.cp,
        "ep": per_layer * exposed.ep,
        "pp": count * messages,
        "bubble": bubble_micro_batches(shares) * (average_s + messages),
        "dp": synchronised.max(axis=0) + tied_embedding_s(model, shares, machine),
        "optimizer": _optimizer(shares, parameters, machine),
    }


def _optimizer(shares: Shares, parameters: ParameterCount, machine: Machine) -> FloatColumn:
    """Return the time of the optimizer on the stage with most parameters, bound by memory [s]."""
    dense = parameters.dense / np.where(shares.shards_optimizer, shares.replicas, 1.0)
    experts = parameters.experts / np.where(shares.shards_optimizer, shares.expert_replicas, 1.0)
    largest: FloatColumn = (dense + experts).max(axis=0)
    return largest * OPTIMIZER_BYTES_PER_PARAMETER / machine.hbm_bytes_per_s

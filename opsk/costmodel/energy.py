"""Computes the energy of a step, a token and a whole run: GPUs by state, hosts, network, and the building.

Energy is time times power, E = t x P (Yin et al. 2023). The GPU's power is that of its states
(`opsk.costmodel.machine`) weighted with their time in the step. Not modelled: storage, login and management nodes, the
energy of failed and repeated steps, and the power that communication adds while it overlaps computation (the board's
limit caps both).
"""

from __future__ import annotations

from dataclasses import replace

from opsk.costmodel.elementwise import exp, hypot, log, minimum
from opsk.costmodel.machine import STATE_FRACTIONS, Machine
from opsk.costmodel.sizes.shape import ShapeColumns
from opsk.costmodel.sizes.shares import Shares
from opsk.costmodel.table import EnergyTable, FloatColumn, Range, TimeTable

POWER_LOG_SIGMA = 0.14
"""Standard deviation of ln(measured / predicted power): the mean absolute error of 11.4 % of a node power model fitted
to H100 nodes (Newkirk et al. 2025, arXiv 2506.14551), times sqrt(pi / 2); that of this model is not measured yet."""
CONFIDENCE_SIGMAS = 1.645
"""A range holds 90 % of a normal distribution."""
JOULES_PER_KWH = 3.6e6

_COMMUNICATION = ("tp", "cp", "ep", "pp", "dp")


def step_energy(
    model: ShapeColumns, shares: Shares, time: TimeTable, machine: Machine, *, pue: float = 1.0
) -> EnergyTable:
    """Return the energy of one step and of one token, and the power of a GPU, its host share, and the job.

    Matrix products are assumed to need their FLOP at the rate that large ones reach; the rest of the computing time is
    bound by memory. The range combines those of the step time and of the power, as independent errors.

    Parameters
    ----------
    pue
        Power usage effectiveness: power of the building over that of its equipment [ratio, 1 or more].
    """
    parts, gpus, state = time.components, shares.gpus, STATE_FRACTIONS
    computing_s = parts["compute"] + parts["recompute"]
    dense_s = minimum(time.hardware_flop / (gpus * machine.matmul_flop_per_s), computing_s)
    communicating_s = sum(parts[name] for name in _COMMUNICATION)
    limit_w, expected_s = machine.tdp_w * gpus, time.step_s.expected
    components = {
        "computing": state.computing * limit_w * dense_s,
        "memory_bound": state.memory_bound * limit_w * (computing_s - dense_s + parts["optimizer"]),
        "communicating": state.communicating * limit_w * communicating_s,
        "waiting": state.waiting * limit_w * (parts["bubble"] + parts["straggler"]),
        "idle": state.idle * limit_w * parts["overhead"],
    }
    gpu_j = sum(components.values())
    components["host"] = machine.host_w * gpus * expected_s
    components["network"] = machine.network_w * gpus * expected_s
    equipment_j = gpu_j + components["host"] + components["network"]
    components["facility"] = (pue - 1.0) * equipment_j
    job_j = pue * equipment_j
    step_j = _compute_range(job_j, time.step_s)
    tokens = model.seq * shares.global_batch
    return EnergyTable(
        step_j=step_j,
        j_per_token=Range(low=step_j.low / tokens, expected=job_j / tokens, high=step_j.high / tokens),
        gpu_w=gpu_j / (gpus * expected_s),
        host_w=machine.host_w,
        network_w=machine.network_w,
        job_w=job_j / expected_s,
        components=components,
    )


def _compute_range(expected_j: FloatColumn, step_s: Range) -> Range:
    """Return the range of an energy whose time and power have independent errors."""
    time_log = log(step_s.high / step_s.expected)
    ratio = exp(hypot(time_log, CONFIDENCE_SIGMAS * POWER_LOG_SIGMA))
    return Range(low=expected_j / ratio, expected=expected_j, high=expected_j * ratio)


def apply_pue(energy: EnergyTable, pue: float) -> EnergyTable:
    """Convert an energy that was computed for a PUE of 1 to another PUE.

    Source: PUE is the energy of the whole facility over that of its computing equipment (ISO/IEC 30134-2).
    """
    equipment_j = energy.step_j.expected
    return replace(
        energy,
        step_j=scale_range(energy.step_j, pue),
        j_per_token=scale_range(energy.j_per_token, pue),
        job_w=pue * energy.job_w,
        components={**energy.components, "facility": (pue - 1.0) * equipment_j},
    )


def run_energy(energy: EnergyTable, steps: float) -> Range:
    """Return the energy of a run of so many steps [J]; `count_steps` converts tokens to steps.

    1,000 steps of 3.6 MJ are 3.6 GJ, 1,000 kWh.
    """
    return scale_range(energy.step_j, steps)


def count_steps(tokens: float, *, seq: int, global_batch: int) -> float:
    """Return the steps that a number of tokens needs, including a fraction of the last one."""
    return tokens / (seq * global_batch)


def scale_range(values: Range, factor: float) -> Range:
    """Return a range times a number."""
    return Range(low=factor * values.low, expected=factor * values.expected, high=factor * values.high)

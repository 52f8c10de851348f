"""Predicts the memory, time and energy of plans, and writes a prediction as a document; the cost model's entry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.energy import step_energy
from opsk.costmodel.machine import Machine, build_machine, build_machines
from opsk.costmodel.memory.peak import peak_memory
from opsk.costmodel.sizes.parameters import ParameterCount, count_parameters
from opsk.costmodel.sizes.pipeline import Stages, build_stages
from opsk.costmodel.sizes.shape import ShapeColumns, build_shape, build_shapes
from opsk.costmodel.sizes.shares import Shares, compute_shares
from opsk.costmodel.table import (
    MOMENTS,
    EnergyTable,
    FloatColumn,
    MemoryTable,
    PlanTable,
    PredictionTable,
    Range,
    TimeTable,
    take_first_row,
)
from opsk.costmodel.time.step_time import step_seconds, step_time
from opsk.costmodel.uncertainty.offset import compute_offset_factor, scale_memory, scale_time
from opsk.costmodel.uncertainty.verdict import compute_verdict
from opsk.errors import InputError
from opsk.hardware.spec import ClusterSpec
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

MAX_SIZE = 10**9
MAX_COUNT = 10**12
"""No size of a model comes near this; a larger one is a typo, and products of such sizes overflow."""
_SIZES = tuple(item.name for item in fields(ModelShape) if item.type == "int")


def predict(
    model: ModelShape, plans: PlanTable, cluster: ClusterSpec, efficiency: Efficiency = DEFAULT
) -> PredictionTable:
    """Return memory, time and energy of every plan of the table.

    Rules of frameworks (heads divisible by tp, ...) are not checked here, see `opsk.costmodel.rules`; plans that break
    them are predicted with real-valued shares.

    Raises
    ------
    InputError
        The cluster's GPU has no peak for a number format that a plan uses, or the model is larger than any could be.
    """
    shape = _validate_shape(model)
    machine = build_machine(cluster, plans.precision, efficiency)
    return _predict(shape, plans, machine, efficiency)


def predict_one(
    model: ModelShape, plan: Plan, cluster: ClusterSpec, efficiency: Efficiency = DEFAULT
) -> PredictionTable:
    """Return the same for a single plan, much faster than `predict`.

    Every column is a plain Python number; those of the candidate stages have shape (3,).

    Raises
    ------
    InputError
        As `predict` does.
    """
    try:
        return predict(model, PlanTable.single(plan), cluster, efficiency)
    except (ArithmeticError, ValueError):  # only numpy divides zero by zero
        return take_first_row(predict(model, PlanTable.of([plan]), cluster, efficiency))


def predict_rows(
    models: Sequence[ModelShape],
    plans: PlanTable,
    clusters: Sequence[ClusterSpec],
    efficiency: Efficiency = DEFAULT,
) -> PredictionTable:
    """Return the same for plans that have a model and a cluster each: entry i of all three belong together.

    Raises
    ------
    InputError
        As `predict` does.
    """
    return PreparedRows.of(models, plans, clusters).predict(efficiency)


@dataclass(frozen=True, kw_only=True)
class PreparedRows:
    """Plans with a model and a cluster each, for repeated prediction with different efficiencies."""

    model: ShapeColumns
    plans: PlanTable
    clusters: Sequence[ClusterSpec]

    @classmethod
    def of(cls, models: Sequence[ModelShape], plans: PlanTable, clusters: Sequence[ClusterSpec]) -> PreparedRows:
        """Return rows of which entry i of models, plans and clusters belong together."""
        for model in models:
            _validate_sizes(model)
        return cls(model=build_shapes(models), plans=plans, clusters=clusters)

    def predict(self, efficiency: Efficiency = DEFAULT) -> PredictionTable:
        """Return what `predict_rows` does."""
        machine = build_machines(self.clusters, self.plans.precision, efficiency)
        return _predict(self.model, self.plans, machine, efficiency)

    @cached_property
    def layout(self) -> tuple[Shares, Stages, ParameterCount]:
        """The parts of a prediction that do not depend on efficiencies."""
        shares = compute_shares(self.model, self.plans)
        stages = build_stages(self.model, shares)
        return shares, stages, count_parameters(self.model, shares, stages)

    def step_s(self, efficiency: Efficiency) -> FloatColumn:
        """Return only the expected time of one step of every row, which is all that a fit needs [s]."""
        shares, stages, parameters = self.layout
        machine = build_machines(self.clusters, self.plans.precision, efficiency)
        software = efficiency.for_software(self.plans)
        with np.errstate(over="ignore", under="ignore"):
            result = step_seconds(self.model, self.plans, shares, stages, parameters, machine, software)
        factor = compute_offset_factor(efficiency.offset, self.plans, "time")
        return result if factor is None else result * factor


def _predict(model: ShapeColumns, plans: PlanTable, machine: Machine, efficiency: Efficiency) -> PredictionTable:
    """Return the prediction of columns that broadcast against each other."""
    with np.errstate(over="ignore", under="ignore"):
        shares = compute_shares(model, plans)
        software = efficiency.for_software(plans)
        stages = build_stages(model, shares)
        parameters = count_parameters(model, shares, stages)
        memory = peak_memory(
            model, plans, shares, stages, parameters, machine.capacity_bytes, machine.nccl_channels, efficiency
        )
        time = step_time(model, plans, shares, stages, parameters, machine, software, efficiency.spread)
        if (factor := compute_offset_factor(efficiency.offset, plans, "time")) is not None:
            time = scale_time(time, factor)
        if (factor := compute_offset_factor(efficiency.offset, plans, "memory")) is not None:
            memory = scale_memory(memory, factor, efficiency.spread)
        energy = step_energy(model, shares, time, machine)
    return PredictionTable(memory=memory, time=time, energy=energy)


@lru_cache(maxsize=256)
def _validate_shape(model: ModelShape) -> ShapeColumns:
    """Return the columns of a validated model; cached."""
    _validate_sizes(model)
    return build_shape(model)


def _validate_sizes(model: ModelShape) -> None:
    """Reject sizes that exceed the range of floating point."""
    largest = {name: MAX_COUNT if name == "frozen_parameters" else MAX_SIZE for name in _SIZES}
    sizes = {name: getattr(model, name) for name in _SIZES}
    wrong = [
        f"{name} is {value:.3g}, at most {largest[name]:.0e}" for name, value in sizes.items() if value > largest[name]
    ]
    if wrong:
        raise InputError(f"model {model.name}: {', '.join(wrong)}", hint="check the number")


def prediction_document(table: PredictionTable, index: int) -> dict[str, Any]:
    """Return memory, time and energy of row ``index`` as plain values; ranges are ``{low, expected, high}``."""
    return {
        "verdict": compute_verdict(_entry(table.memory.fit_probability, index)).value,
        "memory": _memory(table.memory, index),
        "time": _time(table.time, index),
        "energy": energy_document(table.energy, index),
    }


def _memory(memory: MemoryTable, index: int) -> dict[str, Any]:
    """Return the memory of the fullest GPU; ``stage`` counts from 0."""
    return {
        "capacity_bytes": _entry(memory.capacity_bytes, index),
        "total_bytes": range_document(memory.total_bytes, index),
        "allocated_bytes": _entry(memory.allocated_bytes, index),
        "reserved_bytes": _entry(memory.reserved_bytes, index),
        "device_bytes": _entry(memory.device_bytes, index),
        "needed_bytes": range_document(memory.needed_bytes, index),
        "components": _entries(memory.components, index),
        "stage": int(_entry(memory.stage, index)),
        "moment": MOMENTS[int(_entry(memory.moment, index))],
        "fit_probability": _entry(memory.fit_probability, index),
    }


def _time(time: TimeTable, index: int) -> dict[str, Any]:
    """Return the time of a step; ``communication`` has the total and the exposed time of each axis."""
    return {
        "step_s": range_document(time.step_s, index),
        "tokens_per_s_per_gpu": range_document(time.tokens_per_s_per_gpu, index),
        "tflops_per_gpu": range_document(time.tflops_per_gpu, index),
        "mfu": range_document(time.mfu, index),
        "hfu": range_document(time.hfu, index),
        "model_flop": _entry(time.model_flop, index),
        "hardware_flop": _entry(time.hardware_flop, index),
        "components": _entries(time.components, index),
        "communication": {
            axis: {"total_s": _entry(total, index), "exposed_s": _entry(time.components[axis], index)}
            for axis, total in time.communication.items()
        },
    }


def energy_document(energy: EnergyTable, index: int) -> dict[str, Any]:
    """Return energy and power; ``host_w`` and ``network_w`` are one GPU's shares, ``job_w`` is all of the job."""
    return {
        "step_j": range_document(energy.step_j, index),
        "j_per_token": range_document(energy.j_per_token, index),
        "gpu_w": _entry(energy.gpu_w, index),
        "host_w": _entry(energy.host_w, index),
        "network_w": _entry(energy.network_w, index),
        "job_w": _entry(energy.job_w, index),
        "components": _entries(energy.components, index),
    }


def range_document(values: Range, index: int) -> dict[str, float]:
    """Return one entry of a range."""
    return {
        "low": _entry(values.low, index),
        "expected": _entry(values.expected, index),
        "high": _entry(values.high, index),
    }


def _entries(columns: Mapping[str, FloatColumn], index: int) -> dict[str, float]:
    """Return one entry of each column."""
    return {name: _entry(column, index) for name, column in columns.items()}


def _entry(column: Any, index: int) -> float:
    """Return one entry of a column, or the value that all plans share."""
    return float(column[index] if np.ndim(column) else column)

"""Predicts the memory, time and energy of plans; the one entry point of the cost model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache

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
from opsk.costmodel.table import FloatColumn, PlanTable, PredictionTable, take_first_row
from opsk.costmodel.time.step_time import step_seconds, step_time
from opsk.costmodel.uncertainty.offset import compute_offset_factor, scale_memory, scale_time
from opsk.errors import InputError
from opsk.hardware.spec import ClusterSpec
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

MAX_SIZE = 10**9
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
    sizes = {name: getattr(model, name) for name in _SIZES}
    wrong = [f"{name} is {value:.3g}" for name, value in sizes.items() if value > MAX_SIZE]
    if wrong:
        raise InputError(f"model {model.name}: {', '.join(wrong)}, at most {MAX_SIZE:.0e}", hint="check the number")

"""Defines the request of a plan search."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.errors import InputError
from opsk.frameworks.limits import ANYTHING, Limits
from opsk.hardware.spec import ClusterSpec
from opsk.workload.model import ModelShape
from opsk.workload.plan import MAX_SIZE, Plan

AXES = (
    *("tp", "pp", "vpp", "cp", "ep", "etp", "dp", "sharding", "shard_gpus", "sequence_parallel"),
    *("recompute", "recompute_layers", "first_stage_layers", "last_stage_layers", "micro_batch", "schedule"),
)
"""Fields of a plan that are searched; the others are those of ``PlanRequest.template``."""
MAX_GPUS = MAX_SIZE
"""Far above the size of any cluster, or of a batch."""


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """A request to train ``model`` with ``global_batch`` sequences a step on ``gpus`` GPUs of ``cluster``.

    Parameters
    ----------
    template
        Gives every field that is not searched: precision, optimizer, software and so on.
    fixed
        Axis to the values that it may take; an axis that is not named may take all.
    limits
        What the training software can express.
    refuses
        Returns why the software would not start a plan that ``limits`` allow: such plans are never among the best.
    most
        Number of fastest plans to return.

    Raises
    ------
    InputError
        Names every number that is out of range, and every unknown axis.
    """

    model: ModelShape
    cluster: ClusterSpec
    template: Plan
    gpus: int
    global_batch: int
    efficiency: Efficiency = DEFAULT
    fixed: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    limits: Limits = ANYTHING
    refuses: Callable[[ModelShape, Plan], tuple[str, ...]] | None = None
    most: int = 5

    def __post_init__(self) -> None:
        """Raise for a request that cannot be searched."""
        sizes = (("gpus", self.gpus), ("global_batch", self.global_batch), ("most", self.most))
        wrong = [f"{name} is {value}, must be 1 to {MAX_GPUS}" for name, value in sizes if not 1 <= value <= MAX_GPUS]
        wrong += [f"{axis} is not an axis of the search" for axis in self.fixed if axis not in AXES]
        if wrong:
            raise InputError("; ".join(wrong), hint="see opsk plan --help")

    def allows(self, axis: str, value: Any) -> bool:
        """Return whether an axis may take a value as far as ``fixed`` goes."""
        return axis not in self.fixed or value in self.fixed[axis]

    def accepts(self, plan: Plan) -> bool:
        """Return whether the software would start a plan of the space."""
        return self.refuses is None or not self.refuses(self.model, plan)

    def plan(self, **axes: Any) -> Plan:
        """Return the template with some axes set and a batch that fits them, for asking one rule about them."""
        micro_batches = axes.pop("micro_batches", axes.get("pp", 1))
        per_step = axes.get("micro_batch", 1) * axes.get("dp", 1)
        return Plan(**{**self._neutral, **axes, "global_batch": per_step * micro_batches})

    @cached_property
    def _neutral(self) -> dict[str, Any]:
        """Return the fields of the template, every axis at its default; tens of thousands of plans are made of them."""
        defaults = {item.name: item.default for item in fields(Plan) if item.name in AXES}
        return {item.name: getattr(self.template, item.name) for item in fields(Plan)} | defaults

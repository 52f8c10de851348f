"""Defines one plan of a search with the numbers that rank it, and when two plans are the same choice to a user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opsk.costmodel.table import MemoryTable, PlanTable, PredictionTable
from opsk.hardware.spec import ClusterSpec
from opsk.text import format_bytes
from opsk.workload.plan import Plan, Schedule

_SHOWN = 2


def why_refused(memory: MemoryTable, cluster: ClusterSpec, row: int = 0) -> str:
    """Return a description of the memory that one row needs and lacks, and of its largest parts."""
    capacity = float(cluster.node.gpu.capacity_bytes)
    needed = float(memory.needed_bytes.expected[row])
    largest = sorted(((float(part[row]), name) for name, part in memory.components.items()), reverse=True)[:_SHOWN]
    parts = ", ".join(f"{name} {format_bytes(size)}" for size, name in largest)
    if needed > capacity:
        return f"needs {format_bytes(needed)}, {format_bytes(needed - capacity)} more than there is ({parts})"
    return f"needs {format_bytes(needed)} of {format_bytes(capacity)}: too close to be likely to run ({parts})"


LIKE_TIME, LIKE_MEMORY = 1e-3, 1e-2
"""Relative differences below which two plans are one choice to a user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One plan with the numbers that it is ranked by; memory is the device's, expected."""

    plan: Plan
    step_s: float
    device_bytes: float
    needed_bytes: float
    step_j: float
    fit_probability: float

    @property
    def layout(self) -> tuple[int, ...]:
        """Sizes of the axes."""
        return tuple(getattr(self.plan, axis) for axis in LAYOUT)

    @property
    def key(self) -> tuple[float, int, str]:
        """The sort key: time of a sequence, for equal times the simpler plan, then a fixed order."""
        return self.step_s / self.plan.global_batch, complexity(self.plan), repr(self.plan)


LAYOUT = ("tp", "pp", "cp", "ep", "etp", "dp")
"""Axes whose sizes make a layout."""


def complexity(plan: Plan) -> int:
    """Return how complex a plan is to run: sizes of the axes that split a model, and of a micro-batch."""
    split = sum((size - 1) for size in (plan.cp, plan.tp, plan.pp, plan.vpp, plan.ep, plan.micro_batch))
    return split + plan.shard_gpus + plan.recompute_layers + 10 * (plan.schedule is not Schedule.ONE_F_ONE_B)


def select_distinct(candidates: Sequence[Candidate], max_count: int) -> list[Candidate]:
    """Return the first plans of a list that differ from those before them in time or memory.

    Plans within 0.1 % of another's time and 1 % of its memory are one choice to a user.
    """
    chosen: list[Candidate] = []
    for candidate in candidates:
        if not any(_is_like(candidate, other) for other in chosen):
            chosen.append(candidate)
        if len(chosen) == max_count:
            break
    return chosen


def _is_like(candidate: Candidate, other: Candidate) -> bool:
    """Return whether two plans are equally good."""
    is_as_fast = abs(candidate.step_s - other.step_s) <= LIKE_TIME * other.step_s
    return is_as_fast and abs(candidate.device_bytes - other.device_bytes) <= LIKE_MEMORY * other.device_bytes


def build_candidate(plans: PlanTable, predicted: PredictionTable, row: int) -> Candidate:
    """Return one row of a table as a candidate."""
    return Candidate(
        plan=plans.row(row),
        step_s=float(predicted.time.step_s.expected[row]),
        device_bytes=float(predicted.memory.device_bytes[row]),
        needed_bytes=float(predicted.memory.needed_bytes.expected[row]),
        step_j=float(predicted.energy.step_j.expected[row]),
        fit_probability=float(predicted.memory.fit_probability[row]),
    )

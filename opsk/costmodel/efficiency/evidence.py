"""Counts the measured runs of the kind of a plan: of its GPU, software, kind of model, axes and sharding."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from opsk.costmodel.efficiency.cases import classify_kind
from opsk.hardware.spec import ClusterSpec
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Schedule, Sharding

AXES = ("tp", "pp", "cp", "ep")
WIDE_TP = "wide-tp"
"""Tensor parallelism over more than one HB domain."""
STATES, WEIGHTS = "states", "weights"
"""Nothing is shared by data-parallel ranks, or optimizer states; gradients and weights are as well."""
_SHARES_WEIGHTS = (Sharding.ZERO2, Sharding.ZERO3)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class PlanKind:
    """The properties of a run that its time mostly hangs on.

    Parameters
    ----------
    architecture, software, model
        Chip generation, family of software, and kind of model (``dense``, ``moe``), as in
        `opsk.costmodel.efficiency.cases.Case`.
    axes
        Names of the axes above 1: ``("tp", "pp")``; then `WIDE_TP`, and a schedule that is not 1F1B.
    shared
        `STATES` or `WEIGHTS`.
    """

    architecture: str
    software: str
    model: str
    axes: tuple[str, ...]
    shared: str

    @property
    def plan_name(self) -> str:
        """Axes and what is shared, as a key of the file: ``tp pp, states``."""
        return f"{' '.join(self.axes) or 'dp'}, {self.shared}"


def build_kind(model: ModelShape, plan: Plan, cluster: ClusterSpec) -> PlanKind:
    """Return the kind of a plan for a model on a cluster."""
    axes = [axis for axis in AXES if getattr(plan, axis) > 1]
    if plan.tp > cluster.node.hb_domain_gpus:
        axes.append(WIDE_TP)
    if plan.pp > 1 and plan.schedule is not Schedule.ONE_F_ONE_B:
        axes.append(plan.schedule.value)
    shares_weights = plan.dp * plan.cp > 1 and plan.sharding in _SHARES_WEIGHTS
    return PlanKind(
        architecture=cluster.node.gpu.architecture,
        software=plan.software.value,
        model=classify_kind(model, plan),
        axes=tuple(axes),
        shared=WEIGHTS if shares_weights else STATES,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """How many runs were measured of a plan's kind: on GPUs of its generation, and on all others."""

    runs: int
    runs_elsewhere: int

    @property
    def is_measured(self) -> bool:
        """Whether the prediction rests on any run of that kind of plan with that software."""
        return self.runs + self.runs_elsewhere > 0


def find_evidence(model: ModelShape, plan: Plan, cluster: ClusterSpec) -> Evidence:
    """Return the measured runs of the kind of a plan."""
    kind = build_kind(model, plan, cluster)
    key = (kind.software, kind.model, kind.plan_name)
    counts = {architecture: runs for (architecture, *rest), runs in _read_counts().items() if tuple(rest) == key}
    here = counts.get(kind.architecture, 0)
    return Evidence(runs=here, runs_elsewhere=sum(counts.values()) - here)


def list_measured(software: str, model_kind: str) -> frozenset[str]:
    """Return the names of the kinds of plans (``tp pp, states``) of which any run was measured, on any GPU."""
    return frozenset(name for (_, own, kind, name) in _read_counts() if (own, kind) == (software, model_kind))


@cache
def _read_counts() -> Mapping[tuple[str, str, str, str], int]:
    """Return the numbers of runs by chip generation, software, kind of model, and axes with sharding."""
    text = files(__package__).joinpath("runs.toml").read_text(encoding="utf-8")
    return {
        (architecture, software, model, name): runs
        for architecture, families in tomllib.loads(text).items()
        for software, models in families.items()
        for model, names in models.items()
        for name, runs in names.items()
    }

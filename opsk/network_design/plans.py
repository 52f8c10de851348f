"""Which plan would a model be trained with on this network? Its own best of all that are legal, found exactly.

Networks that differ in what no plan notices (rail-optimised against full fat tree; without experts also rail-only) have
one answer, which is searched for once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.predict import predict
from opsk.costmodel.table import FloatColumn, PlanTable
from opsk.errors import InputError
from opsk.frameworks.limits import ANYTHING, Limits
from opsk.hardware.spec import ClusterSpec
from opsk.planning.search.emptiness import broken_rules, relaxations
from opsk.planning.search.found import Found
from opsk.planning.search.request import PlanRequest
from opsk.planning.search.search import best_plans
from opsk.text import format_bytes
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Sharding

RUNNERS_UP = 24
"""Plans beside the best that options of a network are tried with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One model, and what is fixed of its plan.

    Parameters
    ----------
    template
        Number format, software and all else that is not searched.
    fixed
        Axis to the values that it may take; an axis that is not named may take all.
    """

    model: ModelShape
    template: Plan
    fixed: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The best plan of a model on a network.

    Parameters
    ----------
    step_s, mfu, tokens_per_s_per_gpu
        What is predicted of it.
    range_factor
        The step is between ``step_s`` over this and ``step_s`` times this, nine times of ten.
    components
        Parts of the step [s]; empty where an option of the network changed them.
    fit_probability
        The chance that its memory suffices.
    runners_up
        The next plans, fastest first, which fit as surely.
    space
        Plans that were evaluated, or proved to be slower.
    """

    plan: Plan
    step_s: float
    mfu: float
    tokens_per_s_per_gpu: float
    range_factor: float
    components: Mapping[str, float]
    fit_probability: float
    runners_up: tuple[Plan, ...]
    space: int


class BestPlans:
    """Best plans by `opsk.planning.search.search`, kept by what a plan can notice of a cluster."""

    def __init__(self, limits: Limits = ANYTHING, efficiency: Efficiency = DEFAULT) -> None:
        """``limits`` are what the training software can express."""
        self._limits, self._efficiency = limits, efficiency
        self._kept: dict[tuple[Any, ...], Chosen] = {}

    def best(self, asked: Asked, cluster: ClusterSpec, *, gpus: int, global_batch: int) -> Chosen:
        """Return the fastest plan that surely fits, or else the fastest that may.

        Raises
        ------
        InputError
            No plan is legal, or none fits into memory.
        """
        key = _key(asked, cluster, gpus, global_batch)
        if key not in self._kept:
            self._kept[key] = self._searched(asked, cluster, gpus=gpus, global_batch=global_batch)
        return self._kept[key]

    def _searched(self, asked: Asked, cluster: ClusterSpec, *, gpus: int, global_batch: int) -> Chosen:
        """Search all legal plans."""
        request = PlanRequest(
            model=asked.model,
            cluster=cluster,
            template=asked.template,
            gpus=gpus,
            global_batch=global_batch,
            efficiency=self._efficiency,
            fixed=asked.fixed,
            limits=self._limits,
            most=RUNNERS_UP,
        )
        found = best_plans(request)
        ranked = found.best_fitting or found.best
        if not ranked:
            raise _nothing(request, found)
        plans = list(dict.fromkeys(one.plan for one in ranked))
        time = predict(asked.model, PlanTable.of(plans[:1]), cluster, self._efficiency).time

        def value(column: FloatColumn) -> float:
            return float(np.broadcast_to(column, (1,))[0])

        return Chosen(
            plan=plans[0],
            step_s=ranked[0].step_s,
            mfu=value(time.mfu.expected),
            tokens_per_s_per_gpu=value(time.tokens_per_s_per_gpu.expected),
            range_factor=value(time.step_s.high) / ranked[0].step_s,
            components={name: value(column) for name, column in time.components.items()},
            fit_probability=ranked[0].fit_probability,
            runners_up=tuple(plans[1:]),
            space=found.space,
        )

    def unsharded(self, asked: Asked, cluster: ClusterSpec, *, gpus: int, global_batch: int) -> tuple[Plan, ...]:
        """Return the best plans without a sharded optimizer; none where they do not fit."""
        if Sharding.NONE not in asked.fixed.get("sharding", (Sharding.NONE,)):
            return ()
        whole = replace(asked, fixed={**asked.fixed, "sharding": (Sharding.NONE,)})
        return self.plans(whole, cluster, gpus=gpus, global_batch=global_batch)

    def plans(self, asked: Asked, cluster: ClusterSpec, *, gpus: int, global_batch: int) -> tuple[Plan, ...]:
        """Return the best plans, fastest first; none where no plan is legal or fits."""
        try:
            found = self.best(asked, cluster, gpus=gpus, global_batch=global_batch)
        except InputError:
            return ()
        return (found.plan, *found.runners_up)


def _nothing(request: PlanRequest, found: Found) -> InputError:
    """Return why there is no plan, and what would help."""
    name, gpus = request.model.name or "the model", request.gpus
    if found.space:
        least = min((one.needed_bytes for one in found.refused), default=None)
        needs = f"; the fastest of them need {format_bytes(least)} a GPU" if least else ""
        return InputError(
            f"{name}: none of {found.space:,} plans fits into the memory of {gpus} GPUs{needs}",
            hint="more --gpus, or GPUs with more memory",
        )
    fixed = "".join(f", {axis} {' or '.join(map(str, values))}" for axis, values in request.fixed.items())
    ways = [
        f"{one.constraint.replace('_', '-')} {' or '.join(one.nearest)}" if one.nearest else f"without {one.constraint}"
        for one in relaxations(request)
    ]
    return InputError(
        f"{name}: no plan is legal with {gpus} GPUs and a batch of {request.global_batch}{fixed}",
        hint=f"the nearest that some plan has: {'; '.join(ways)}" if ways else "; ".join(broken_rules(request)),
    )


def _key(asked: Asked, cluster: ClusterSpec, gpus: int, global_batch: int) -> tuple[Any, ...]:
    """Return all that a plan can notice."""
    node, experts = cluster.node, asked.model.experts
    return (
        repr(asked),
        (gpus, global_batch),
        (node.gpus, node.nics, node.nic.bytes_per_s, node.hb_domain_gpus, node.gpu.name, node.gpu.hb_bytes_per_s),
        (cluster.oversubscription, cluster.in_network_reduction, cluster.fabric == "rail-only" and experts > 0),
    )

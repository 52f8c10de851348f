"""Finds the best plan of a model on a network, exactly, among all legal plans.

Networks that do not differ in anything that affects a plan (rail-optimised and full fat tree; without experts also
rail-only) share one result, which is computed once.
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
from opsk.planning.search.relaxations import broken_rules, relaxations
from opsk.planning.search.request import PlanRequest
from opsk.planning.search.result import SearchResult
from opsk.planning.search.search import best_plans
from opsk.text import format_bytes
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan, Sharding

RUNNERS_UP = 24
"""Plans in addition to the best with which options of a network are evaluated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One model, with the fixed parts of its plan.

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
        Its prediction.
    range_factor
        The step is between ``step_s`` over this and ``step_s`` times this, nine times of ten.
    components
        Parts of the step [s]; empty where an option of the network changed them.
    fit_probability
        The probability that its memory suffices.
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
    """Best plans by `opsk.planning.search.search`, cached by the cluster properties that affect plans."""

    def __init__(self, limits: Limits = ANYTHING, efficiency: Efficiency = DEFAULT) -> None:
        """``limits`` are those of the training software."""
        self._limits, self._efficiency = limits, efficiency
        self._cache: dict[tuple[Any, ...], Chosen] = {}

    def best(self, model_request: ModelRequest, cluster: ClusterSpec, *, gpus: int, global_batch: int) -> Chosen:
        """Return the fastest plan that surely fits, or else the fastest that may.

        Raises
        ------
        InputError
            No plan is legal, or none fits into memory.
        """
        key = _key(model_request, cluster, gpus, global_batch)
        if key not in self._cache:
            self._cache[key] = self._search(model_request, cluster, gpus=gpus, global_batch=global_batch)
        return self._cache[key]

    def _search(self, model_request: ModelRequest, cluster: ClusterSpec, *, gpus: int, global_batch: int) -> Chosen:
        """Search all legal plans."""
        request = PlanRequest(
            model=model_request.model,
            cluster=cluster,
            template=model_request.template,
            gpus=gpus,
            global_batch=global_batch,
            efficiency=self._efficiency,
            fixed=model_request.fixed,
            limits=self._limits,
            most=RUNNERS_UP,
        )
        result = best_plans(request)
        ranked = result.best_fitting or result.best
        if not ranked:
            raise _build_error(request, result)
        plans = list(dict.fromkeys(candidate.plan for candidate in ranked))
        time = predict(model_request.model, PlanTable.of(plans[:1]), cluster, self._efficiency).time

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
            space=result.space,
        )

    def search_unsharded(
        self, model_request: ModelRequest, cluster: ClusterSpec, *, gpus: int, global_batch: int
    ) -> tuple[Plan, ...]:
        """Return the best plans without a sharded optimizer; none where they do not fit."""
        if Sharding.NONE not in model_request.fixed.get("sharding", (Sharding.NONE,)):
            return ()
        whole = replace(model_request, fixed={**model_request.fixed, "sharding": (Sharding.NONE,)})
        return self.plans(whole, cluster, gpus=gpus, global_batch=global_batch)

    def plans(
        self, model_request: ModelRequest, cluster: ClusterSpec, *, gpus: int, global_batch: int
    ) -> tuple[Plan, ...]:
        """Return the best plans, fastest first; none where no plan is legal or fits."""
        try:
            best = self.best(model_request, cluster, gpus=gpus, global_batch=global_batch)
        except InputError:
            return ()
        return (best.plan, *best.runners_up)


def _build_error(request: PlanRequest, result: SearchResult) -> InputError:
    """Return the error that explains why there is no plan, with a hint."""
    name, gpus = request.model.name or "the model", request.gpus
    if result.space:
        least = min((candidate.needed_bytes for candidate in result.refused), default=None)
        needs = f"; the fastest of them need {format_bytes(least)} a GPU" if least else ""
        return InputError(
            f"{name}: none of {result.space:,} plans fits into the memory of {gpus} GPUs{needs}",
            hint="more --gpus, or GPUs with more memory",
        )
    fixed = "".join(f", {axis} {' or '.join(map(str, values))}" for axis, values in request.fixed.items())
    nearest = [
        f"{candidate.constraint.replace('_', '-')} {' or '.join(candidate.nearest)}"
        if candidate.nearest
        else f"without {candidate.constraint}"
        for candidate in relaxations(request)
    ]
    return InputError(
        f"{name}: no plan is legal with {gpus} GPUs and a batch of {request.global_batch}{fixed}",
        hint=f"the nearest that some plan has: {'; '.join(nearest)}" if nearest else "; ".join(broken_rules(request)),
    )


def _key(model_request: ModelRequest, cluster: ClusterSpec, gpus: int, global_batch: int) -> tuple[Any, ...]:
    """Return the cache key: all properties that affect plans."""
    node, experts = cluster.node, model_request.model.experts
    return (
        repr(model_request),
        (gpus, global_batch),
        (node.gpus, node.nics, node.nic.bytes_per_s, node.hb_domain_gpus, node.gpu.name, node.gpu.hb_bytes_per_s),
        (cluster.oversubscription, cluster.in_network_reduction, cluster.fabric == "rail-only" and experts > 0),
    )

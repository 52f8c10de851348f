"""Computes the Pareto front of plans over time, memory, energy and GPUs.

The front is approximate to within a tolerance: for every feasible plan, some plan on the front is at most that much
worse in each of the four (Papadimitriou and Yannakakis 2000, "On the approximability of trade-offs"). It therefore does
not list thousands of plans that differ by a thousandth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from opsk.costmodel.table import BoolColumn, FloatColumn, PlanTable, PredictionTable
from opsk.planning.search.candidate import Candidate, build_candidate
from opsk.workload.plan import Plan

TOLERANCE = 0.01
"""A plan that is within 1 % of another in everything is not listed separately."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """Feasible plans none of which another beats in time and energy of a sequence, memory and GPUs."""

    plans: tuple[Candidate, ...] = ()
    tolerance: float = TOLERANCE

    def covers(self, costs: FloatColumn) -> BoolColumn:
        """Return which columns of ``costs``, shape (4, n), some plan of the front is no worse than, or hardly so."""
        if not self.plans:
            return np.zeros(costs.shape[1], dtype=np.bool_)
        front_costs = np.array([_costs(candidate) for candidate in self.plans]).T
        worst = (1.0 + self.tolerance) * costs
        covered: BoolColumn = np.any(np.all(front_costs[:, :, None] <= worst[:, None, :], axis=0), axis=0)
        return covered

    def with_rows(
        self,
        plans: PlanTable,
        predicted: PredictionTable,
        among: BoolColumn,
        accepts: Callable[[Plan], bool] | None = None,
    ) -> Front:
        """Return the front with those rows of a table that are ``among``, and that ``accepts`` allows."""
        rows = np.flatnonzero(among)
        batch = plans.global_batch[rows]
        costs = np.stack(
            [
                predicted.time.step_s.expected[rows] / batch,
                predicted.memory.needed_bytes.expected[rows],
                predicted.energy.step_j.expected[rows] / batch,
                (plans.tp * plans.pp * plans.cp * plans.dp)[rows].astype(np.float64),
            ]
        )
        left = np.flatnonzero(~self.covers(costs))
        left = left[np.argsort(costs[0, left], kind="stable")]
        front = self
        while left.shape[0]:
            candidate, left = build_candidate(plans, predicted, int(rows[left[0]])), left[1:]
            if accepts is None or accepts(candidate.plan):
                front = front._with_plan(candidate)
                left = left[~front.covers(costs[:, left])]
        return front

    def joined(self, others: Sequence[Candidate]) -> Front:
        """Return the front of these plans and others."""
        front = self
        for candidate in sorted(others, key=lambda candidate: candidate.key):
            if not front.covers(np.array(_costs(candidate))[:, None])[0]:
                front = front._with_plan(candidate)
        return front

    def _with_plan(self, plan: Candidate) -> Front:
        """Return the front with one more plan, without those that it beats."""
        new = _costs(plan)
        remaining = [
            candidate
            for candidate in self.plans
            if any(old < cost for old, cost in zip(_costs(candidate), new, strict=True))
        ]
        return replace(self, plans=tuple(sorted((*remaining, plan), key=lambda candidate: candidate.key)))


def _costs(plan: Candidate) -> tuple[float, float, float, float]:
    """Return the costs of a plan: time and energy of a sequence, memory and GPUs."""
    batch = plan.plan.global_batch
    return plan.step_s / batch, plan.needed_bytes, plan.step_j / batch, float(plan.plan.gpus)

"""Holds the result of a plan search: the fastest plans, the Pareto front, and the counts of plans.

The front is approximate to within a tolerance: for every feasible plan, some plan on the front is at most that much
worse in each of time, memory, energy and GPUs (Papadimitriou and Yannakakis 2000, "On the approximability of
trade-offs"). It therefore does not list thousands of plans that differ by a thousandth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from opsk.costmodel.table import BoolColumn, FloatColumn, IntColumn, MemoryTable, PlanTable, PredictionTable
from opsk.costmodel.uncertainty.verdict import FITS_FROM, OOM_UP_TO
from opsk.hardware.spec import ClusterSpec
from opsk.planning.search.combinations import number_combinations
from opsk.text import format_bytes
from opsk.workload.plan import Plan, Schedule

_SHOWN = 2
LIKE_TIME, LIKE_MEMORY = 1e-3, 1e-2
"""Relative differences below which two plans are one choice to a user."""
LAYOUT = ("tp", "pp", "cp", "ep", "etp", "dp")
"""Axes whose sizes make a layout."""
KIND = ("tp", "pp", "ep", "etp")
"""Axes whose sizes make a kind of plan: context parallelism and micro-batch trade the same for nearly the same."""
TOLERANCE = 0.01
"""A plan that is within 1 % of another in everything is not listed separately."""
MIN_CHANCE = 1e-9
"""A smaller chance to fit is none; it only has to be a divisor."""
_LOOKED_AT = 64
"""Refused plans of a table that are examined for each requested one."""


def why_refused(memory: MemoryTable, cluster: ClusterSpec, row: int = 0) -> str:
    """Return a description of the memory that one row needs and lacks, and of its largest parts."""
    capacity = float(cluster.node.gpu.capacity_bytes)
    needed = float(memory.needed_bytes.expected[row])
    largest = sorted(((float(part[row]), name) for name, part in memory.components.items()), reverse=True)[:_SHOWN]
    parts = ", ".join(f"{name} {format_bytes(size)}" for size, name in largest)
    if needed > capacity:
        return f"needs {format_bytes(needed)}, {format_bytes(needed - capacity)} more than there is ({parts})"
    return f"needs {format_bytes(needed)} of {format_bytes(capacity)}: too close to be likely to run ({parts})"


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
    def kind(self) -> tuple[int | str, ...]:
        """Software, and sizes of the axes that make a kind."""
        return (self.plan.software.value, *(getattr(self.plan, axis) for axis in KIND))

    @property
    def likely_s(self) -> float:
        """Time of a sequence over the chance to fit: the expected speed, where a job that fails brings nothing [s]."""
        return self.step_s / self.plan.global_batch / max(self.fit_probability, MIN_CHANCE)

    @property
    def likely_key(self) -> tuple[float, int, str]:
        """The sort key of plans by their expected speed."""
        return self.likely_s, complexity(self.plan), repr(self.plan)

    @property
    def key(self) -> tuple[float, int, str]:
        """The sort key: time of a sequence, for equal times the simpler plan, then a fixed order."""
        return self.step_s / self.plan.global_batch, complexity(self.plan), repr(self.plan)


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

    def merge(self, others: Sequence[Candidate]) -> Front:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The result of a search of a space, so far.

    Parameters
    ----------
    space, evaluated, bounded
        Plans in all, those that were predicted, and those that were proved not to be among the best; ``evaluated +
        bounded`` is ``space`` when a search has ended.
    feasible, fitting
        Of the evaluated ones: those that are not expected to run out of memory (verdict ``fits`` or ``tight``), and
        those that surely fit.
    best, best_fitting
        The fastest feasible plans, and the fastest that surely fit, fastest first: of each layout one, since plans of
        one layout differ in little that a person would choose between.
    likely
        The plans of the greatest expected speed (speed times the chance to fit), of each kind one.
    refused
        Of the evaluated plans that would run out of memory and be faster than all that would not: those with the best
        chance to fit, of each layout one.
    front
        The trade-offs between time, memory, energy and GPUs, where they are requested.
    accepts
        Whether the training software would start a plan; the others are counted, but never listed.
    """

    space: int = 0
    evaluated: int = 0
    bounded: int = 0
    feasible: int = 0
    fitting: int = 0
    most: int = 5
    best: tuple[Candidate, ...] = ()
    best_fitting: tuple[Candidate, ...] = ()
    likely: tuple[Candidate, ...] = ()
    refused: tuple[Candidate, ...] = ()
    front: Front | None = None
    accepts: Callable[[Plan], bool] | None = None

    @property
    def is_whole(self) -> bool:
        """Whether every plan was evaluated or bounded away."""
        return self.evaluated + self.bounded == self.space

    @property
    def last_s(self) -> float:
        """Step time from which on another feasible plan changes nothing [s]: that of the last of the layouts."""
        return self.best[self.most - 1].step_s if len(self.best) >= self.most else math.inf

    @property
    def fitting_s(self) -> float:
        """Step time from which on another plan that surely fits changes nothing [s]."""
        return self.best_fitting[self.most - 1].step_s if len(self.best_fitting) >= self.most else math.inf

    @property
    def likely_sequence_s(self) -> float:
        """Time of a sequence over the chance to fit from which on another plan changes nothing [s]."""
        return self.likely[self.most - 1].likely_s if len(self.likely) >= self.most else math.inf

    def without(self, plans: int) -> SearchResult:
        """Return the result with more plans counted as bounded away."""
        return replace(self, bounded=self.bounded + plans)

    def with_rows(self, plans: PlanTable, predicted: PredictionTable) -> SearchResult:
        """Return the result with the rows of a table evaluated."""
        chance = predicted.memory.fit_probability
        feasible, fits = chance > OOM_UP_TO, chance >= FITS_FROM
        return replace(
            self,
            evaluated=self.evaluated + len(plans),
            feasible=self.feasible + int(feasible.sum()),
            fitting=self.fitting + int(fits.sum()),
            best=self._with_fastest(self.best, plans, predicted, feasible),
            best_fitting=self._with_fastest(self.best_fitting, plans, predicted, fits),
            likely=self._with_likely(plans, predicted, feasible),
            front=self.front.with_rows(plans, predicted, feasible, self.accepts) if self.front else None,
        )._with_refused(plans, predicted, ~feasible)

    def merge(self, other: SearchResult) -> SearchResult:
        """Return the joined result of two searches of different plans."""
        counts = ("space", "evaluated", "bounded", "feasible", "fitting")
        return replace(
            self,
            **{name: getattr(self, name) + getattr(other, name) for name in counts},
            best=self._merge(self.best, other.best),
            best_fitting=self._merge(self.best_fitting, other.best_fitting),
            likely=self._merge_likely((*self.likely, *other.likely)),
            front=self.front.merge(other.front.plans) if self.front and other.front else None,
        )._with_nearest((*self.refused, *other.refused))

    def _with_refused(self, plans: PlanTable, predicted: PredictionTable, among: BoolColumn) -> SearchResult:
        """Return the result with the plans of a table that nearly fit and would be faster."""
        faster = predicted.time.step_s.expected < (self.best[0].step_s if self.best else math.inf)
        rows = np.flatnonzero(among & faster)
        chance = predicted.memory.fit_probability[rows]
        needed_bytes = predicted.memory.needed_bytes.expected[rows]
        rows = rows[np.lexsort((needed_bytes, -chance))[: _LOOKED_AT * self.most]]
        return self._with_nearest((*self.refused, *self._select_first_of_layouts(plans, predicted, rows)))

    def _with_nearest(self, refused: Sequence[Candidate]) -> SearchResult:
        """Return the result with those of ``refused`` that nearly fit and would be faster, one per layout."""
        first = self.best[0].key if self.best else (math.inf,)
        nearest: dict[tuple[int, ...], Candidate] = {}
        for candidate in sorted(
            refused, key=lambda candidate: (-candidate.fit_probability, candidate.needed_bytes, candidate.key)
        ):
            if candidate.key[0] < first[0]:  # of a sequence: batches may differ
                nearest.setdefault(candidate.layout, candidate)
        return replace(self, refused=tuple(nearest.values())[: self.most])

    def _with_fastest(
        self, some: tuple[Candidate, ...], plans: PlanTable, predicted: PredictionTable, among: BoolColumn
    ) -> tuple[Candidate, ...]:
        """Return a list with those rows of a table that belong in it."""
        step_s = predicted.time.step_s.expected
        last_s = some[-1].step_s if len(some) >= self.most else np.inf
        rows = np.flatnonzero(among & (step_s <= last_s))
        rows = rows[np.argsort(step_s[rows], kind="stable")]
        return self._merge(some, self._select_first_of_layouts(plans, predicted, rows))

    def _with_likely(self, plans: PlanTable, predicted: PredictionTable, among: BoolColumn) -> tuple[Candidate, ...]:
        """Return the plans of the greatest expected speed with those rows of a table that belong among them."""
        rows = np.flatnonzero(among)
        likely_s = predicted.time.step_s.expected[rows] / predicted.memory.fit_probability[rows]
        is_new = likely_s <= self.likely_sequence_s * plans.global_batch[rows]
        rows, likely_s = rows[is_new], likely_s[is_new]
        rows = rows[np.argsort(likely_s, kind="stable")]
        return self._merge_likely((*self.likely, *self._select_first_of_layouts(plans, predicted, rows, axes=KIND)))

    def _merge_likely(self, candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
        """Return the plans of the greatest expected speed, of each kind one."""
        first: dict[tuple[int | str, ...], Candidate] = {}
        for candidate in sorted(candidates, key=lambda candidate: candidate.likely_key):
            first.setdefault(candidate.kind, candidate)
        return tuple(first.values())[: self.most]

    def _select_first_of_layouts(
        self, plans: PlanTable, predicted: PredictionTable, rows: IntColumn, *, axes: Sequence[str] = LAYOUT
    ) -> list[Candidate]:
        """Return the first of ``rows`` of every layout (or kind) that the software would start, in order."""
        _, layouts = number_combinations([getattr(plans, axis)[rows] for axis in axes])
        first = list[Candidate]()
        while rows.shape[0] and len(first) < self.most:
            candidate = build_candidate(plans, predicted, int(rows[0]))
            if self.accepts is None or self.accepts(candidate.plan):
                first.append(candidate)
                others = layouts != layouts[0]
                rows, layouts = rows[others], layouts[others]
            else:
                rows, layouts = rows[1:], layouts[1:]
        return first

    def _merge(self, some: tuple[Candidate, ...], more: Sequence[Candidate]) -> tuple[Candidate, ...]:
        """Return the fastest of two lists, of each layout the fastest plan."""
        if not more:
            return some
        first: dict[tuple[int, ...], Candidate] = {}
        for candidate in sorted((*some, *more), key=lambda candidate: candidate.key):
            first.setdefault(candidate.layout, candidate)
        return tuple(first.values())[: self.most]

"""Holds the intermediate result of a plan search: the fastest plans, and the counts of plans."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from opsk.costmodel.table import BoolColumn, IntColumn, PlanTable, PredictionTable
from opsk.costmodel.uncertainty.verdict import FITS_FROM, OOM_UP_TO
from opsk.planning.search.candidate import LAYOUT, Candidate, build_candidate
from opsk.planning.search.front import Front
from opsk.workload.plan import Plan

_LOOKED_AT = 64
"""Refused plans of a table that are examined for each requested one."""


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
            front=self.front.with_rows(plans, predicted, feasible, self.accepts) if self.front else None,
        )._with_refused(plans, predicted, ~feasible)

    def joined(self, other: SearchResult) -> SearchResult:
        """Return the joined result of two searches of different plans."""
        counts = ("space", "evaluated", "bounded", "feasible", "fitting")
        return replace(
            self,
            **{name: getattr(self, name) + getattr(other, name) for name in counts},
            best=self._merge(self.best, other.best),
            best_fitting=self._merge(self.best_fitting, other.best_fitting),
            front=self.front.joined(other.front.plans) if self.front and other.front else None,
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

    def _select_first_of_layouts(
        self, plans: PlanTable, predicted: PredictionTable, rows: IntColumn
    ) -> list[Candidate]:
        """Return the first of ``rows`` of every layout that the software would start, in order."""
        sizes = np.stack([getattr(plans, axis)[rows] for axis in LAYOUT])
        _, layouts = np.unique(sizes, axis=1, return_inverse=True)
        layouts, first = layouts.reshape(-1), list[Candidate]()
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

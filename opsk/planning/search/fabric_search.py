"""Finds the fastest plans on given nodes and cables.

A link that is busier than the cost model assumes can only lengthen a step (ADR 10), so the time of a search without
cables, the *ideal* time, is a lower bound for the time of a placed plan. Layouts are therefore visited in the order of
the ideal time of their fastest plan, until that is above the placed time of the last requested plan. Inside a layout,
only plans whose ideal time is below the best known time are priced. Both steps are lossless: the result is the one that
placing every plan with ``opsk place`` would give.

Where ``opsk place`` improves an order of nodes beyond its initial placements (some jobs of up to 64 nodes), a plan that
might still win is placed on its own. This is slow on a fabric that slows many plans by the same amount, so it has a
budget; once that is spent, ``is_exact`` is false, and plans have the time of the best initial placement.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from opsk.costmodel.energy import scale_range, step_energy
from opsk.costmodel.floors import Floors
from opsk.costmodel.machine import build_machine
from opsk.costmodel.predict import predict
from opsk.costmodel.sizes.shape import build_shape
from opsk.costmodel.sizes.shares import compute_shares
from opsk.costmodel.table import BoolColumn, FloatColumn, IntColumn, PlanTable, PredictionTable
from opsk.costmodel.uncertainty.chance import largest_bytes
from opsk.costmodel.uncertainty.verdict import FITS_FROM, OOM_UP_TO
from opsk.errors import PlanInfeasibleError
from opsk.planning.placement.placement import Placement
from opsk.planning.placement.rank_placement import SAME
from opsk.planning.placement.step_model import StepModel, compute_shown_s, step_model, step_models
from opsk.planning.routing.traffic import AXES, bytes_of_plans
from opsk.planning.search.layout_prices import Cabled, LayoutPrices, Prices
from opsk.planning.search.request import PlanRequest
from opsk.planning.search.result import LAYOUT, Candidate, SearchResult, build_candidate
from opsk.planning.search.search import search_bounded, search_cases
from opsk.planning.search.space import Space, build_space
from opsk.workload.plan import Plan

MESSAGES = 24_000_000
"""Maximum messages for placing plans on their own: about four seconds."""
MIN_MESSAGES = 80_000
"""Minimum cost of placing any plan, in messages."""
MORE = 4
"""Factor by which more layouts are requested when the known ones run out."""


class Limit:
    """A time that may become shorter while a search goes on [s]."""

    def __init__(self, step_s: float) -> None:
        self.step_s = step_s

    def lower(self, step_s: float) -> None:
        """Lower the limit to a time, if that is shorter."""
        self.step_s = min(self.step_s, step_s)


def take_below(space: Space, limit: Limit, take: Callable[[PlanTable], None]) -> None:
    """Pass ``take`` all plans of a space that are faster than the limit, may fit, and that the software would start.

    The plans come in tables, which are not stored; ``take`` may lower the limit for later plans.
    """
    accepts = space.request.accepts if space.request.refuses else None
    start = _Forwarding(space=space.size, limit=limit, take=take, accepts=accepts)
    deque(search_bounded(space, _FasterThan(space, limit), start), maxlen=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Forwarding(SearchResult):
    """A search result that passes on the rows below a time, and only counts them."""

    limit: Limit
    take: Callable[[PlanTable], None]

    def with_rows(self, plans: PlanTable, predicted: PredictionTable) -> SearchResult:
        """Return the result with the rows of a table evaluated."""
        may_fit = predicted.memory.fit_probability > OOM_UP_TO
        rows = np.flatnonzero(may_fit & (predicted.time.step_s.expected < self.limit.step_s))
        if self.accepts is not None:
            rows = rows[[self.accepts(plans.row(row)) for row in rows.tolist()]]
        if rows.size:
            self.take(select_rows(plans, rows))
        return replace(self, evaluated=self.evaluated + len(plans))


class _FasterThan:
    """The goal of finding every plan below a time that may fit."""

    def __init__(self, space: Space, limit: Limit) -> None:
        self.limit = limit
        self.feasible_bytes = largest_bytes(space.request.cluster, space.request.efficiency, chance=OOM_UP_TO)

    def can_fit(self, needed_bytes: FloatColumn) -> BoolColumn:
        """Return which families, each of a least memory, may hold a feasible plan."""
        fits: BoolColumn = needed_bytes <= self.feasible_bytes
        return fits

    def is_open(self, result: SearchResult, floors: Floors, nodes: IntColumn) -> BoolColumn:
        """Return which families may hold a plan below the time."""
        is_open_family: BoolColumn = (floors.step_s < self.limit.step_s) & self.can_fit(floors.needed_bytes)
        return is_open_family

    def ends(self, result: SearchResult, floor_s: float) -> bool:
        """Return whether families of this floor and above are too slow."""
        return floor_s >= self.limit.step_s


def select_rows(table: PlanTable, rows: IntColumn) -> PlanTable:
    """Return some rows of a table; a column of one entry is that of all rows."""
    columns = {item.name: np.broadcast_to(getattr(table, item.name), (len(table),))[rows] for item in fields(PlanTable)}
    return PlanTable(**columns)


def join_tables(parts: Sequence[PlanTable]) -> PlanTable:
    """Return the rows of several tables."""
    none = [np.zeros(0, dtype=np.int64)]
    return PlanTable(
        **{
            item.name: np.concatenate([getattr(part, item.name) for part in parts] or none)
            for item in fields(PlanTable)
        }
    )


def lengthen_prediction(
    request: PlanRequest, plan: Plan, predicted: PredictionTable, step: StepModel, busy_s: Mapping[str, float]
) -> PredictionTable:
    """Return a prediction of one row where the busiest link of each axis is busy for ``busy_s`` [s at full rate]."""
    time = predicted.time
    more = compute_extra_shown_s(step, busy_s)
    links = sum(step.weight * np.array(list(more.values())))
    parts = dict(time.components)
    for axis, seconds in more.items():
        parts[axis] = parts[axis] + seconds
    parts["bubble"] = parts["bubble"] + links - sum(more.values())
    parts["straggler"] = parts["straggler"] + (step.straggler - 1.0) * links
    longer = 1.0 + step.straggler * float(links) / float(np.ravel(time.step_s.expected)[0])
    time = replace(
        time,
        step_s=scale_range(time.step_s, longer),
        tokens_per_s_per_gpu=scale_range(time.tokens_per_s_per_gpu, 1.0 / longer),
        tflops_per_gpu=scale_range(time.tflops_per_gpu, 1.0 / longer),
        mfu=scale_range(time.mfu, 1.0 / longer),
        hfu=scale_range(time.hfu, 1.0 / longer),
        components=parts,
    )
    table, shape = PlanTable.of([plan]), build_shape(request.model)
    machine = build_machine(request.cluster, table.precision, request.efficiency)
    return replace(predicted, time=time, energy=step_energy(shape, compute_shares(shape, table), time, machine))


def compute_extra_shown_s(step: StepModel, busy_s: Mapping[str, float]) -> dict[str, float]:
    """Return by how much longer each axis shows than the cost model alone has it [s]."""
    busy = np.array([busy_s.get(axis, 0.0) for axis in AXES])
    more = compute_shown_s(step, busy) - compute_shown_s(step, np.zeros(len(AXES)))
    return dict(zip(AXES, more.tolist(), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPlan:
    """One plan as ``opsk place`` places it; ``prediction`` has one row, with its times and its energy there.

    ``ideal_s`` is its step with links as fast as the cost model assumes; ``slowed_s`` by how much longer the
    communication of each axis shows, for those that the fabric slows [s].
    """

    plan: Plan
    placement: Placement
    prediction: PredictionTable
    ideal_s: float
    slowed_s: dict[str, float]

    @property
    def step_s(self) -> float:
        """Return the time of a step as placed [s]."""
        return self.placement.traffic.step_s


class FabricSearch:
    """Searches requests on cables; afterwards it has the placed plans, and whether the result is exact.

    Parameters
    ----------
    messages
        Budget for placing plans on their own; ``None`` for no limit.
    """

    def __init__(self, cabled: Cabled, *, messages: int | None = MESSAGES) -> None:
        self.cabled = cabled
        self.messages_left = math.inf if messages is None else messages
        self.is_exact = True
        self.priced = 0
        self.unplaceable: set[tuple[int, ...]] = set()
        self._placed: dict[Plan, PlacedPlan] = {}

    def place_layouts(self, requests: Sequence[PlanRequest], result: SearchResult) -> Iterator[SearchResult]:
        """Yield what a search found with its lists as placed, after every layout; at last the whole answer.

        Parameters
        ----------
        requests
            What was searched: numbers of GPUs and batches of one request, all on these cables.
        """
        layouts = _Layouts(self, requests, result)
        answer = replace(result, best=(), best_fitting=(), likely=())
        for best in layouts.follow_list("best_fitting", FITS_FROM):
            answer = replace(answer, best_fitting=best, best=best)
            yield answer
        for best in layouts.follow_list("best", OOM_UP_TO):
            answer = replace(answer, best=best)
            yield answer
        yield answer

    def place(self, request: PlanRequest, plan: Plan) -> PlacedPlan:
        """Return one plan of a request as ``opsk place`` places it; placed plans are cached.

        Raises
        ------
        PlanInfeasibleError
            The plan cannot be placed on these nodes.
        """
        if plan not in self._placed:
            step = step_model(request.model, plan, request.cluster, request.efficiency)
            placement = self.cabled.place(request.model, plan, step)
            busy_s = {axis: load.busy_s for axis, load in placement.traffic.axes.items()}
            predicted = predict(request.model, PlanTable.of([plan]), request.cluster, request.efficiency)
            self._placed[plan] = PlacedPlan(
                plan=plan,
                placement=placement,
                prediction=lengthen_prediction(request, plan, predicted, step, busy_s),
                ideal_s=step.least_s,
                slowed_s={axis: more for axis, more in compute_extra_shown_s(step, busy_s).items() if more > 0},
            )
        return self._placed[plan]


@dataclass(frozen=True, slots=True)
class _Rows:
    """Plans of one request and layout whose ideal time is below a limit, with their prices."""

    limit_s: float
    table: PlanTable
    predicted: PredictionTable
    prices: Prices

    def first_s(self, chance: float) -> float:
        """Return the fastest step of those with a chance to fit, as far as it is looked up; infinite without any."""
        return float(self.prices.first_s[_has_chance(self.predicted, chance)].min(initial=math.inf))

    def promising(self, limit_s: float) -> _Rows:
        """Return the plans that may be the fastest of some list: those below a limit, and the first of either list."""
        is_promising = ~self.prices.is_last & (self.prices.least_s < limit_s)
        for chance in (OOM_UP_TO, FITS_FROM):
            best_s = min(self.first_s(chance), np.finfo(np.float64).max)
            is_promising |= _has_chance(self.predicted, chance) & (self.prices.first_s <= best_s)
        return replace(self, table=select_rows(self.table, np.flatnonzero(is_promising)))


class _Layouts:
    """The layouts of some requests on cables; a layout may hold plans of several batches."""

    def __init__(self, whole: FabricSearch, requests: Sequence[PlanRequest], result: SearchResult) -> None:
        self.whole, self.requests, self.result = whole, requests, result
        self._prices: dict[tuple[int, ...], LayoutPrices | None] = {}
        self._spaces: dict[int, Space] = {}
        self._rows: dict[tuple[int, tuple[int, ...]], _Rows] = {}

    def follow_list(self, name: str, chance: float) -> Iterator[tuple[Candidate, ...]]:
        """Yield one of the lists as it is known after every layout; its plans have more than a ``chance`` to fit."""
        most, best = self.requests[0].most, tuple[Candidate, ...]()
        uppers = self._compute_upper_bounds(name, most)
        for ideal in getattr(self.result, name):
            limit_s = _smallest(uppers, most)
            if _sequence_s(ideal) > limit_s * (1.0 + SAME):  # a plan that no link slows is as fast but for rounding
                return
            fastest = self._find_fastest(ideal, chance, limit_s)
            uppers |= {candidate.layout: min(_sequence_s(candidate), uppers[candidate.layout]) for candidate in fastest}
            best = tuple(sorted((*best, *fastest), key=lambda candidate: candidate.key)[:most])
            yield best

    def _compute_upper_bounds(self, name: str, most: int) -> dict[tuple[int, ...], float]:
        """Return of every layout that may be listed a time that its fastest plan does not exceed, of a sequence [s].

        That is the time of its ideally fastest plan as it is placed first. After that enough layouts are known.
        """
        uppers: dict[tuple[int, ...], float] = {}
        while True:
            known: tuple[Candidate, ...] = getattr(self.result, name)
            for ideal in known:
                if _sequence_s(ideal) > _smallest(uppers, most) * (1.0 + SAME):
                    return uppers
                prices = self._get_prices(ideal)
                if prices is None:
                    uppers[ideal.layout] = math.inf
                elif ideal.layout not in uppers:
                    alone = PlanTable.of([ideal.plan])
                    priced = self._price(self._find_request(ideal.plan), prices, alone)[1]
                    uppers[ideal.layout] = float(priced.first_s[0]) / ideal.plan.global_batch
            if len(known) < self.result.most:
                return uppers
            self.result = self._search_more_layouts()

    def _find_request(self, plan: Plan) -> PlanRequest:
        """Return the request that a plan answers."""
        answers = (
            request
            for request in self.requests
            if (request.gpus, request.global_batch) == (plan.gpus, plan.global_batch)
        )
        return next(answers)

    def _search_more_layouts(self) -> SearchResult:
        """Search for more layouts than before."""
        more = [replace(request, most=MORE * self.result.most) for request in self.requests]
        return deque(search_cases(more), maxlen=1)[0]

    def _find_fastest(self, ideal: Candidate, chance: float, limit_s: float) -> list[Candidate]:
        """Return the fastest plan of a layout as placed, none where it cannot run; ``ideal`` is it without cables.

        Parameters
        ----------
        limit_s
            Of a plan that is slower than so much for a sequence any may be returned [s].
        """
        prices = self._get_prices(ideal)
        if prices is None:
            return []
        best: list[Candidate] = []
        for number, request in enumerate(self.requests):
            if request.gpus != ideal.plan.gpus:
                continue
            within_s = min([limit_s, *map(_sequence_s, best)]) * request.global_batch
            first = ideal if request.global_batch == ideal.plan.global_batch else None
            best += self._find_fastest_of_request(number, ideal.layout, prices, first, chance, within_s)
        return sorted(best, key=lambda candidate: candidate.key)[:1]

    def _find_fastest_of_request(
        self,
        number: int,
        layout: tuple[int, ...],
        prices: LayoutPrices,
        ideal: Candidate | None,
        chance: float,
        limit_s: float,
    ) -> list[Candidate]:
        """Return the fastest plan of one request in a layout as placed, if there is any below ``limit_s``."""
        request = self.requests[number]
        if ideal is not None:
            alone = PlanTable.of([ideal.plan])
            limit_s = min(limit_s, float(self._price(request, prices, alone)[1].first_s[0]))
        rows = self._find_rows_below(number, layout, prices, limit_s, chance, ideal)
        table, predicted, priced = rows.table, rows.predicted, rows.prices
        among = np.flatnonzero(_has_chance(predicted, chance))
        if not among.size:
            return []
        first = int(among[np.argmin(priced.first_s[among])])
        if not math.isfinite(priced.first_s[first]):
            return []
        best = build_candidate(table, predicted, first)
        is_known = priced.is_last[first] or not self._affords(prices)
        best = replace(best, step_s=float(priced.first_s[first])) if is_known else self._place(request, best)
        # plans whose search is complete are no faster than the first: only the others may be
        others = among[~priced.is_last[among] & (among != first)]
        for row in others[np.argsort(priced.least_s[others], kind="stable")].tolist():
            if priced.least_s[row] >= min(best.step_s, limit_s) * (1.0 - SAME):
                break
            if not self._affords(prices):
                break
            candidate = self._place(request, build_candidate(table, predicted, row))
            best = min(best, candidate, key=lambda candidate_: candidate_.key)
        return [best]

    def _find_rows_below(
        self,
        number: int,
        layout: tuple[int, ...],
        prices: LayoutPrices,
        limit_s: float,
        chance: float,
        ideal: Candidate | None,
    ) -> _Rows:
        """Return those plans of a layout that may be its fastest, ``ideal`` among them, if below a limit."""
        known = self._rows.get((number, layout))
        if known is not None and known.limit_s >= limit_s and (ideal is None or known.limit_s > ideal.step_s):
            return known
        request, limit, batches = self.requests[number], Limit(limit_s), list[_Rows]()

        def take(table: PlanTable) -> None:
            rows = _Rows(limit_s, table, *self._price(request, prices, table))
            limit.lower(float(rows.first_s(chance)))
            batches.append(rows.promising(limit.step_s))

        if ideal is not None:
            take(PlanTable.of([ideal.plan]))
        is_all = ideal is None or limit_s > ideal.step_s * (1.0 + SAME)
        if is_all:
            take_below(self._select_layout(number, layout), limit, take)
        table = join_tables([rows.table for rows in batches])
        rows = _Rows(limit.step_s, table, *self._price(request, prices, table))
        if is_all:
            self._rows[number, layout] = rows
        return rows

    def _affords(self, prices: LayoutPrices) -> bool:
        """Return whether the budget allows to place one more plan by itself."""
        self.whole.messages_left -= max(prices.searched_messages, MIN_MESSAGES)
        self.whole.is_exact &= self.whole.messages_left >= 0
        return self.whole.messages_left >= 0

    def _place(self, request: PlanRequest, candidate: Candidate) -> Candidate:
        """Return a plan with its time where ``opsk place`` places it."""
        return replace(candidate, step_s=self.whole.place(request, candidate.plan).step_s)

    def _get_prices(self, ideal: Candidate) -> LayoutPrices | None:
        """Return the prices of a plan's layout; ``None`` where it cannot be placed."""
        if ideal.layout not in self._prices:
            try:
                prices = LayoutPrices(self.whole.cabled, self.requests[0].model, ideal.plan)
            except PlanInfeasibleError:
                self.whole.unplaceable.add(ideal.layout)
                self._prices[ideal.layout] = None
            else:
                self._prices[ideal.layout] = prices
        return self._prices[ideal.layout]

    def _price(self, request: PlanRequest, prices: LayoutPrices, table: PlanTable) -> tuple[PredictionTable, Prices]:
        """Return the predictions of plans of a layout, and their prices."""
        predicted = predict(request.model, table, request.cluster, request.efficiency)
        steps = step_models(request.model, table, predicted.time, request.cluster, request.efficiency)
        self.whole.priced += len(table)
        return predicted, prices.prices(bytes_of_plans(request.model, table), steps)

    def _select_layout(self, number: int, layout: tuple[int, ...]) -> Space:
        """Return the plans of a layout."""
        if number not in self._spaces:
            self._spaces[number] = build_space(self.requests[number])
        space = self._spaces[number]
        is_of_layout = np.all([space.nodes[axis] == size for axis, size in zip(LAYOUT, layout, strict=True)], axis=0)
        return space.only(np.flatnonzero(is_of_layout))


def _smallest(uppers: Mapping[tuple[int, ...], float], most: int) -> float:
    """Return the last of so many smallest times; infinite where there are fewer."""
    return sorted(uppers.values())[most - 1] if len(uppers) >= most else math.inf


def _has_chance(predicted: PredictionTable, chance: float) -> BoolColumn:
    """Return which plans have the probability to fit that a list requires."""
    fits = predicted.memory.fit_probability
    has_chance: BoolColumn = fits >= chance if chance == FITS_FROM else fits > chance
    return has_chance


def _sequence_s(candidate: Candidate) -> float:
    """Return the time of a sequence [s]."""
    return candidate.step_s / candidate.plan.global_batch

"""Finds the fastest legal plan that fits, exactly, without evaluating most of the plans.

The search is a branch and bound: families of plans are visited in the order of a lower bound on the time of their plans
(`opsk.costmodel.floors`), the most promising first. Once as many plans are known as are requested, every family whose
lower bound is above the last of them is pruned with all its plans, and so is every family that no GPU can hold. Small
spaces are evaluated whole, so that all counts are exact. Several numbers of GPUs, and batches close to the requested
one, are searched together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np

from opsk.costmodel.floors import (
    FamilyFloors,
    Floors,
    family_bytes,
    family_floors,
    node_floors,
    order_bytes,
    order_floors,
    schedule_floors,
)
from opsk.costmodel.predict import predict
from opsk.costmodel.table import BoolColumn, FloatColumn, IntColumn, PlanTable
from opsk.costmodel.uncertainty.chance import fit_probability, largest_bytes
from opsk.costmodel.uncertainty.verdict import FITS_FROM, OOM_UP_TO
from opsk.planning.search.combinations import number_combinations
from opsk.planning.search.layouts import divisors
from opsk.planning.search.request import PlanRequest
from opsk.planning.search.result import KIND, LAYOUT, Candidate, Front, SearchResult
from opsk.planning.search.space import Choices, Space, build_space

WALKED = 100_000
"""A space of so many plans is evaluated whole: it takes less than half a second."""
ROWS = 16_384
"""Rows that are predicted at once: enough that numpy's overhead is small, few enough for the caches and for memory."""
FIRST_FAMILIES, MAX_FAMILIES = 64, 4096
"""Families of the first batch, which only has to find some plans that fit, and of later ones, which are twice as large
each: what is learnt from one bounds the next."""
BATCH_TOLERANCE = 0.1
"""Maximum relative difference from the requested batch for nearly the same training."""
MAX_BATCHES = 12
"""Maximum other batches that are tried, those that more replicas can share first."""


AnyFloors = TypeVar("AnyFloors", bound=Floors)


class Goal(Protocol):
    """The goal of a search: it prunes families that cannot change the result."""

    def can_fit(self, needed_bytes: FloatColumn) -> BoolColumn:
        """Return which families, each of a least memory, may hold a feasible plan."""
        ...

    def is_open(self, result: SearchResult, floors: Floors, nodes: IntColumn) -> BoolColumn:
        """Return which families, each of a node, may change the result."""
        ...

    def ends(self, result: SearchResult, floor_s: float) -> bool:
        """Return whether families of this floor and above cannot change the result."""
        ...


class Fastest:
    """The goal of finding the fastest layouts, feasible or surely fitting, and the kinds of greatest expected speed.

    ``known`` is the result of a search of other plans that will be joined with this one.
    """

    def __init__(self, space: Space, known: SearchResult | None = None) -> None:
        cluster, efficiency = space.request.cluster, space.request.efficiency
        self.known = known
        self.feasible_bytes = largest_bytes(cluster, efficiency, chance=OOM_UP_TO)
        self.fitting_bytes = largest_bytes(cluster, efficiency, chance=FITS_FROM)
        self.capacity_bytes, self.spread = float(cluster.node.gpu.capacity_bytes), efficiency.spread
        self.batch, self.software = space.request.global_batch, space.request.template.software
        self.number, self.layout_of_node = _number_nodes(space, LAYOUT)
        self.kind_number, self.kind_of_node = _number_nodes(space, KIND)

    def can_fit(self, needed_bytes: FloatColumn) -> BoolColumn:
        """Return which families, each of a least memory, may hold a feasible plan."""
        result: BoolColumn = needed_bytes <= self.feasible_bytes
        return result

    def is_open(self, result: SearchResult, floors: Floors, nodes: IntColumn) -> BoolColumn:
        """Return which families, each of a node, may change the result."""
        layouts = self.layout_of_node[nodes]
        feasible = (floors.step_s < self._feasible_s(result)[layouts]) & (floors.needed_bytes <= self.feasible_bytes)
        fitting = (floors.step_s < self._fitting_s(result)[layouts]) & (floors.needed_bytes <= self.fitting_bytes)
        either: BoolColumn = feasible | fitting | self._may_be_likely(result, floors, nodes)
        return either

    def ends(self, result: SearchResult, floor_s: float) -> bool:
        """Return whether families of this floor and above cannot change the result."""
        limits = (result, self.known or result)
        return floor_s >= max(
            min(limit.last_s for limit in limits),
            min(limit.fitting_s for limit in limits),
            min(limit.likely_sequence_s for limit in limits) * self.batch,
        )

    def _may_be_likely(self, result: SearchResult, floors: Floors, nodes: IntColumn) -> BoolColumn:
        """Return which families may hold a plan of so great an expected speed: memory, too, is at least the floor's."""
        limits_s = self._likely_s(result)[self.kind_of_node[nodes]]
        is_open = (floors.step_s < limits_s) & (floors.needed_bytes <= self.feasible_bytes)
        some = np.flatnonzero(is_open)
        chance = fit_probability(floors.needed_bytes[some], np.asarray(self.capacity_bytes), self.spread)
        is_open[some] = floors.step_s[some] < limits_s[some] * chance
        return is_open

    def _likely_s(self, result: SearchResult) -> FloatColumn:
        """Return for every kind the step time over the chance to fit from which on a plan changes nothing [s]."""
        limits = np.full(max(len(self.kind_number), 1), np.inf)
        for source in (result, self.known):
            if source is not None:
                last_s = source.likely_sequence_s * self.batch
                np.minimum(limits, last_s, out=limits)
                for candidate in source.likely:
                    place = self.kind_number.get(tuple(getattr(candidate.plan, axis) for axis in KIND))
                    if place is not None and candidate.plan.software is self.software:
                        limits[place] = min(limits[place], candidate.likely_s * self.batch)
        return limits

    def _feasible_s(self, result: SearchResult) -> FloatColumn:
        """Return for every layout the time from which on a feasible plan changes nothing [s]."""
        limit = self._limit_s(result.last_s, result.best)
        return np.minimum(limit, self._limit_s(self.known.last_s, self.known.best)) if self.known else limit

    def _fitting_s(self, result: SearchResult) -> FloatColumn:
        """Return for every layout the time from which on a plan that surely fits changes nothing [s]."""
        limit = self._limit_s(result.fitting_s, result.best_fitting)
        if not self.known:
            return limit
        return np.minimum(limit, self._limit_s(self.known.fitting_s, self.known.best_fitting))

    def _limit_s(self, last_s: float, best: Sequence[Candidate]) -> FloatColumn:
        """Return the time of the last of the listed layouts, for those that are listed their own [s]."""
        limits = np.full(max(len(self.number), 1), last_s)
        for candidate in best:
            if (place := self.number.get(candidate.layout)) is not None:
                limits[place] = min(candidate.step_s, last_s)
        return limits


def _number_nodes(space: Space, axes: Sequence[str]) -> tuple[dict[tuple[int, ...], int], IntColumn]:
    """Return a number for each combination of sizes of some axes, and the number of each node."""
    combinations, number_of_node = number_combinations([space.nodes[axis] for axis in axes])
    return {tuple(sizes): place for place, sizes in enumerate(combinations.T.tolist())}, number_of_node


class Tradeoffs:
    """The goal of finding the front of time, memory, energy and GPUs in addition to the fastest plans."""

    def __init__(self, space: Space, known: SearchResult | None = None) -> None:
        self.fastest = Fastest(space, known)
        self.request = space.request

    def can_fit(self, needed_bytes: FloatColumn) -> BoolColumn:
        """Return which families, each of a least memory, may hold a feasible plan."""
        return self.fastest.can_fit(needed_bytes)

    def is_open(self, result: SearchResult, floors: Floors, nodes: IntColumn) -> BoolColumn:
        """Return which families, each of a node, may change the result."""
        assert result.front is not None, "a search for a front begins with one"
        batch, rows = float(self.request.global_batch), np.ones(floors.step_s.shape)
        costs = np.stack([floors.step_s / batch, floors.needed_bytes, floors.step_j / batch, rows * self.request.gpus])
        is_new = ~result.front.covers(costs) & self.can_fit(floors.needed_bytes)
        either: BoolColumn = is_new | self.fastest.is_open(result, floors, nodes)
        return either

    def ends(self, result: SearchResult, floor_s: float) -> bool:
        """Return whether families of this floor and above cannot change it: never, they may need less memory."""
        return False


def best_plans(request: PlanRequest) -> SearchResult:
    """Return the fastest plans of all that are legal.

    Raises
    ------
    InputError
        The cluster's GPU has no peak for the number format of the plans.
    """
    return deque(search_space(build_space(request)), maxlen=1)[0]


def search_space(
    space: Space, *, known: SearchResult | None = None, walk: bool | None = None, front: bool = False
) -> Iterator[SearchResult]:
    """Yield the result after every batch of plans, at last that of the whole space.

    Parameters
    ----------
    known
        The result of a search of other plans of the same request: its times bound this one from the start.
    walk
        True evaluates every plan, False bounds even small spaces; left out, small ones are evaluated.
    front
        Whether to return the trade-offs between time, memory, energy and GPUs too.
    """
    size = space.size
    accepts = space.request.accepts if space.request.refuses else None
    start = SearchResult(most=space.request.most, space=size, front=Front() if front else None, accepts=accepts)
    if walk or (walk is None and size <= WALKED):
        yield from _walk(space, start)
    else:
        goal: Goal = Tradeoffs(space, known) if front else Fastest(space, known)
        yield from search_bounded(space, goal, start)


def search_bounded(space: Space, goal: Goal, result: SearchResult) -> Iterator[SearchResult]:
    """Yield the result after every batch, pruning families that cannot change it according to ``goal``."""
    yield from _Bounding(space, goal).run(result)


def _walk(space: Space, result: SearchResult) -> Iterator[SearchResult]:
    """Yield the result after every batch, evaluating every plan."""
    yield result
    request = space.request
    for table in space.list_tables(rows=ROWS):
        result = result.with_rows(table, predict(request.model, table, request.cluster, request.efficiency))
        yield result


@dataclass(frozen=True, slots=True, kw_only=True)
class _Families:
    """Families of plans, or single plans, one a row: the node of each, and the columns that it does not have."""

    owner: IntColumn
    columns: Mapping[str, IntColumn]

    def only(self, rows: IntColumn | BoolColumn) -> _Families:
        """Return some rows."""
        return _Families(owner=self.owner[rows], columns=_select_rows(self.columns, rows))


class _Bounding:
    """One bounded search."""

    def __init__(self, space: Space, goal: Goal) -> None:
        self.space, self.request, self.goal = space, space.request, goal
        self.families = FIRST_FAMILIES

    def run(self, result: SearchResult) -> Iterator[SearchResult]:
        """Yield the result after every batch."""
        yield result
        space = self.space
        floors = self._node_floors()
        fits = self.goal.can_fit(floors.needed_bytes)
        result = result.without(int(space.sizes[~fits].sum()))
        order = np.flatnonzero(fits)[np.argsort(floors.step_s[fits], kind="stable")]
        start, count = 0, FIRST_FAMILIES
        while start < order.shape[0]:
            batch = order[start : start + count]
            start += count
            open_ = self.goal.is_open(result, floors.only(batch), batch)
            result = result.without(int(space.sizes[batch[~open_]].sum()))
            if self.goal.ends(result, floors.step_s[batch[-1]]):
                result = result.without(int(space.sizes[order[start:]].sum()))
                start = order.shape[0]
            for later in self._with_families(result, batch[open_]):
                result = later
                yield result
            count = min(2 * count, ROWS)
        yield result

    def _node_floors(self) -> Floors:
        """Return the floors of all nodes."""
        nodes = np.arange(len(self.space))
        widest = self._widest_sharding()[self.space.nodes["shardings"]]
        families = _Families(owner=nodes, columns={"sharding": widest, "shard_gpus": np.zeros_like(nodes)})
        return self._floors(Floors, node_floors, families)

    def _widest_sharding(self) -> IntColumn:
        """Return the furthest sharding of every list of shardings, as a code."""
        lists = self.space.shardings
        if lists.starts.shape[0] < 2:
            return np.zeros(0, dtype=np.int64)
        return np.maximum.reduceat(lists.columns["sharding"], lists.starts[:-1])

    def _with_families(self, result: SearchResult, nodes: IntColumn) -> Iterator[SearchResult]:
        """Yield the result after every batch of families of some nodes: pruned by bounds, or evaluated."""
        _, families = self._multiply("shardings", _Families(owner=nodes, columns={}))
        needed_bytes = self._needed_bytes(family_bytes, families)
        fits = self.goal.can_fit(needed_bytes)
        result = result.without(self._count(families, "orders", "recomputes", rows=~fits))
        families = families.only(fits)
        floors = self._floors(FamilyFloors, family_floors, families, needed_bytes[fits])
        order = np.argsort(floors.step_s, kind="stable")
        start = 0
        while start < order.shape[0]:
            batch = order[start : start + self.families]
            start += self.families
            self.families = min(2 * self.families, MAX_FAMILIES)
            open_ = self.goal.is_open(result, floors.only(batch), families.owner[batch])
            result = result.without(self._count(families, "orders", "recomputes", rows=batch[~open_]))
            if self.goal.ends(result, floors.step_s[batch[-1]]):
                result = result.without(self._count(families, "orders", "recomputes", rows=order[start:]))
                start = order.shape[0]
            some = batch[open_]
            result = self._with_plans(result, families.only(some), floors.only(some))
            yield result
        yield result

    def _with_plans(self, result: SearchResult, families: _Families, of_families: FamilyFloors) -> SearchResult:
        """Return the result with the plans of some families evaluated, schedule by schedule."""
        place, orders = self._multiply("orders", families)
        floors = Floors.concatenate(
            [schedule_floors(of_families.only(place[rows]), table) for rows, table in self._tables(orders)]
        )
        open_ = self.goal.is_open(result, floors, orders.owner)
        result = result.without(self._count(orders, "recomputes", rows=~open_))
        orders = orders.only(open_)
        needed_bytes = self._needed_bytes(order_bytes, orders)
        fits = self.goal.can_fit(needed_bytes)
        result = result.without(self._count(orders, "recomputes", rows=~fits))
        orders = orders.only(fits)
        floors = self._floors(Floors, order_floors, orders, needed_bytes[fits])
        open_ = self.goal.is_open(result, floors, orders.owner)
        result = result.without(self._count(orders, "recomputes", rows=~open_))
        return self._with_recomputes(result, orders.only(open_), floors.only(np.flatnonzero(open_)))

    def _with_recomputes(self, result: SearchResult, orders: _Families, of_orders: Floors) -> SearchResult:
        """Return the result with the plans of some schedules evaluated, those that recompute all or nothing first."""
        place, plans = self._multiply("recomputes", orders)
        floors = of_orders.only(place)
        partly = plans.columns["recompute_layers"] > 0
        result = self._with_rows(result, plans, np.flatnonzero(~partly))
        model = self.request.model
        # the more layers are recomputed the longer it takes: where a plan without fits, none of these is faster
        stage_layers = (model.layers + model.encoder_layers) / self.space.nodes["pp"][plans.owner]
        floors = floors.recomputing(np.minimum(plans.columns["recompute_layers"] / stage_layers, 1.0))
        open_ = self.goal.is_open(result, floors, plans.owner)
        result = result.without(int((partly & ~open_).sum()))
        return self._with_rows(result, plans, np.flatnonzero(partly & open_))

    def _with_rows(self, result: SearchResult, plans: _Families, rows: IntColumn) -> SearchResult:
        """Return the result with some rows evaluated."""
        for _, table in self._tables(plans.only(rows)):
            predicted = predict(self.request.model, table, self.request.cluster, self.request.efficiency)
            result = result.with_rows(table, predicted)
        return result

    def _multiply(self, name: str, families: _Families) -> tuple[IntColumn, _Families]:
        """Return every family once for each entry of its node's list of ``name``: the row that it was, and the rows."""
        lists: Choices = getattr(self.space, name)
        place, entry = lists.multiply(self.space.nodes[name][families.owner])
        rows = families.only(place)
        return place, _Families(owner=rows.owner, columns={**rows.columns, **_select_rows(lists.columns, entry)})

    def _count(self, families: _Families, *names: str, rows: IntColumn | BoolColumn) -> int:
        """Return the plans of some rows, each of which has those of its node's lists of some names."""
        owner, space = families.owner[rows], self.space
        counts = [getattr(space, name).counts(space.nodes[name][owner]) for name in names]
        return int(np.multiply.reduce(counts).sum())

    def _needed_bytes(self, function: Callable[..., FloatColumn], families: _Families) -> FloatColumn:
        """Return the least memory of rows [bytes]."""
        request = self.request
        parts = [
            function(request.model, table, request.cluster, request.efficiency) for _, table in self._tables(families)
        ]
        return np.concatenate(parts or [np.zeros(0)])

    def _floors(
        self, kind: type[AnyFloors], function: Callable[..., AnyFloors], families: _Families, *columns: FloatColumn
    ) -> AnyFloors:
        """Return the floors of rows; a function takes some columns of its rows besides their plans."""
        request = self.request
        parts = [
            function(request.model, table, request.cluster, request.efficiency, *(column[rows] for column in columns))
            for rows, table in self._tables(families)
        ]
        return kind.concatenate(parts)

    def _tables(self, families: _Families) -> Iterator[tuple[IntColumn, PlanTable]]:
        """Yield rows in pieces that caches hold: which, and their plans."""
        for rows in _split_rows(np.arange(families.owner.shape[0]), ROWS):
            yield rows, self.space.rows(families.owner[rows], **_select_rows(families.columns, rows))


def _select_rows(columns: Mapping[str, IntColumn], rows: IntColumn | BoolColumn) -> dict[str, IntColumn]:
    """Return some rows of columns."""
    return {name: column[rows] for name, column in columns.items()}


def _split_rows(rows: IntColumn, most: int) -> Iterator[IntColumn]:
    """Yield an array in pieces."""
    for start in range(0, rows.shape[0], most):
        yield rows[start : start + most]


def list_cases(request: PlanRequest, *, gpu_counts: Sequence[int] = (), keep_batch: bool = True) -> list[PlanRequest]:
    """Return the request with every requested number of GPUs and every batch, its own first."""
    counts = dict.fromkeys((request.gpus, *gpu_counts))
    return [
        replace(with_gpus(request, gpus), global_batch=batch)
        for gpus in counts
        for batch in (request.global_batch, *(() if keep_batch else nearby_batches(request.global_batch, gpus)))
    ]


def with_gpus(request: PlanRequest, gpus: int) -> PlanRequest:
    """Return the request with another number of GPUs, on a cluster that has them."""
    nodes = max(-(-gpus // request.cluster.node.gpus), request.cluster.nodes)
    return replace(request, gpus=gpus, cluster=replace(request.cluster, nodes=nodes))


def nearby_batches(batch: int, gpus: int) -> list[int]:
    """Return other batches within a tenth, those that can be shared by most replicas first."""
    batches: dict[int, None] = {}
    for replicas in reversed(divisors(gpus)):
        for near in (batch // replicas * replicas, -(-batch // replicas) * replicas):
            if near != batch and abs(near - batch) <= BATCH_TOLERANCE * batch and near > 0:
                batches[near] = None
    return list(batches)[:MAX_BATCHES]


def search_cases(
    requests: Sequence[PlanRequest], *, walk: bool | None = None, front: bool = False
) -> Iterator[SearchResult]:
    """Yield the joined result of all requests after every batch of plans; a request without plans adds nothing."""
    done = SearchResult(most=requests[0].most, front=Front() if front else None)
    yield done
    for place, request in enumerate(requests):
        result = done
        size = (request.gpus, request.global_batch)
        # step times bound those of other frameworks, but not those of other numbers of GPUs or batches
        is_same = place > 0 and all((other.gpus, other.global_batch) == size for other in requests[:place])
        known = done if is_same and not walk else None
        for part in search_space(build_space(request), known=known, walk=walk, front=front):
            result = done.merge(part)
            yield result
        done = result

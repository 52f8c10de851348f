"""On which nodes and cables may a plan run, and how fast can each plan of one layout be there?

How long a link is busy goes with the bytes of its axis. So one plan of a layout tells of all others: the busiest link
of an axis is looked up once for each way to seat the ranks and each *mix* of bytes (of stages, of dense and expert
parameters), and multiplied by the bytes of a plan.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from opsk.costmodel.table import FloatColumn, IntColumn
from opsk.fabric.rails import Rails
from opsk.planning.placement.arrangements import MOST_LOCAL_GPUS, MOST_LOCAL_NODES, MOST_NODES, all_orders, node_classes
from opsk.planning.placement.judging import SAME, judge_with_links, least_axis_s, messages_of
from opsk.planning.placement.placement import Placement, place
from opsk.planning.placement.preparing import Begun, begin
from opsk.planning.placement.search import MESSAGES_JUDGED, MOST_IMPROVED_NODES
from opsk.planning.placement.step_model import StepModel, StepModels
from opsk.planning.routing.hca_seats import Ports
from opsk.planning.routing.hca_traffic import Seating
from opsk.planning.routing.rank_traffic import AXES, BytesTable
from opsk.planning.routing.routes import Routes
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

_PARTS: Mapping[str, tuple[str, ...]] = {
    "tp": ("tp",),
    "cp": ("cp",),
    "ep": ("ep",),
    "dp": ("dp", "expert_dp", "embedding"),
    "pp": ("pp_forward", "pp_wrap"),
}
"""Axis to the fields of `StepBytes` that run over it."""
_ORDERS_AT_ONCE = 2_000_000
"""All orders of a few nodes are looked up for all plans of a layout where that judges at most so many messages."""
_DIGITS = 9
"""Mixes that are the same to so many digits are one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cabled:
    """Nodes that may be used, and what is cabled there; fields as at `opsk.planning.placement.placement.place`."""

    rails: Rails
    nodes: tuple[str, ...]
    gpus_per_node: int
    routes: Routes
    hb_domains: Mapping[str, str] | None = None
    node_gpus: int | None = None
    affinity: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    _ports: dict[tuple[str, ...], Ports] = field(default_factory=dict, init=False, repr=False, compare=False)

    def place(self, model: ModelShape, plan: Plan, step: StepModel) -> Placement:
        """Place one plan, as ``opsk place`` does.

        Raises
        ------
        PlanInfeasibleError
            The plan cannot be laid out over these nodes.
        """
        return place(
            model,
            plan,
            self.rails,
            self.nodes,
            self.gpus_per_node,
            hb_domains=self.hb_domains,
            routes=self.routes,
            step=step,
            node_gpus=self.node_gpus,
            affinity=self.affinity,
        )

    def begin(self, model: ModelShape, plan: Plan) -> Begun:
        """Find the ways to seat a plan's layout that are judged first; raises as ``place`` does."""
        return begin(
            model,
            plan,
            self.rails,
            self.nodes,
            self.gpus_per_node,
            self.hb_domains,
            routes=self.routes,
            node_gpus=self.node_gpus,
            affinity=self.affinity,
            known_ports=self._ports,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Steps of some plans of one layout, shape (plans,) [s].

    Parameters
    ----------
    least_s
        No placement that ``opsk place`` finds is faster.
    first_s
        The fastest of the ways to seat the ranks that are looked up: Slurm's own, a few good ones, all of few nodes.
    is_last
        Whether ``opsk place`` has nothing faster to find: the bound is reached, or it searches no further.
    """

    least_s: FloatColumn
    first_s: FloatColumn
    is_last: np.ndarray[tuple[int], np.dtype[np.bool_]]


class LayoutPrices:
    """Prices the plans of one layout on cables; what was looked up is kept."""

    def __init__(self, cabled: Cabled, model: ModelShape, plan: Plan) -> None:
        self.begun = cabled.begin(model, plan)
        self.stages = self.begun.job.grid.ranks.shape[0]
        self._seatings: list[Seating] = []
        self._more = self._first_seatings()
        self._busy: dict[tuple[str, tuple[float, ...], int], tuple[float, FloatColumn]] = {}
        self.searched_messages = self._searched_messages()
        if self.searched_messages and len(self._candidates) <= MOST_NODES and self.searched_messages <= _ORDERS_AT_ONCE:
            self._more = chain(self._more, self._all_seatings())
            self.searched_messages = 0

    def prices(self, sent: BytesTable, steps: StepModels) -> Prices:
        """Return what the plans of a table cost; ``steps`` are those of the same rows."""
        ideal_s = steps.step_s(np.zeros((sent.pp.shape[0], len(AXES))))
        bound_s, least_s, first_s = np.zeros_like(ideal_s), *np.full((2, ideal_s.shape[0]), np.inf)
        number = 0
        while (first_s > ideal_s * (1.0 + SAME)).any() and self._has_seating(number):
            for rows, least, busy in self._axis_s(sent, number):
                some = steps.only(rows)
                bound = np.maximum(some.step_s(least), ideal_s[rows])
                seated = np.min([some.step_s(each) for each in busy], axis=0)
                bound_s[rows] = np.where(seated < first_s[rows], bound, bound_s[rows])
                least_s[rows], first_s[rows] = np.minimum(least_s[rows], bound), np.minimum(first_s[rows], seated)
            number += 1
        reached = first_s <= bound_s * (1.0 + SAME)
        return Prices(least_s=least_s, first_s=first_s, is_last=reached | (self.searched_messages == 0))

    @property
    def _candidates(self) -> tuple[int, ...]:
        """Nodes among which ``opsk place`` searches."""
        return self.begun.spares or self.begun.default_order

    def _searched_messages(self) -> int:
        """Return about how many messages ``opsk place`` judges at most to search further for one plan; 0 for none."""
        begun, job = self.begun, self.begun.job
        nodes = min(len(order) for order in (begun.default_order, *begun.orders))
        is_few = len(self._candidates) <= MOST_NODES
        if not is_few and nodes > MOST_IMPROVED_NODES:
            return 0
        kinds = Counter(node_classes(job)[list(self._candidates)].tolist())
        if not is_few:
            return MESSAGES_JUDGED if len(kinds) > 1 else 0
        local = 1
        if len(self._candidates) <= MOST_LOCAL_NODES and job.usable_gpus <= MOST_LOCAL_GPUS:
            local = math.factorial(job.usable_gpus) ** nodes
        if len(kinds) == local == len(begun.ways):
            return 0
        return _sequences(list(kinds.values()), nodes) * local * messages_of(job) * len(begun.ways)

    def _first_seatings(self) -> Iterator[Seating]:
        """Yield Slurm's own seats, then those of the good orders."""
        default = self.begun.default_seating()
        yield default
        yield from (seating for _, seating in self.begun.other_seatings(default))

    def _all_seatings(self) -> Iterator[Seating]:
        """Yield the seats of all orders, many at a time."""
        for packing in self.begun.ways:
            yield from (batch.seating for batch in all_orders(self.begun.job, self._candidates, packing))

    def _has_seating(self, number: int) -> bool:
        """Return whether there is a seating of this number."""
        while len(self._seatings) <= number:
            following = next(self._more, None)
            if following is None:
                return False
            self._seatings.append(following)
        return True

    def _axis_s(self, sent: BytesTable, seating: int) -> Iterator[tuple[IntColumn, FloatColumn, list[FloatColumn]]]:
        """Yield the rows of plans of one mix on every axis, with bound and busiest link of each axis [s].

        Both have shape (plans, axes); the latter is told for every seat of a seating that no other beats on all axes.
        """
        mixed = {axis: self._mixes(sent, axis) for axis in AXES}
        kinds, which = np.unique([mixed[axis][2] for axis in AXES], axis=1, return_inverse=True)
        for number, kind in enumerate(kinds.T.tolist()):
            rows = np.flatnonzero(which.reshape(-1) == number)
            units = [
                self._unit_s(
                    axis, mixed[axis][1][place_of], sent, int(rows[0]), float(mixed[axis][0][rows[0]]), seating
                )
                for axis, place_of in zip(AXES, kind, strict=True)
            ]
            total = np.stack([mixed[axis][0][rows] for axis in AXES], axis=1)
            seats = _undominated(np.stack([busy for _, busy in units], axis=1))
            yield rows, total * np.array([least for least, _ in units]), [total * busy for busy in seats]

    def _mixes(self, sent: BytesTable, axis: str) -> tuple[FloatColumn, Sequence[tuple[float, ...]], IntColumn]:
        """Return the largest of the bytes of an axis, the mixes that there are, and the mix of each plan."""
        stages = [0] if self.stages == 1 else [0, 2] if self.stages == 2 else [0, 1, 2]
        parts = [getattr(sent, name) for name in _PARTS[axis]]
        table = np.concatenate([part[stages] if part.ndim == 2 else part[None] for part in parts])
        total: FloatColumn = table.max(axis=0)
        mixed = np.round(np.divide(table, total, out=np.zeros_like(table), where=total > 0), _DIGITS)
        mixes, which = np.unique(mixed, axis=1, return_inverse=True)
        return total, [tuple(mix) for mix in mixes.T.tolist()], which.reshape(-1)

    def _unit_s(
        self, axis: str, mix: tuple[float, ...], sent: BytesTable, row: int, total: float, seating: int
    ) -> tuple[float, FloatColumn]:
        """Return bound and busiest link of an axis for each byte, the latter for every seat; ``row`` has that mix."""
        rows = self._seatings[seating].rows
        if not total:
            return 0.0, np.zeros(rows)
        key = (axis, mix, seating)
        if key not in self._busy:
            others = [name for other, names in _PARTS.items() if other != axis for name in names]
            whole = sent.row(row)
            job = replace(self.begun.job, sent=replace(whole, **{name: getattr(whole, name) * 0.0 for name in others}))
            verdict, loads = judge_with_links(job, self._seatings[seating])
            number = AXES.index(axis)
            self._busy[key] = float(least_axis_s(job, loads)[number]) / total, verdict.axis_s[:, number] / total
        return self._busy[key]


def _sequences(kinds: Sequence[int], length: int) -> int:
    """Return the different sequences of things of which so many of each kind are alike: of 2 and 1 three (aab, ...)."""
    ways = [1] + [0] * length
    for alike in kinds:
        ways = [sum(math.comb(n, j) * ways[n - j] for j in range(min(alike, n) + 1)) for n in range(length + 1)]
    return ways[length]


def _undominated(seats: FloatColumn) -> FloatColumn:
    """Return the rows that no other is below, or equal to, in all columns."""
    left, kept = np.unique(seats, axis=0), []
    while left.shape[0]:
        kept.append(left[0])
        left = left[(left < left[0]).any(axis=1)]
    return np.array(kept)

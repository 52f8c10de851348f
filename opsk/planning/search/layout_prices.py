"""Prices the plans of one layout on given nodes and cables.

The time that a link is busy is proportional to the bytes of its axis. One plan of a layout therefore gives the times of
all others: the busiest link of an axis is computed once for each rank placement and each *mix* of bytes (of stages, of
dense and expert parameters), and multiplied by the bytes of a plan.
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
from opsk.planning.placement.initial_placements import InitialPlacements, PlacementProblem, build_initial_placements
from opsk.planning.placement.placement import Placement, place
from opsk.planning.placement.rank_placement import SAME, compute_min_axis_s, estimate_messages, judge_with_links
from opsk.planning.placement.search import (
    MAX_IMPROVED_NODES,
    MAX_LOCAL_GPUS,
    MAX_LOCAL_NODES,
    MAX_NODES,
    MESSAGES_JUDGED,
    all_orders,
    classify_nodes,
)
from opsk.planning.placement.step_model import COMMUNICATION_ONLY, StepModel, StepModels
from opsk.planning.routing.hca_ports import Ports
from opsk.planning.routing.routes import Routes
from opsk.planning.routing.traffic import AXES, BytesTable, RankPlacement
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
"""Maximum messages for evaluating all orders of a few nodes for all plans of a layout."""
_DIGITS = 9
"""Mixes that are equal to this many digits are merged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cabled:
    """The usable nodes with their cabling; fields as at `opsk.planning.placement.placement.place`."""

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
            The plan cannot be placed on these nodes.
        """
        return place(self._problem(model, plan, step))

    def build_initial_placements(self, model: ModelShape, plan: Plan) -> InitialPlacements:
        """Build the initial placements of a plan's layout; raises as ``place`` does."""
        return build_initial_placements(self._problem(model, plan, COMMUNICATION_ONLY), known_ports=self._ports)

    def _problem(self, model: ModelShape, plan: Plan, step: StepModel) -> PlacementProblem:
        return PlacementProblem(
            model=model,
            plan=plan,
            rails=self.rails,
            nodes=self.nodes,
            gpus_per_node=self.gpus_per_node,
            hb_domains=self.hb_domains,
            routes=self.routes,
            step=step,
            node_gpus=self.node_gpus,
            affinity=self.affinity,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Steps of some plans of one layout, shape (plans,) [s].

    Parameters
    ----------
    least_s
        No placement that ``opsk place`` finds is faster.
    first_s
        The fastest of the evaluated placements: Slurm's own, a few good ones, all of few nodes.
    is_last
        Whether ``opsk place`` has nothing faster to find: the bound is reached, or it searches no further.
    """

    least_s: FloatColumn
    first_s: FloatColumn
    is_last: np.ndarray[tuple[int], np.dtype[np.bool_]]


class LayoutPrices:
    """Prices the plans of one layout on cables; link times are cached."""

    def __init__(self, cabled: Cabled, model: ModelShape, plan: Plan) -> None:
        self.initial = cabled.build_initial_placements(model, plan)
        self.stages = self.initial.job.grid.ranks.shape[0]
        self._rank_placements: list[RankPlacement] = []
        self._more = self._build_first_placements()
        self._busy: dict[tuple[str, tuple[float, ...], int], tuple[float, FloatColumn]] = {}
        self.searched_messages = self._estimate_searched_messages()
        if self.searched_messages and len(self._candidates) <= MAX_NODES and self.searched_messages <= _ORDERS_AT_ONCE:
            self._more = chain(self._more, self._build_all_placements())
            self.searched_messages = 0

    def prices(self, sent: BytesTable, steps: StepModels) -> Prices:
        """Return the steps of the plans of a table; ``steps`` are the step models of the same rows."""
        ideal_s = steps.step_s(np.zeros((sent.pp.shape[0], len(AXES))))
        bound_s, least_s, first_s = np.zeros_like(ideal_s), *np.full((2, ideal_s.shape[0]), np.inf)
        number = 0
        while (first_s > ideal_s * (1.0 + SAME)).any() and self._has_placement(number):
            for rows, least, busy in self._compute_axis_s(sent, number):
                models = steps.only(rows)
                row_bound_s = np.maximum(models.step_s(least), ideal_s[rows])
                placed_s = np.min([models.step_s(axis_s) for axis_s in busy], axis=0)
                bound_s[rows] = np.where(placed_s < first_s[rows], row_bound_s, bound_s[rows])
                least_s[rows], first_s[rows] = (
                    np.minimum(least_s[rows], row_bound_s),
                    np.minimum(first_s[rows], placed_s),
                )
            number += 1
        reached = first_s <= bound_s * (1.0 + SAME)
        return Prices(least_s=least_s, first_s=first_s, is_last=reached | (self.searched_messages == 0))

    @property
    def _candidates(self) -> tuple[int, ...]:
        """Nodes among which ``opsk place`` searches."""
        return self.initial.spares or self.initial.default_order

    def _estimate_searched_messages(self) -> int:
        """Return about how many messages ``opsk place`` evaluates at most to search for one plan; 0 for none."""
        initial, job = self.initial, self.initial.job
        nodes = min(len(order) for order in (initial.default_order, *initial.orders))
        is_few = len(self._candidates) <= MAX_NODES
        if not is_few and nodes > MAX_IMPROVED_NODES:
            return 0
        kinds = Counter(classify_nodes(job)[list(self._candidates)].tolist())
        if not is_few:
            return MESSAGES_JUDGED if len(kinds) > 1 else 0
        local = 1
        if len(self._candidates) <= MAX_LOCAL_NODES and job.usable_gpus <= MAX_LOCAL_GPUS:
            local = math.factorial(job.usable_gpus) ** nodes
        if len(kinds) == local == len(initial.packings):
            return 0
        return _count_sequences(list(kinds.values()), nodes) * local * estimate_messages(job) * len(initial.packings)

    def _build_first_placements(self) -> Iterator[RankPlacement]:
        """Yield Slurm's own placement, then those of the good orders."""
        default = self.initial.build_default_placement()
        yield default
        yield from (rank_placement for _, rank_placement in self.initial.build_other_placements(default))

    def _build_all_placements(self) -> Iterator[RankPlacement]:
        """Yield the placements of all orders, many at a time."""
        for packing in self.initial.packings:
            yield from (batch.rank_placement for batch in all_orders(self.initial.job, self._candidates, packing))

    def _has_placement(self, number: int) -> bool:
        """Return whether there is a placement of this number."""
        while len(self._rank_placements) <= number:
            following = next(self._more, None)
            if following is None:
                return False
            self._rank_placements.append(following)
        return True

    def _compute_axis_s(
        self, sent: BytesTable, rank_placement: int
    ) -> Iterator[tuple[IntColumn, FloatColumn, list[FloatColumn]]]:
        """Yield the rows of plans of one mix on every axis, with bound and busiest link of each axis [s].

        Both have shape (plans, axes); the latter is a list over the rows that no other row beats on all axes.
        """
        mixed = {axis: self._find_mixes(sent, axis) for axis in AXES}
        kinds, which = np.unique([mixed[axis][2] for axis in AXES], axis=1, return_inverse=True)
        for number, kind in enumerate(kinds.T.tolist()):
            rows = np.flatnonzero(which.reshape(-1) == number)
            units = [
                self._compute_unit_s(
                    axis, mixed[axis][1][place_of], sent, int(rows[0]), float(mixed[axis][0][rows[0]]), rank_placement
                )
                for axis, place_of in zip(AXES, kind, strict=True)
            ]
            total = np.stack([mixed[axis][0][rows] for axis in AXES], axis=1)
            undominated = _select_undominated(np.stack([busy for _, busy in units], axis=1))
            yield rows, total * np.array([least for least, _ in units]), [total * busy for busy in undominated]

    def _find_mixes(self, sent: BytesTable, axis: str) -> tuple[FloatColumn, Sequence[tuple[float, ...]], IntColumn]:
        """Return the largest bytes of an axis, the distinct mixes, and the mix of each plan."""
        stages = [0] if self.stages == 1 else [0, 2] if self.stages == 2 else [0, 1, 2]
        parts = [getattr(sent, name) for name in _PARTS[axis]]
        table = np.concatenate([part[stages] if part.ndim == 2 else part[None] for part in parts])
        total: FloatColumn = table.max(axis=0)
        mixed = np.round(np.divide(table, total, out=np.zeros_like(table), where=total > 0), _DIGITS)
        mixes, which = np.unique(mixed, axis=1, return_inverse=True)
        return total, [tuple(mix) for mix in mixes.T.tolist()], which.reshape(-1)

    def _compute_unit_s(
        self, axis: str, mix: tuple[float, ...], sent: BytesTable, row: int, total: float, rank_placement: int
    ) -> tuple[float, FloatColumn]:
        """Return bound and busiest link of an axis for each byte, the latter for every row; ``row`` has that mix."""
        rows = self._rank_placements[rank_placement].rows
        if not total:
            return 0.0, np.zeros(rows)
        key = (axis, mix, rank_placement)
        if key not in self._busy:
            others = [name for other, names in _PARTS.items() if other != axis for name in names]
            whole = sent.row(row)
            job = replace(
                self.initial.job, sent=replace(whole, **{name: getattr(whole, name) * 0.0 for name in others})
            )
            verdict, loads = judge_with_links(job, self._rank_placements[rank_placement])
            number = AXES.index(axis)
            self._busy[key] = float(compute_min_axis_s(job, loads)[number]) / total, verdict.axis_s[:, number] / total
        return self._busy[key]


def _count_sequences(kinds: Sequence[int], length: int) -> int:
    """Return the number of distinct sequences of items, given how many of each kind: three for 2 and 1 (aab, ...)."""
    counts = [1] + [0] * length
    for same_kind in kinds:
        counts = [sum(math.comb(n, j) * counts[n - j] for j in range(min(same_kind, n) + 1)) for n in range(length + 1)]
    return counts[length]


def _select_undominated(rows: FloatColumn) -> FloatColumn:
    """Return the rows that no other row is below, or equal to, in all columns."""
    left, chosen = np.unique(rows, axis=0), []
    while left.shape[0]:
        chosen.append(left[0])
        left = left[(left < left[0]).any(axis=1)]
    return np.array(chosen)

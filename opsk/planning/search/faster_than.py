"""Collects all plans of a space that are faster than a given time and may fit."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from opsk.costmodel.floors import Floors
from opsk.costmodel.table import BoolColumn, IntColumn, PlanTable, PredictionTable
from opsk.costmodel.uncertainty.chance_limit import largest_bytes
from opsk.costmodel.uncertainty.verdict import OOM_UP_TO
from opsk.planning.search.result import SearchResult
from opsk.planning.search.search import search_bounded
from opsk.planning.search.space import Space


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

    def can_fit(self, floors: Floors) -> BoolColumn:
        """Return which families may hold a feasible plan."""
        fits: BoolColumn = floors.needed_bytes <= self.feasible_bytes
        return fits

    def is_open(self, result: SearchResult, floors: Floors, nodes: IntColumn) -> BoolColumn:
        """Return which families may hold a plan below the time."""
        is_open_family: BoolColumn = (floors.step_s < self.limit.step_s) & self.can_fit(floors)
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

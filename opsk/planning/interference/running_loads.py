"""Aggregates the loads of all running jobs and storage by link, so that a candidate is evaluated quickly."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from opsk.costmodel.table import FloatColumn
from opsk.lru_cache import LruCache
from opsk.planning.interference.load import Load
from opsk.planning.routing.hca_ports import Index
from opsk.planning.routing.traffic import AXES

Entries = npt.NDArray[np.int32]
Small = npt.NDArray[np.float32]

_RECENT_ROWS = 8
"""Cached node choices: one per requested job size while the same jobs run."""
Rows = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningLoads:
    """Loads as one sparse matrix of jobs and links; entry *e* is the demand of job ``job[e]`` on link ``link[e]``.

    Parameters
    ----------
    burst
        As in `Load`, shape (axes, entries).
    total
        Mean utilisation of each link by all of them, each as if alone [ratio].
    demand, present
        Demand that a new job meets, by entry and in total for each link [ratio]: the demand of bursts times the part of
        the time that they last, which is longer with the other jobs than alone. More than 1 where the running jobs
        demand more than the link has.
    stretch_factor
        How many times as long the bursts of each job take with all the others, shape (jobs, axes).
    tightest
        The largest demand of one burst on each link together with the mean of the others [ratio].
    cached_node_sets
        Candidate sets of free nodes for these loads, by the arguments that they were chosen from.
    """

    loads: tuple[Load, ...]
    job: Entries
    link: Entries
    burst: Small
    utilisation: Small
    demand: Small
    total: FloatColumn
    present: FloatColumn
    stretch_factor: FloatColumn
    tightest: FloatColumn
    cached_node_sets: LruCache[Rows] = field(
        default_factory=lambda: LruCache(_RECENT_ROWS), init=False, repr=False, compare=False
    )

    @classmethod
    def of(cls, links: int, loads: Iterable[Load]) -> RunningLoads:
        """Prepare the loads; ``links`` is their number on the fabric (`FabricLinks.links`)."""
        all_loads = tuple(loads)
        sizes = [load.links.size for load in all_loads]
        return cls._prepare(
            links,
            all_loads,
            job=np.repeat(np.arange(len(all_loads), dtype=np.int32), sizes),
            link=np.concatenate(
                [np.empty(0, np.int32), *(load.links for load in all_loads)], dtype=np.int32, casting="same_kind"
            ),
            burst=np.concatenate(
                [np.empty((len(AXES), 0), np.float32), *(load.burst for load in all_loads)],
                axis=1,
                dtype=np.float32,
                casting="same_kind",
            ),
            utilisation=np.concatenate(
                [np.empty(0, np.float32), *(load.utilisation for load in all_loads)],
                dtype=np.float32,
                casting="same_kind",
            ),
        )

    def with_load(self, load: Load) -> RunningLoads:
        """Return the loads with one more job; the loads of the others are not recomputed."""
        size = load.links.size
        return self._prepare(
            self.total.size,
            (*self.loads, load),
            job=np.concatenate([self.job, np.full(size, len(self.loads), dtype=np.int32)]),
            link=np.concatenate([self.link, load.links.astype(np.int32)]),
            burst=np.concatenate([self.burst, load.burst.astype(np.float32)], axis=1),
            utilisation=np.concatenate([self.utilisation, load.utilisation.astype(np.float32)]),
        )

    def without(self, name: str) -> RunningLoads:
        """Return the loads without those of this name; a job's own storage traffic has the name of the job."""
        is_removed = np.array([load.name == name for load in self.loads], dtype=np.bool_)
        if not is_removed.any():
            return self
        is_other = ~is_removed[self.job]
        number = (np.cumsum(~is_removed) - 1).astype(np.int32)
        return self._prepare(
            self.total.size,
            tuple(load for load in self.loads if load.name != name),
            job=number[self.job[is_other]],
            link=self.link[is_other],
            burst=self.burst[:, is_other],
            utilisation=self.utilisation[is_other],
        )

    @classmethod
    def _prepare(
        cls, links: int, loads: tuple[Load, ...], *, job: Entries, link: Entries, burst: Small, utilisation: Small
    ) -> RunningLoads:
        """Compute the totals, and how much the jobs slow each other."""
        total = np.bincount(link, weights=utilisation, minlength=links).astype(np.float64)
        others = (total[link] - utilisation).astype(np.float32)
        tightest = np.zeros(links)
        np.maximum.at(tightest, link, burst.max(axis=0, initial=0.0) + others)
        stretched = stretch(len(loads), job, burst, others)
        demand = np.zeros(link.size, dtype=np.float32)
        duty_cycles = _compute_duty_cycles(loads, stretched).astype(np.float32)
        for axis, row in enumerate(burst):
            if row.any():
                demand += row * duty_cycles[job, axis]
        return cls(
            loads=loads,
            job=job,
            link=link,
            burst=burst,
            utilisation=utilisation,
            demand=demand,
            total=total,
            present=np.bincount(link, weights=demand, minlength=links).astype(np.float64),
            stretch_factor=stretched,
            tightest=tightest,
        )

    def entries_on(self, links: Index) -> tuple[Index, Index]:
        """Return the entries on some links, and which of these each is on."""
        place = np.full(self.total.size, -1)
        place[links] = np.arange(links.size)
        row_of_entry = place.take(self.link)
        entries = np.flatnonzero(row_of_entry >= 0)
        return entries, row_of_entry.take(entries)


def stretch(jobs: int, job: Entries | Index, burst: Small | FloatColumn, others: Small | FloatColumn) -> FloatColumn:
    """Return how many times as long each job's axes take with other jobs, shape (jobs, axes); 1 for no slowdown.

    On each link an axis demands ``burst`` next to ``others``, the mean utilisation by all others; where the sum is more
    than the link has, both are slowed equally, and the most loaded link sets the time of the axis. ``job`` ascends.
    """
    factors = np.ones((jobs, burst.shape[0]))
    if not job.size:
        return factors
    start = np.flatnonzero(np.diff(job, prepend=-1))
    for axis, row in enumerate(burst):
        if not row.any():
            continue
        demand = np.where(row > 0, row + others, 0)
        factors[job[start], axis] = np.maximum(np.maximum.reduceat(demand, start), 1.0)
    return factors


def _compute_duty_cycles(loads: Sequence[Load], stretched: FloatColumn) -> FloatColumn:
    """Return the part of a step that the bursts of each axis last with the other jobs, shape (jobs, axes) [ratio]."""
    duty_cycles = np.zeros((len(loads), len(AXES)))
    for number, load in enumerate(loads):
        bursts_s = load.axis_s * stretched[number]
        duty_cycles[number] = (
            load.axis_s if not load.has_steps else bursts_s / max(_step_s(load, bursts_s), bursts_s.sum())
        )
    return duty_cycles


def _step_s(load: Load, bursts_s: FloatColumn) -> float:
    """Return a load's step with bursts of this length; never 0."""
    return float(load.step.step_s(bursts_s)) or 1.0

"""What do all running jobs and storage together ask of each link? Kept ready, so that a candidate is judged at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from opsk.costmodel.table import FloatColumn
from opsk.planning.interference.load import Load
from opsk.planning.routing.hca_seats import Index
from opsk.planning.routing.rank_traffic import AXES
from opsk.planning.routing.recent import Recent

Entries = npt.NDArray[np.int32]
Small = npt.NDArray[np.float32]

_RECENT_ROWS = 8
"""Choices of nodes that are kept: there are as many as sizes of jobs that are asked about while the same jobs run."""
Rows = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningLoads:
    """Loads as one sparse matrix of jobs and links; entry *e* says what job ``job[e]`` asks of link ``link[e]``.

    Parameters
    ----------
    burst
        As in `Load`, shape (axes, entries).
    total
        Mean utilisation of each link by all of them, each as if alone [ratio].
    asked, present
        What a newcomer finds asked of its links, by entry and of each link by all [ratio]: what bursts ask for, times
        the part of the time that they last, longer beside each other than alone. More than 1 where jobs that are there
        already cannot all have what they ask for.
    beside
        How many times as long the bursts of each job take beside all the others, shape (jobs, axes).
    tightest
        The most that a burst of one of them asks of each link together with the mean of the others [ratio].
    recent_rows
        Sets of free nodes that were worth judging beside these loads, by what they were chosen from.
    """

    loads: tuple[Load, ...]
    job: Entries
    link: Entries
    burst: Small
    utilisation: Small
    asked: Small
    total: FloatColumn
    present: FloatColumn
    beside: FloatColumn
    tightest: FloatColumn
    recent_rows: Recent[Rows] = field(
        default_factory=lambda: Recent(_RECENT_ROWS), init=False, repr=False, compare=False
    )

    @classmethod
    def of(cls, links: int, loads: Iterable[Load]) -> RunningLoads:
        """Prepare the loads; ``links`` is their number on the fabric (`Wires.links`)."""
        every = tuple(loads)
        sizes = [load.links.size for load in every]
        return cls._prepared(
            links,
            every,
            job=np.repeat(np.arange(len(every), dtype=np.int32), sizes),
            link=np.concatenate(
                [np.empty(0, np.int32), *(load.links for load in every)], dtype=np.int32, casting="same_kind"
            ),
            burst=np.concatenate(
                [np.empty((len(AXES), 0), np.float32), *(load.burst for load in every)],
                axis=1,
                dtype=np.float32,
                casting="same_kind",
            ),
            utilisation=np.concatenate(
                [np.empty(0, np.float32), *(load.utilisation for load in every)], dtype=np.float32, casting="same_kind"
            ),
        )

    def with_load(self, load: Load) -> RunningLoads:
        """Return the same with one job more; the loads of the others are not worked out again."""
        size = load.links.size
        return self._prepared(
            self.total.size,
            (*self.loads, load),
            job=np.concatenate([self.job, np.full(size, len(self.loads), dtype=np.int32)]),
            link=np.concatenate([self.link, load.links.astype(np.int32)]),
            burst=np.concatenate([self.burst, load.burst.astype(np.float32)], axis=1),
            utilisation=np.concatenate([self.utilisation, load.utilisation.astype(np.float32)]),
        )

    def without(self, name: str) -> RunningLoads:
        """Return the same without what has this name; a job's own storage traffic has it too."""
        gone = np.array([load.name == name for load in self.loads], dtype=np.bool_)
        if not gone.any():
            return self
        kept = ~gone[self.job]
        number = (np.cumsum(~gone) - 1).astype(np.int32)
        return self._prepared(
            self.total.size,
            tuple(load for load in self.loads if load.name != name),
            job=number[self.job[kept]],
            link=self.link[kept],
            burst=self.burst[:, kept],
            utilisation=self.utilisation[kept],
        )

    @classmethod
    def _prepared(
        cls, links: int, loads: tuple[Load, ...], *, job: Entries, link: Entries, burst: Small, utilisation: Small
    ) -> RunningLoads:
        """Add up, and say what the jobs cost each other."""
        total = np.bincount(link, weights=utilisation, minlength=links).astype(np.float64)
        others = (total[link] - utilisation).astype(np.float32)
        tightest = np.zeros(links)
        np.maximum.at(tightest, link, burst.max(axis=0, initial=0.0) + others)
        beside = stretch(len(loads), job, burst, others)
        asked = np.zeros(link.size, dtype=np.float32)
        lasting = _lasting(loads, beside).astype(np.float32)
        for axis, row in enumerate(burst):
            if row.any():
                asked += row * lasting[job, axis]
        return cls(
            loads=loads,
            job=job,
            link=link,
            burst=burst,
            utilisation=utilisation,
            asked=asked,
            total=total,
            present=np.bincount(link, weights=asked, minlength=links).astype(np.float64),
            beside=beside,
            tightest=tightest,
        )

    def entries_on(self, links: Index) -> tuple[Index, Index]:
        """Return the entries on some links, and which of these each is on."""
        place = np.full(self.total.size, -1)
        place[links] = np.arange(links.size)
        at = place.take(self.link)
        entries = np.flatnonzero(at >= 0)
        return entries, at.take(entries)


def stretch(jobs: int, job: Entries | Index, burst: Small | FloatColumn, others: Small | FloatColumn) -> FloatColumn:
    """Return how many times as long each job's axes take beside others, shape (jobs, axes); 1 for "as without".

    On each link an axis asks for ``burst`` beside ``others``, the mean utilisation by all others; where that is more
    than the link has, both give way alike, and the link that has the least left decides the axis. ``job`` is ascending.
    """
    found = np.ones((jobs, burst.shape[0]))
    if not job.size:
        return found
    start = np.flatnonzero(np.diff(job, prepend=-1))
    for axis, row in enumerate(burst):
        if not row.any():
            continue
        asked = np.where(row > 0, row + others, 0)
        found[job[start], axis] = np.maximum(np.maximum.reduceat(asked, start), 1.0)
    return found


def _lasting(loads: Sequence[Load], beside: FloatColumn) -> FloatColumn:
    """Return the part of a step that the bursts of each axis last beside the other jobs, shape (jobs, axes) [ratio]."""
    lasting = np.zeros((len(loads), len(AXES)))
    for number, load in enumerate(loads):
        bursts_s = load.axis_s * beside[number]
        lasting[number] = load.axis_s if not load.has_steps else bursts_s / max(_step_s(load, bursts_s), bursts_s.sum())
    return lasting


def _step_s(load: Load, bursts_s: FloatColumn) -> float:
    """Return a load's step with bursts of this length; never 0."""
    return float(load.step.step_s(bursts_s)) or 1.0

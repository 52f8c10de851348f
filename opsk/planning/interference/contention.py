"""How much slower do a candidate and the running jobs become by sharing links?

While an axis of a job communicates it can take the whole rate of its links; the others are there for a part of the
time. Two that alternate between computing and communicating, and share a link evenly whenever both are on it, take 1
+ u times as long over it, where u is the part of the time that the other is there: as if both gave way alike wherever
what they ask for is more than the link has. That is max-min fairness with demands as weights (`fair_share`) and the
other's duty cycle as its demand. The candidate finds running jobs there as long as they hold each other up; what a
running job loses is counted with the others' duty cycles as if alone, so it is rather too little where many crowd one
link. The step follows by `StepModel`: what computation hides stays hidden. Left out: the jobs' phases (jobs with
equal periods can take turns, and then lose nothing), congestion that spreads to other links when a switch's buffers
fill, service levels, and that a job which is slowed asks for less.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from opsk.costmodel.table import FloatColumn
from opsk.planning.interference.load import Load
from opsk.planning.interference.running import RunningLoads, stretch
from opsk.planning.placement.step_model import stacked
from opsk.planning.routing.hca_seats import NOWHERE, Index
from opsk.planning.routing.rank_traffic import AXES

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_TOLERANCE = 1e-12


def fair_levels(demand: csr_matrix, capacity: FloatColumn | None = None, *, until: int | None = None) -> FloatColumn:
    """Return the level of each entity [ratio].

    Parameters
    ----------
    demand
        Rates that each entity wants of each link, shape (entities, links), in units of ``capacity``.
    capacity
        Of each link; 1 when not given: demands are then parts of a link's rate.
    until
        Only this entity's level is asked for: those that rise further than it may be left at 1.

    Examples
    --------
    Two that want all of one link get half of it each; one that wants a tenth beside one that wants all: both get 1/1.1
    of what they want.
    """
    by_link = demand.T.tocsr()
    room = np.ones(by_link.shape[0]) if capacity is None else np.asarray(capacity, dtype=np.float64)
    levels = np.ones(demand.shape[0])
    rising = np.ones(demand.shape[0], dtype=np.bool_)
    while rising.any() and (until is None or rising[until]):
        wanted = by_link @ rising.astype(np.float64)
        left = room - by_link @ np.where(rising, 0.0, levels)
        asked = wanted > _TOLERANCE
        reach = np.full(room.size, np.inf)
        reach[asked] = np.maximum(left[asked], 0.0) / wanted[asked]
        level = float(reach.min(initial=np.inf))
        if level >= 1.0:
            levels[rising] = 1.0
            break
        full = reach <= level * (1.0 + _TOLERANCE)
        stopped = rising & (demand @ full.astype(np.float64) > 0)
        levels[stopped] = level
        rising &= ~stopped
    return levels


_FULL = 1.0 + 1e-6
"""Mean utilisation from which on running jobs cannot all have what they ask for, single precision left aside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisShare:
    """One axis of the candidate: ``alone_s`` with its links for itself, ``share`` of their rate that is left for it.

    ``link`` is the one that leaves the least, ``NOWHERE`` where none leaves less than the axis wants.
    """

    alone_s: float
    share: float
    link: int

    @property
    def shared_s(self) -> float:
        """How long its busiest link is busy beside the others [s]."""
        return self.alone_s / self.share


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """Somebody whom the candidate shares links with.

    Parameters
    ----------
    links
        How many links both use; ``busiest`` is the one where both together ask for the most.
    slowdown_of_candidate
        By how much the candidate's step is longer if it meets nobody else [ratio].
    step_s, step_with_candidate_s
        Step beside the other running jobs, and with the candidate too [s]; of traffic without steps, how many times as
        long the same bytes take.
    """

    load: Load
    links: int
    busiest: int
    slowdown_of_candidate: float
    step_s: float
    step_with_candidate_s: float

    @property
    def slowdown_of_job(self) -> float:
        """By how much its step is longer because of the candidate [ratio]."""
        return self.step_with_candidate_s / self.step_s - 1.0 if self.step_s else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedLink:
    """A link that the candidate shares: mean utilisation by it, by the others (index of `RunningLoads.loads`), by all.

    ``burst`` is the most that the candidate takes of the link while it communicates.
    """

    link: int
    candidate: float
    burst: float
    others: tuple[tuple[int, float], ...]
    total: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Interference:
    """What a candidate and the running jobs do to each other.

    ``alone_s`` and ``step_s`` are the candidate's step with links for itself and shared [s]; ``neighbours`` begin with
    whom costs the most, ``shared`` with the links that are asked for the most.
    """

    alone_s: float
    step_s: float
    axes: dict[str, AxisShare]
    neighbours: tuple[Neighbour, ...]
    shared_links: int
    shared: tuple[SharedLink, ...]

    @property
    def slowdown(self) -> float:
        """By how much the candidate's step is longer than alone [ratio]."""
        return self.step_s / self.alone_s - 1.0 if self.alone_s else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Meeting:
    """Where candidate and running jobs meet: entries of the matrix, and for each the candidate's link (``at``).

    ``jobs`` has each job once, ascending; the entries of one begin at ``start``, and are ``counts`` in number.
    """

    entries: Index
    at: Index
    jobs: Index
    start: Index
    counts: Index

    @property
    def row(self) -> Index:
        """Return the place in ``jobs`` of the job of each entry."""
        return np.repeat(np.arange(self.jobs.size), self.counts)

    def only(self, kept: npt.NDArray[np.bool_], running: RunningLoads) -> _Meeting:
        """Return the meeting on some of the candidate's links."""
        which = np.flatnonzero(kept[self.at])
        return _meeting(self.entries[which], self.at[which], running)


def interference(candidate: Load, running: RunningLoads, *, most_links: int = 20) -> Interference:
    """Return what sharing costs both sides; jobs with the candidate's own name are no others.

    Parameters
    ----------
    most_links
        So many of the shared links are described.
    """
    running = running.without(candidate.name)
    entries, at = running.entries_on(candidate.links)
    met = _meeting(entries, at, running)
    axes = _axes(candidate, running)
    return Interference(
        alone_s=candidate.step_s,
        step_s=_step_s(candidate, axes),
        axes=axes,
        neighbours=_neighbours(candidate, running, met),
        shared_links=int((np.bincount(at, minlength=candidate.links.size) > 0).sum()),
        shared=_shared(candidate, running, met, most_links),
    )


def step_beside(candidate: Load, running: RunningLoads) -> float:
    """Return the step of a candidate beside the running jobs [s], nothing else; the same as `interference` says."""
    running = running.without(candidate.name)
    return _step_s(candidate, _axes(candidate, running))


def _step_s(candidate: Load, axes: dict[str, AxisShare]) -> float:
    """Return the step of a candidate whose axes share links [s]."""
    return float(candidate.step.step_s(np.array([axes[axis].shared_s if axis in axes else 0.0 for axis in AXES])))


def _meeting(entries: Index, at: Index, running: RunningLoads) -> _Meeting:
    """Return where they meet; entries are ascending, and so are their jobs."""
    first = np.searchsorted(running.job, np.arange(len(running.loads) + 1, dtype=running.job.dtype))  # no other: a copy
    bounds = np.searchsorted(entries, first)
    counts = np.diff(bounds)
    jobs = np.flatnonzero(counts)
    return _Meeting(entries=entries, at=at, jobs=jobs, start=bounds[jobs], counts=counts[jobs])


def _axes(candidate: Load, running: RunningLoads) -> dict[str, AxisShare]:
    """Return what is left for each axis that uses links."""
    others = running.present[candidate.links]
    asked = np.where(candidate.burst > 0, candidate.burst + others, 0.0)
    share = 1.0 / np.maximum(asked.max(axis=1, initial=0.0), 1.0)
    if (share < 1.0).any() and running.present.max(initial=0.0) > _FULL:
        share = np.maximum(share, _filled(candidate, running, np.asarray((asked > _FULL).any(axis=0)), share < 1.0))
    return {
        axis: AxisShare(
            alone_s=float(candidate.axis_s[number]),
            share=float(share[number]),
            link=int(candidate.links[asked[number].argmax()]) if share[number] < 1.0 else NOWHERE,
        )
        for number, axis in enumerate(AXES)
        if asked[number].any()
    }


def _filled(
    candidate: Load, running: RunningLoads, tight: npt.NDArray[np.bool_], wanted: npt.NDArray[np.bool_]
) -> FloatColumn:
    """Return the level of the ``wanted`` axes of the candidate where running jobs hold each other back too.

    Only links that are asked for too much, by running jobs or with the candidate (``tight``), can be full; the others
    are left aside. Storage and measured traffic has no ranks that wait for each other: each of its links is an entity
    of its own.
    """
    links = np.union1d(candidate.links[tight], np.flatnonzero(running.present > _FULL))
    entries, column = running.entries_on(links)
    job = running.job[entries].astype(np.int64)
    loose = np.array([not load.has_steps for load in running.loads], dtype=np.bool_)[job]
    row = np.unique(np.where(loose, len(running.loads) + np.arange(job.size), job), return_inverse=True)[1]
    from scipy.sparse import csr_matrix, vstack  # loads 170 modules: for those with jobs beside them only

    others = csr_matrix(
        (running.asked[entries].astype(np.float64), (row, column)), shape=(int(row.max(initial=-1)) + 1, links.size)
    )
    place = np.searchsorted(links, candidate.links[tight])
    levels = np.zeros(len(AXES))
    for axis in np.flatnonzero(wanted).tolist():
        burst = candidate.burst[axis][tight]
        ours = csr_matrix((burst, (np.zeros(burst.size, dtype=np.int64), place)), shape=(1, links.size))
        demand = vstack([others, ours], format="csr")
        levels[axis] = fair_levels(demand, until=demand.shape[0] - 1)[-1]
    return levels


def _neighbours(candidate: Load, running: RunningLoads, met: _Meeting) -> tuple[Neighbour, ...]:
    """Return those whom the candidate meets, who cost or lose the most first."""
    if not met.jobs.size:
        return ()
    alone = candidate.step_s or 1.0
    pairwise = candidate.step.step_s(candidate.axis_s * _on_candidate(candidate, running, met)) / alone - 1.0
    with_us = np.maximum(running.beside[met.jobs], _on_jobs(candidate, running, met))
    loads = [running.loads[job] for job in met.jobs.tolist()]
    steps, axis_s = stacked([load.step for load in loads]), np.array([load.axis_s for load in loads])
    columns = (
        met.counts,
        _busiest(candidate, running, met),
        pairwise,
        steps.step_s(axis_s * running.beside[met.jobs]),
        steps.step_s(axis_s * with_us),
    )
    found = [
        Neighbour(
            load=load,
            links=links,
            busiest=busiest,
            slowdown_of_candidate=slowdown,
            step_s=step_s,
            step_with_candidate_s=with_candidate_s,
        )
        for load, links, busiest, slowdown, step_s, with_candidate_s in zip(
            loads, *(column.tolist() for column in columns), strict=True
        )
    ]
    return tuple(sorted(found, key=lambda one: (-max(one.slowdown_of_candidate, one.slowdown_of_job), one.load.name)))


def _on_candidate(candidate: Load, running: RunningLoads, met: _Meeting) -> FloatColumn:
    """Return how many times as long the candidate's axes take beside each job alone, shape (jobs met, axes).

    Links where not even all jobs together make the candidate give way are left aside.
    """
    others = running.total[candidate.links]
    tight = met.only(candidate.burst.max(axis=0, initial=0.0) + others > 1.0, running)
    row = np.searchsorted(met.jobs, tight.jobs)[tight.row]
    return stretch(met.jobs.size, row, candidate.burst.take(tight.at, axis=1), running.utilisation[tight.entries])


def _on_jobs(candidate: Load, running: RunningLoads, met: _Meeting) -> FloatColumn:
    """Return how many times as long each job's axes take on the candidate's links, with it there (jobs met, axes)."""
    tight = met.only(running.tightest[candidate.links] + candidate.utilisation > 1.0, running)
    row = np.searchsorted(met.jobs, tight.jobs)[tight.row]
    all_of_them = running.total[candidate.links] + candidate.utilisation
    others = all_of_them[tight.at] - running.utilisation[tight.entries]
    return stretch(met.jobs.size, row, running.burst.take(tight.entries, axis=1), others)


def _busiest(candidate: Load, running: RunningLoads, met: _Meeting) -> Index:
    """Return for each job the link where it and the candidate together ask for the most."""
    asked = candidate.burst.max(axis=0, initial=0.0).astype(np.float32)[met.at] + running.utilisation[met.entries]
    ends = (met.start + met.counts).tolist()
    first = [begin + int(asked[begin:end].argmax()) for begin, end in zip(met.start.tolist(), ends, strict=True)]
    return candidate.links[met.at[first]]


def _shared(candidate: Load, running: RunningLoads, met: _Meeting, most: int) -> tuple[SharedLink, ...]:
    """Return the shared links that are asked for the most."""
    others = running.total[candidate.links]
    burst = candidate.burst.max(axis=0, initial=0.0)
    shared = np.flatnonzero(others > 0)
    worst = shared[np.lexsort((candidate.links[shared], -(burst + others)[shared]))][:most]
    chosen = np.zeros(candidate.links.size, dtype=np.bool_)
    chosen[worst] = True
    few = met.only(chosen, running)
    job = few.jobs[few.row]
    used = running.utilisation[few.entries].astype(np.float64)
    found = []
    for place in worst.tolist():
        here = np.flatnonzero(few.at == place)
        here = here[np.argsort(-used[here], kind="stable")]
        found.append(
            SharedLink(
                link=int(candidate.links[place]),
                candidate=float(candidate.utilisation[place]),
                burst=float(burst[place]),
                others=tuple(zip(job[here].tolist(), used[here].tolist(), strict=True)),
                total=float(candidate.utilisation[place] + others[place]),
            )
        )
    return tuple(found)

"""Computes the slowdown of a candidate and of the running jobs when they share links.

While an axis of a job communicates it can use the whole rate of its links; the other jobs are active for a part of the
time. Two jobs that alternate between computing and communicating, and share a link evenly whenever both use it, take 1
+ u times as long over it, where u is the part of the time in which the other is active: as if both slowed equally
wherever their demand exceeds the capacity of the link. That is max-min fairness with demands as weights (`fair_levels`)
and the duty cycle of the other job as its demand. The candidate meets running jobs for as long as they delay each
other; the loss of a running job is computed with the duty cycles that the others have alone, which underestimates it
where many jobs crowd one link. The step follows from `StepModel`: communication that computation hides stays hidden.
Not modelled are the phases of jobs (jobs with equal periods can take turns, and then lose nothing), congestion that
spreads to other links when the buffers of a switch fill, service levels, and the lower demand of a job that is slowed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from opsk.costmodel.table import FloatColumn
from opsk.planning.interference.load import Load
from opsk.planning.interference.running_loads import RunningLoads, stretch
from opsk.planning.placement.step_model import stack_models
from opsk.planning.routing.hca_ports import NOWHERE, Index
from opsk.planning.routing.traffic import AXES

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_TOLERANCE = 1e-12


def fair_levels(demand: csr_matrix, capacity: FloatColumn | None = None, *, until: int | None = None) -> FloatColumn:
    """Return the max-min fair level of each entity, as a part of its demand [ratio].

    Parameters
    ----------
    demand
        Rates that each entity demands of each link, shape (entities, links), in units of ``capacity``.
    capacity
        Of each link; 1 when not given: demands are then parts of a link's rate.
    until
        Compute the level of this entity only: those of entities above it may be left at 1.

    Examples
    --------
    Two entities that demand all of one link get half of it each. Where one demands a tenth and another one all, both
    get 1/1.1 of their demand.
    """
    by_link = demand.T.tocsr()
    room = np.ones(by_link.shape[0]) if capacity is None else np.asarray(capacity, dtype=np.float64)
    levels = np.ones(demand.shape[0])
    rising = np.ones(demand.shape[0], dtype=np.bool_)
    while rising.any() and (until is None or rising[until]):
        demand_of_rising = by_link @ rising.astype(np.float64)
        left = room - by_link @ np.where(rising, 0.0, levels)
        has_demand = demand_of_rising > _TOLERANCE
        reach = np.full(room.size, np.inf)
        reach[has_demand] = np.maximum(left[has_demand], 0.0) / demand_of_rising[has_demand]
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
"""Mean utilisation above which the demand of running jobs exceeds a link, with a margin for single precision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisShare:
    """One axis of the candidate: ``alone_s`` with exclusive links, and the ``share`` of their rate that is left for it.

    ``link`` is the one that leaves the least, ``NOWHERE`` where all of them meet the demand of the axis.
    """

    alone_s: float
    share: float
    link: int

    @property
    def shared_s(self) -> float:
        """How long its busiest link is busy when shared with the other jobs [s]."""
        return self.alone_s / self.share


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A running job, or other traffic, that shares links with the candidate.

    Parameters
    ----------
    links
        How many links both use; ``busiest`` is the one with the largest demand of both together.
    slowdown_of_candidate
        By how much the candidate's step is longer if it shares links with this one only [ratio].
    step_s, step_with_candidate_s
        Step with the other running jobs, and with the candidate as well [s]; for traffic without steps, how many
        times as long the same bytes take.
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
    """The effect of a candidate and the running jobs on each other.

    ``alone_s`` and ``step_s`` are the candidate's step with exclusive and shared links [s]; ``neighbours`` begin with
    the one that costs the most, ``shared`` with the links with the largest demand.
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
    """The entries of the load matrix on the candidate's links, and the index of the link of each entry.

    ``jobs`` has each job once, ascending; the entries of one begin at ``start``, and are ``counts`` in number.
    """

    entries: Index
    link_index: Index
    jobs: Index
    start: Index
    counts: Index

    @property
    def row(self) -> Index:
        """Return the place in ``jobs`` of the job of each entry."""
        return np.repeat(np.arange(self.jobs.size), self.counts)

    def only(self, is_selected: npt.NDArray[np.bool_], running: RunningLoads) -> _Meeting:
        """Return the meeting on some of the candidate's links."""
        selected = np.flatnonzero(is_selected[self.link_index])
        return _find_meeting(self.entries[selected], self.link_index[selected], running)


def interference(candidate: Load, running: RunningLoads, *, most_links: int = 20) -> Interference:
    """Return the cost of sharing links to both sides; jobs with the candidate's own name are excluded.

    Parameters
    ----------
    most_links
        So many of the shared links are described.
    """
    running = running.without(candidate.name)
    entries, link_of_entry = running.entries_on(candidate.links)
    meeting = _find_meeting(entries, link_of_entry, running)
    axes = _compute_axis_shares(candidate, running)
    return Interference(
        alone_s=candidate.step_s,
        step_s=_compute_step_s(candidate, axes),
        axes=axes,
        neighbours=_list_neighbours(candidate, running, meeting),
        shared_links=int((np.bincount(link_of_entry, minlength=candidate.links.size) > 0).sum()),
        shared=_list_shared_links(candidate, running, meeting, most_links),
    )


def predict_shared_step_s(candidate: Load, running: RunningLoads) -> float:
    """Return the step of a candidate with the running jobs [s]: the ``step_s`` of `interference` alone."""
    running = running.without(candidate.name)
    return _compute_step_s(candidate, _compute_axis_shares(candidate, running))


def _compute_step_s(candidate: Load, axes: dict[str, AxisShare]) -> float:
    """Return the step of a candidate whose axes share links [s]."""
    return float(candidate.step.step_s(np.array([axes[axis].shared_s if axis in axes else 0.0 for axis in AXES])))


def _find_meeting(entries: Index, link_of_entry: Index, running: RunningLoads) -> _Meeting:
    """Group entries by job; entries are ascending, and so are their jobs."""
    first = np.searchsorted(running.job, np.arange(len(running.loads) + 1, dtype=running.job.dtype))  # no other: a copy
    bounds = np.searchsorted(entries, first)
    counts = np.diff(bounds)
    jobs = np.flatnonzero(counts)
    return _Meeting(entries=entries, link_index=link_of_entry, jobs=jobs, start=bounds[jobs], counts=counts[jobs])


def _compute_axis_shares(candidate: Load, running: RunningLoads) -> dict[str, AxisShare]:
    """Return the share that each axis of the candidate gets on its links."""
    others = running.present[candidate.links]
    demand = np.where(candidate.burst > 0, candidate.burst + others, 0.0)
    share = 1.0 / np.maximum(demand.max(axis=1, initial=0.0), 1.0)
    if (share < 1.0).any() and running.present.max(initial=0.0) > _FULL:
        share = np.maximum(
            share, _compute_fair_shares(candidate, running, np.asarray((demand > _FULL).any(axis=0)), share < 1.0)
        )
    return {
        axis: AxisShare(
            alone_s=float(candidate.axis_s[number]),
            share=float(share[number]),
            link=int(candidate.links[demand[number].argmax()]) if share[number] < 1.0 else NOWHERE,
        )
        for number, axis in enumerate(AXES)
        if demand[number].any()
    }


def _compute_fair_shares(
    candidate: Load, running: RunningLoads, is_tight: npt.NDArray[np.bool_], is_reduced: npt.NDArray[np.bool_]
) -> FloatColumn:
    """Return the level of the ``is_reduced`` axes of the candidate where running jobs slow each other as well.

    Only links with too much demand, by running jobs or with the candidate (``is_tight``), can be full; the others
    are ignored. Storage and measured traffic has no ranks that wait for each other: each of its links is an entity
    of its own.
    """
    links = np.union1d(candidate.links[is_tight], np.flatnonzero(running.present > _FULL))
    entries, column = running.entries_on(links)
    job = running.job[entries].astype(np.int64)
    loose = np.array([not load.has_steps for load in running.loads], dtype=np.bool_)[job]
    row = np.unique(np.where(loose, len(running.loads) + np.arange(job.size), job), return_inverse=True)[1]
    from scipy.sparse import csr_matrix, vstack  # loads 170 modules: only where jobs share links

    others = csr_matrix(
        (running.demand[entries].astype(np.float64), (row, column)), shape=(int(row.max(initial=-1)) + 1, links.size)
    )
    place = np.searchsorted(links, candidate.links[is_tight])
    levels = np.zeros(len(AXES))
    for axis in np.flatnonzero(is_reduced).tolist():
        burst = candidate.burst[axis][is_tight]
        ours = csr_matrix((burst, (np.zeros(burst.size, dtype=np.int64), place)), shape=(1, links.size))
        demand = vstack([others, ours], format="csr")
        levels[axis] = fair_levels(demand, until=demand.shape[0] - 1)[-1]
    return levels


def _list_neighbours(candidate: Load, running: RunningLoads, meeting: _Meeting) -> tuple[Neighbour, ...]:
    """Return the jobs that share links with the candidate, by decreasing slowdown of either side."""
    if not meeting.jobs.size:
        return ()
    alone = candidate.step_s or 1.0
    slowdowns = candidate.step.step_s(candidate.axis_s * _stretch_candidate(candidate, running, meeting)) / alone - 1.0
    stretch_with_candidate = np.maximum(
        running.stretch_factor[meeting.jobs], _stretch_jobs(candidate, running, meeting)
    )
    loads = [running.loads[job] for job in meeting.jobs.tolist()]
    steps, axis_s = stack_models([load.step for load in loads]), np.array([load.axis_s for load in loads])
    columns = (
        meeting.counts,
        _find_busiest_links(candidate, running, meeting),
        slowdowns,
        steps.step_s(axis_s * running.stretch_factor[meeting.jobs]),
        steps.step_s(axis_s * stretch_with_candidate),
    )
    neighbours = [
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
    return tuple(
        sorted(
            neighbours,
            key=lambda neighbour: (
                -max(neighbour.slowdown_of_candidate, neighbour.slowdown_of_job),
                neighbour.load.name,
            ),
        )
    )


def _stretch_candidate(candidate: Load, running: RunningLoads, meeting: _Meeting) -> FloatColumn:
    """Return how many times as long the candidate's axes take with each job alone, shape (jobs met, axes).

    Links on which all jobs together leave enough for the candidate are ignored.
    """
    others = running.total[candidate.links]
    tight = meeting.only(candidate.burst.max(axis=0, initial=0.0) + others > 1.0, running)
    row = np.searchsorted(meeting.jobs, tight.jobs)[tight.row]
    return stretch(
        meeting.jobs.size, row, candidate.burst.take(tight.link_index, axis=1), running.utilisation[tight.entries]
    )


def _stretch_jobs(candidate: Load, running: RunningLoads, meeting: _Meeting) -> FloatColumn:
    """Return how many times as long each job's axes take on the candidate's links, with it there (jobs met, axes)."""
    tight = meeting.only(running.tightest[candidate.links] + candidate.utilisation > 1.0, running)
    row = np.searchsorted(meeting.jobs, tight.jobs)[tight.row]
    all_of_them = running.total[candidate.links] + candidate.utilisation
    others = all_of_them[tight.link_index] - running.utilisation[tight.entries]
    return stretch(meeting.jobs.size, row, running.burst.take(tight.entries, axis=1), others)


def _find_busiest_links(candidate: Load, running: RunningLoads, meeting: _Meeting) -> Index:
    """Return for each job the link with the largest demand of it and the candidate together."""
    demand = (
        candidate.burst.max(axis=0, initial=0.0).astype(np.float32)[meeting.link_index]
        + running.utilisation[meeting.entries]
    )
    ends = (meeting.start + meeting.counts).tolist()
    first = [begin + int(demand[begin:end].argmax()) for begin, end in zip(meeting.start.tolist(), ends, strict=True)]
    return candidate.links[meeting.link_index[first]]


def _list_shared_links(
    candidate: Load, running: RunningLoads, meeting: _Meeting, max_links: int
) -> tuple[SharedLink, ...]:
    """Return the shared links with the largest demand."""
    others = running.total[candidate.links]
    burst = candidate.burst.max(axis=0, initial=0.0)
    shared = np.flatnonzero(others > 0)
    worst = shared[np.lexsort((candidate.links[shared], -(burst + others)[shared]))][:max_links]
    chosen = np.zeros(candidate.links.size, dtype=np.bool_)
    chosen[worst] = True
    few = meeting.only(chosen, running)
    job = few.jobs[few.row]
    used = running.utilisation[few.entries].astype(np.float64)
    described = []
    for place in worst.tolist():
        here = np.flatnonzero(few.link_index == place)
        here = here[np.argsort(-used[here], kind="stable")]
        described.append(
            SharedLink(
                link=int(candidate.links[place]),
                candidate=float(candidate.utilisation[place]),
                burst=float(burst[place]),
                others=tuple(zip(job[here].tolist(), used[here].tolist(), strict=True)),
                total=float(candidate.utilisation[place] + others[place]),
            )
        )
    return tuple(described)

"""Polls Slurm for jobs and nodes with a bounded load: one query at a time, and fewer when Slurm is slow.

A round queries all jobs and all nodes, one after the other, as ``squeue`` and ``sinfo`` of one more user would. The
plan of a job is in its record only, which takes another query: it is read once per job, when the job has started.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from opsk.errors import OpskError, SlurmError
from opsk.slurm.client import SlurmClient
from opsk.slurm.records import JobRecord, NodeRecord, PartitionRecord

QUESTION_DEADLINE_S = 10.0
MAX_PAUSE_S = 300.0
SHARE_OF_TIME = 0.05
"""The largest share of the time that is spent on queries: a slow controller is queried less often."""
SINGLE_QUESTIONS = 8
"""With more new jobs than this in one round, all records are queried at once."""
ALL_AGAIN_ROUNDS = 40
"""All records are queried again every so many rounds: a comment may have changed since the job started."""

_TOPOLOGY = re.compile(r"(?:topology/)?(\w+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The result of one round: all nodes, and the jobs that hold nodes, those on several with their records."""

    nodes: tuple[NodeRecord, ...]
    jobs: tuple[JobRecord, ...]


@dataclass(slots=True, kw_only=True)
class Poller:
    """Polls jobs and nodes, and remembers the records of running jobs.

    Parameters
    ----------
    slurm
        The Slurm client.
    clock
        A monotonic clock [s].
    interval_s
        Pause between rounds without failures [s].
    """

    slurm: SlurmClient
    clock: Callable[[], float]
    interval_s: float
    took_s: float = 0.0
    failures: int = 0
    rounds: int = 0
    _known: dict[int, JobRecord] = field(default_factory=dict)

    @property
    def pause_s(self) -> float:
        """The pause before the next round [s]."""
        slow_s = self.took_s / SHARE_OF_TIME
        max_pause_s = max(MAX_PAUSE_S, self.interval_s)
        return min(max(self.interval_s, slow_s) * 2.0 ** min(self.failures, 16), max_pause_s)

    def round(self) -> Round:
        """Query Slurm once.

        Raises
        ------
        SlurmError
            Slurm did not answer; the pause has grown.
        """
        started_s = self.clock()
        try:
            jobs = self._read_jobs()
            nodes = self.slurm.nodes()
        except SlurmError:
            self.failures += 1
            raise
        else:
            self.failures = 0
        finally:
            self.took_s = self.clock() - started_s
        self.rounds += 1
        return Round(nodes=nodes, jobs=tuple(job for job in jobs if job.is_active))

    def _read_jobs(self) -> tuple[JobRecord, ...]:
        """Return all jobs, those that are on several nodes with their records."""
        if self.rounds % ALL_AGAIN_ROUNDS == 0:
            return self._remember(self.slurm.jobs(details=True))
        jobs = self.slurm.jobs()
        new = [job for job in jobs if _matters(job) and not _is_same(self._known.get(job.id), job)]
        if len(new) > SINGLE_QUESTIONS:
            return self._remember(self.slurm.jobs(details=True))
        records = {job.id: self._read_record(job) for job in new}
        return self._remember([records.get(job.id) or self._join_record(job) for job in jobs])

    def _read_record(self, job: JobRecord) -> JobRecord:
        """Return a job with its record; without it where Slurm has forgotten the job in between."""
        try:
            return self.slurm.job(job.label)
        except SlurmError:
            raise
        except OpskError:
            return job

    def _join_record(self, job: JobRecord) -> JobRecord:
        """Return a job of this round with its known record."""
        known = self._known.get(job.id)
        return known if known is not None and _is_same(known, job) else job

    def _remember(self, jobs: Sequence[JobRecord]) -> tuple[JobRecord, ...]:
        """Store the records of running jobs, and of no others."""
        self._known = {job.id: job for job in jobs if _matters(job)}
        return tuple(jobs)


def _matters(job: JobRecord) -> bool:
    """Return whether a job can have traffic between nodes."""
    return job.is_active and len(job.nodes) > 1


def _is_same(known: JobRecord | None, job: JobRecord) -> bool:
    """Return whether a job is unchanged since its record was read."""
    return known is not None and (known.nodes, known.restarts, known.state) == (job.nodes, job.restarts, job.state)


def read_topology(slurm: SlurmClient) -> str | None:
    """Return Slurm's view of the fabric (``tree``, ``block``, ``flat``); ``None`` where it is unknown.

    Names of ``TopologyPlugin``: slurm.conf(5); ``default`` is flat, and ``none`` was its name.
    """
    config = getattr(slurm, "config", None)
    if config is None:
        return None
    try:
        named = _TOPOLOGY.fullmatch(str(config().get("TopologyPlugin", "")))
    except OpskError:
        return None
    name = named[1] if named else None
    return "flat" if name in ("default", "none", "flat") else name


def read_partitions(slurm: SlurmClient) -> tuple[PartitionRecord, ...] | None:
    """Return the partitions; ``None`` where Slurm does not answer, or this client cannot query them."""
    partitions = getattr(slurm, "partitions", None)
    if partitions is None:
        return None
    try:
        return tuple(partitions())
    except OpskError:
        return None

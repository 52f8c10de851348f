"""How is Slurm asked again and again without being a burden? One question at a time, few, and fewer when it is slow.

A round asks for all jobs and all nodes, one after the other, as ``squeue`` and ``sinfo`` of one more user would. The
plan of a job stands in its record only, which takes another question: it is asked once a job, when it has begun.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from opsk.errors import OpskError, SlurmError
from opsk.slurm.client import SlurmClient
from opsk.slurm.records import JobRecord, NodeRecord, PartitionRecord

QUESTION_DEADLINE_S = 10.0
LONGEST_PAUSE_S = 300.0
SHARE_OF_TIME = 0.05
"""No more of the time than this is spent with asking: a controller that answers slowly is asked less often."""
SINGLE_QUESTIONS = 8
"""With more new jobs than this in one round, all records are asked for at once."""
ALL_AGAIN_ROUNDS = 40
"""So often all records are asked for again: a comment may have been changed since the job began."""

_TOPOLOGY = re.compile(r"(?:topology/)?(\w+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What one round found: all nodes, and the jobs that hold nodes, those on several with their records."""

    nodes: tuple[NodeRecord, ...]
    jobs: tuple[JobRecord, ...]


@dataclass(slots=True, kw_only=True)
class Poller:
    """Asks for jobs and nodes, and remembers the records of those that run.

    Parameters
    ----------
    slurm
        Whom it asks.
    clock
        A monotonic clock [s].
    interval_s
        Pause between rounds when all is well [s].
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
        """How long to wait before the next round [s]."""
        slow_s = self.took_s / SHARE_OF_TIME
        longest_s = max(LONGEST_PAUSE_S, self.interval_s)
        return min(max(self.interval_s, slow_s) * 2.0 ** min(self.failures, 16), longest_s)

    def round(self) -> Round:
        """Ask once.

        Raises
        ------
        SlurmError
            Slurm did not answer; the pause has grown.
        """
        begun_s = self.clock()
        try:
            jobs = self._jobs()
            nodes = self.slurm.nodes()
        except SlurmError:
            self.failures += 1
            raise
        else:
            self.failures = 0
        finally:
            self.took_s = self.clock() - begun_s
        self.rounds += 1
        return Round(nodes=nodes, jobs=tuple(job for job in jobs if job.is_active))

    def _jobs(self) -> tuple[JobRecord, ...]:
        """Return all jobs, those that are on several nodes with their records."""
        if self.rounds % ALL_AGAIN_ROUNDS == 0:
            return self._remembered(self.slurm.jobs(details=True))
        jobs = self.slurm.jobs()
        new = [job for job in jobs if _matters(job) and not _is_same(self._known.get(job.id), job)]
        if len(new) > SINGLE_QUESTIONS:
            return self._remembered(self.slurm.jobs(details=True))
        asked = {job.id: self._record(job) for job in new}
        return self._remembered([asked.get(job.id) or self._joined(job) for job in jobs])

    def _record(self, job: JobRecord) -> JobRecord:
        """Return a job with its record; as it is where Slurm has forgotten it in between."""
        try:
            return self.slurm.job(job.label)
        except SlurmError:
            raise
        except OpskError:
            return job

    def _joined(self, job: JobRecord) -> JobRecord:
        """Return a job of this round with the record that is known already."""
        known = self._known.get(job.id)
        return known if known is not None and _is_same(known, job) else job

    def _remembered(self, jobs: Sequence[JobRecord]) -> tuple[JobRecord, ...]:
        """Keep the records of jobs that still run, and of no others."""
        self._known = {job.id: job for job in jobs if _matters(job)}
        return tuple(jobs)


def _matters(job: JobRecord) -> bool:
    """Tell whether a job can have traffic between nodes."""
    return job.is_active and len(job.nodes) > 1


def _is_same(known: JobRecord | None, job: JobRecord) -> bool:
    """Tell whether a job still is as it was when its record was read."""
    return known is not None and (known.nodes, known.restarts, known.state) == (job.nodes, job.restarts, job.state)


def topology_of(slurm: SlurmClient) -> str | None:
    """Return how Slurm sees the fabric (``tree``, ``block``, ``flat``); ``None`` where it cannot be told.

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


def partitions_of(slurm: SlurmClient) -> tuple[PartitionRecord, ...] | None:
    """Return the partitions; ``None`` where Slurm does not say, or this way to ask knows none."""
    partitions = getattr(slurm, "partitions", None)
    if partitions is None:
        return None
    try:
        return tuple(partitions())
    except OpskError:
        return None

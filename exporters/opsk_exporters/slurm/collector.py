"""Exports Slurm's queue, nodes, partitions and scheduler from one node, with queries that are independent of scrapes.

One thread queries every minute, or twenty times less often than an answer takes, and builds the series at once: a
scrape returns what is there, and never causes a request to slurmctld. A query that fails drops its series; the age of
the others is one of the series.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from prometheus_client import Metric

from opsk.errors import OpskError, SlurmError
from opsk.slurm.commands.command import CommandClient
from opsk.slurm.commands.controller_text import Controller, CycleStatistics, Reservation, SchedulerStatistics
from opsk.slurm.commands.job_text import QueuedJobs
from opsk.slurm.commands.node_text import NodeLoad
from opsk.telemetry.background_reader import Background
from opsk_exporters.core.collector import DEFAULT_DEADLINE_S, NoDataError
from opsk_exporters.core.exposition import Families
from opsk_exporters.slurm.election import AUTO, Election
from opsk_exporters.slurm.nodes import add_nodes, list_partitions
from opsk_exporters.slurm.queue import add_predictions, add_queue

_SINCE = "since slurmctld's statistics were set back (midnight UTC, a start, sdiag --reset)"
EVERY_S = 60.0
COMMAND_DEADLINE_S = 30.0
_REST_FACTOR = 20.0
"""Of the time that answers took, how many times that slurmctld is left alone."""
_REST_FACTOR_AFTER_FAILURE = 4.0
"""The same after a failure: it may be overloaded, and it may be back in a moment."""
_EARLY = 0.9
"""The thread wakes up once an interval; this much of one later a round is due."""
_STALE_AFTER = 3
"""Series that were not refreshed for so many intervals are not shown any more."""
_SHARE_OF_DEADLINE = 0.6
Clock = Callable[[], float]
_Answer = TypeVar("_Answer")


def add_controllers(families: Families, controllers: Sequence[Controller]) -> None:
    """Add which slurmctld answer."""
    for controller in controllers:
        families.gauge(
            "opsk_slurm_controller_up",
            "1 for a slurmctld that answers scontrol ping, 0 for one that does not.",
            float(controller.is_up),
            host=controller.host,
            role=controller.role,
        )


def add_reservations(families: Families, reservations: Iterable[Reservation]) -> None:
    """Add how many reservations there are."""
    counts: Counter[tuple[str, str]] = Counter()
    for reservation in reservations:
        counts[
            "active" if reservation.is_active else "inactive", "maintenance" if reservation.is_maintenance else "other"
        ] += 1
    for state in ("active", "inactive"):
        for kind in ("maintenance", "other"):
            families.gauge(
                "opsk_slurm_reservations",
                "Reservations whose time is now (active) or is to come, for maintenance or for other ends.",
                counts[state, kind],
                state=state,
                kind=kind,
            )


def add_statistics(families: Families, statistics: SchedulerStatistics) -> None:
    """Add slurmctld's own statistics."""
    gauges = (
        (
            "threads",
            "Threads of slurmctld that serve requests; it serves no more than 256 at once.",
            statistics.threads,
        ),
        ("agents", "Agents with which slurmctld sends messages to nodes and users.", statistics.agents),
        ("agent_threads", "Threads of these agents.", statistics.agent_threads),
        ("agent_queue", "Messages to nodes and users that wait for an agent.", statistics.agent_queue),
        ("database_queue", "Messages that wait for slurmdbd; growing, it does not answer.", statistics.database_queue),
        (
            "statistics_start_time_seconds",
            "When slurmctld's statistics were set back, in seconds since 1970.",
            statistics.since_unix_s,
        ),
    )
    for name, help_text, value in gauges:
        families.gauge(f"opsk_slurm_scheduler_{name}", help_text, value)
    for event, number in statistics.jobs.items():
        families.counter(
            "opsk_slurm_scheduler_jobs_total",
            f"Jobs {_SINCE}; failed are those that Slurm itself failed, not those whose program did.",
            number,
            event=event,
        )
    families.counter("opsk_slurm_scheduler_rpcs_total", f"Requests served {_SINCE}.", statistics.rpcs)
    families.counter(
        "opsk_slurm_scheduler_rpc_seconds_total", f"Time that serving these took {_SINCE}.", statistics.rpc_s
    )
    families.counter(
        "opsk_slurm_scheduler_backfilled_jobs_total",
        "Jobs that backfill started since slurmctld did.",
        statistics.backfilled,
    )
    for scheduler, cycles in (("main", statistics.main), ("backfill", statistics.backfill)):
        _add_cycles(families, scheduler, cycles)


def _add_cycles(families: Families, scheduler: str, cycles: CycleStatistics) -> None:
    """Add one of the two schedulers."""
    gauges = (
        ("cycle_last_seconds", "How long the last cycle took.", cycles.last_s),
        ("cycle_mean_seconds", f"How long a cycle took on average {_SINCE}.", cycles.mean_s),
        ("cycle_longest_seconds", f"How long the longest cycle took {_SINCE}.", cycles.longest_s),
        ("cycle_depth", f"Jobs that a cycle tried on average {_SINCE}.", cycles.depth),
        ("queue", "Jobs that the last cycle found waiting.", cycles.queue),
        ("last_cycle_timestamp_seconds", "When the last cycle was, in seconds since 1970.", cycles.last_unix_s),
    )
    for name, help_text, value in gauges:
        families.gauge(f"opsk_slurm_scheduler_{name}", help_text, value, scheduler=scheduler)
    families.counter("opsk_slurm_scheduler_cycles_total", f"Cycles {_SINCE}.", cycles.cycles, scheduler=scheduler)


class SlurmQueries(Protocol):
    """The queries to Slurm; each may raise ``SlurmError``, and none hangs. See ``CommandClient``."""

    def queue(self) -> tuple[QueuedJobs, ...]:
        """Return the whole queue."""
        ...

    def loads(self) -> tuple[NodeLoad, ...]:
        """Return all nodes."""
        ...

    def statistics(self) -> SchedulerStatistics:
        """Return slurmctld's health."""
        ...

    def reservations(self) -> tuple[Reservation, ...]:
        """Return the reservations."""
        ...

    def controllers(self) -> tuple[Controller, ...]:
        """Return every slurmctld."""
        ...

    def config(self) -> dict[str, str]:
        """Return the configuration."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PollResult:
    """The result of one poll: series, when they were complete, and how long slurmctld is left alone then [s].

    ``metrics`` is ``None`` where another node queries.
    """

    metrics: tuple[Metric, ...] | None
    taken_at: float
    rest_s: float = 0.0


@dataclass(slots=True)
class SlurmPoller:
    """Queries Slurm when it is due, and returns the last result otherwise.

    Parameters
    ----------
    slurm
        The client.
    election
        Whether this node queries.
    every_s
        How often [s]; less often where answers take long.
    users
        For how many users their own series are made.
    clock, now_unix_s
        Monotonic seconds, and seconds since 1970.
    """

    slurm: SlurmQueries
    election: Election
    every_s: float = EVERY_S
    users: int = 0
    clock: Clock = time.monotonic
    now_unix_s: Clock = time.time
    _due_at: float = field(default=float("-inf"))
    _last: PollResult | OpskError | None = None

    def round(self) -> PollResult:
        """Return the last round; a new one when it is time.

        Raises
        ------
        SlurmError
            The last round failed.
        """
        if self._last is None or self.clock() >= self._due_at:
            began = self.clock()
            try:
                self._last = self._ask()
                rest_s = self._last.rest_s
            except OpskError as error:
                self._last = error
                rest_s = _REST_FACTOR_AFTER_FAILURE * (self.clock() - began)
            self._due_at = self.clock() + max(_EARLY * self.every_s, rest_s)
        if isinstance(self._last, OpskError):
            raise self._last.with_traceback(None)
        return self._last

    def _ask(self) -> PollResult:
        """Run all queries."""
        if not self.election.is_won(self.slurm.controllers):
            return PollResult(metrics=None, taken_at=self.clock())
        began = self.clock()
        families = Families()
        self._fill(families)
        took_s = self.clock() - began
        families.gauge(
            "opsk_slurm_questions_seconds",
            "How long slurmctld's answers took in all, in the last round of questions.",
            took_s,
        )
        add_controllers(families, self._controllers(families))
        return PollResult(metrics=families.all(), taken_at=self.clock(), rest_s=_REST_FACTOR * took_s)

    def _fill(self, families: Families) -> None:
        """Add slurmctld's answers; without queue and nodes the others are useless."""
        asked_unix_s = self.now_unix_s()
        queue, nodes = self.slurm.queue(), self.slurm.loads()
        statistics = _query(families, "scheduler", self.slurm.statistics)
        reservations = _query(families, "reservations", self.slurm.reservations)
        if not nodes:
            raise SlurmError("sinfo lists no node", hint="with PrivateData=nodes the exporter must be an Operator")
        is_counted = statistics is not None and any(statistics.jobs_now.values())
        if not queue and (is_counted or any(node.cpus_allocated for node in nodes)):
            self._refuse_private_jobs()
        _add_success(families, "queue", is_well=True)
        _add_success(families, "nodes", is_well=True)
        add_queue(families, queue, list_partitions(nodes), asked_unix_s, self.users)
        add_predictions(families, queue)
        add_nodes(families, nodes)
        if statistics is not None:
            add_statistics(families, statistics)
        if reservations is not None:
            add_reservations(families, reservations)

    def _refuse_private_jobs(self) -> None:
        """Raise if the queue is hidden rather than empty: zero jobs would be wrong."""
        if "jobs" in self.slurm.config().get("PrivateData", "").lower().split(","):
            raise SlurmError(
                "jobs are hidden from the exporter's user (PrivateData=jobs)", hint="make it an Operator in slurmdbd"
            )

    def _controllers(self, families: Families) -> Sequence[Controller]:
        """Query which slurmctld answer; waiting for a dead one is no load on the others."""
        return _query(families, "controllers", self.slurm.controllers) or ()


class SlurmCollector:
    """Queue, nodes, partitions and the scheduler, on the node that queries.

    Parameters
    ----------
    asker
        Queries Slurm.
    deadline_s
        Deadline of a scrape [s]; only the first waits, for a part of it.
    """

    name = "slurm"

    def __init__(self, asker: SlurmPoller, deadline_s: float = DEFAULT_DEADLINE_S) -> None:
        self._asker = asker
        self._wait_s = _SHARE_OF_DEADLINE * deadline_s
        self._rounds = Background("slurm", asker.round, every_s=asker.every_s)

    def collect(self) -> Iterable[Metric]:
        """Return the series of the last poll."""
        latest = self._rounds.latest(self._wait_s)
        if latest.error is not None:
            raise latest.error.with_traceback(None)
        if latest.value is None:
            raise SlurmError("slurmctld has not answered yet")
        result = latest.value
        if result.metrics is None:
            raise NoDataError("another node asks Slurm, or none: slurm_on of [exporter]")
        age_s = self._asker.clock() - result.taken_at
        if age_s > _STALE_AFTER * max(self._asker.every_s, result.rest_s):
            raise SlurmError(f"slurmctld has not answered for {age_s:.0f} s")
        families = Families()
        families.gauge(
            "opsk_slurm_age_seconds", "Time since Slurm's answers, of which the other series are, were complete.", age_s
        )
        return (*families.all(), *result.metrics)

    def close(self) -> None:
        """Stop querying Slurm."""
        self._rounds.close()


def make(
    on: str = AUTO,
    *,
    every_s: float = EVERY_S,
    users: int = 0,
    procfs: Path = Path("/proc"),
    cgroups: Path = Path("/sys/fs/cgroup"),
    deadline_s: float = DEFAULT_DEADLINE_S,
    slurm: SlurmQueries | None = None,
) -> SlurmCollector:
    """Return the collector of a node; nothing is queried before the first scrape.

    Parameters
    ----------
    on
        Which node queries: ``auto``, ``off``, or a host's name.
    every_s
        How often [s].
    users
        For how many users their own series are made.
    """
    asker = SlurmPoller(
        slurm=slurm or CommandClient(deadline_s=COMMAND_DEADLINE_S),
        election=Election(on, procfs=procfs, cgroups=cgroups),
        every_s=every_s,
        users=users,
    )
    return SlurmCollector(asker, deadline_s)


def _query(families: Families, part: str, question: Callable[[], _Answer]) -> _Answer | None:
    """Run an optional query; add whether it succeeded."""
    try:
        answer = question()
    except SlurmError:
        _add_success(families, part, is_well=False)
        return None
    _add_success(families, part, is_well=True)
    return answer


def _add_success(families: Families, part: str, *, is_well: bool) -> None:
    """Add whether one query succeeded."""
    families.gauge(
        "opsk_slurm_success",
        "1 when Slurm answered this question of the last round, 0 when not, and its series are absent.",
        float(is_well),
        part=part,
    )

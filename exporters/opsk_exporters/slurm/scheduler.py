"""Exports the health of slurmctld: statistics of ``sdiag``, controllers that answer, and reservations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from opsk.slurm.commands.controller_text import Controller, CycleStatistics, Reservation, SchedulerStatistics
from opsk_exporters.core.families import Families

_SINCE = "since slurmctld's statistics were set back (midnight UTC, a start, sdiag --reset)"


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

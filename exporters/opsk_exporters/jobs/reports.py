"""Exports the number of recent post-mortem reports by cause.

One node of the cluster exports it, the one that queries Slurm. It counts marks in the folder of evidence and reads no
report; the storage of that folder may hang, so a thread reads it once a minute and no scrape waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from prometheus_client import Metric

from opsk.errors import UnavailableError
from opsk.postmortem.marks import CLASSES, MarkCounts, count_marks
from opsk.slurm.cluster_name import cluster_name
from opsk.slurm.commands.command import CommandClient
from opsk.slurm.commands.controller_text import Controller
from opsk.telemetry.background_reader import Background
from opsk_exporters.core.collector import DEFAULT_DEADLINE_S, NoDataError
from opsk_exporters.core.exposition import Families
from opsk_exporters.slurm.election import AUTO, Election

EVERY_S = 60.0
WINDOW_S = 86400.0
_STALE_AFTER_S = 5 * EVERY_S
_SHARE_OF_DEADLINE = 0.6

Controllers = Callable[[], Sequence[Controller]]
ClusterName = Callable[[], str]


class ReportsCollector:
    """Post-mortems of the last day, by class, on the node that queries Slurm.

    Parameters
    ----------
    folder
        The folder of evidence; ``None`` where the site keeps none.
    election
        Whether this node exports them.
    controllers
        Asks which slurmctld answer.
    cluster
        Asks what the cluster is called: in a folder that several clusters share, marks of others do not count.
    now_unix_s
        Seconds since 1970.
    """

    name = "reports"

    def __init__(
        self, folder: Path | None, election: Election, controllers: Controllers, *,
        cluster: ClusterName = lambda: "", deadline_s: float = DEFAULT_DEADLINE_S,
        now_unix_s: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self._folder = folder
        self._election = election
        self._controllers = controllers
        self._ask_cluster = cluster
        self._cluster = ""
        self._now_unix_s = now_unix_s
        self._wait_s = _SHARE_OF_DEADLINE * deadline_s
        self._looks = Background("reports", self._look, every_s=EVERY_S)

    def collect(self) -> Iterable[Metric]:
        """Return the series of the last count."""
        if self._folder is None:
            raise NoDataError("the site keeps no reports: folder of [postmortem]")
        latest = self._looks.latest(self._wait_s)
        if latest.error is not None:
            raise latest.error.with_traceback(None)
        if latest.value is None or (latest.age_s or 0.0) > _STALE_AFTER_S:
            raise UnavailableError(f"{self._folder} does not answer", hint="is its storage there?")
        return _build_metrics(latest.value)

    def close(self) -> None:
        """Stop counting."""
        self._looks.close()

    def _look(self) -> MarkCounts:
        """Count the reports, on the elected node."""
        if self._folder is None or not self._election.is_won(self._controllers):
            raise NoDataError("reports are exported by another node, or by none: see slurm_on of [exporter]")
        self._cluster = self._cluster or self._ask_cluster()
        try:
            return count_marks(self._folder, since_s=self._now_unix_s() - WINDOW_S, cluster=self._cluster)
        except FileNotFoundError:
            if self._folder.is_dir():
                return MarkCounts(counts=dict.fromkeys(CLASSES, 0))
            raise NoDataError(f"{self._folder} is not on this host") from None
        except OSError as error:
            raise UnavailableError(
                f"{error.filename}: {error.strerror}", hint="let the exporter's user pass it: mode 0711 or 0755"
            ) from error


def _build_metrics(reports: MarkCounts) -> tuple[Metric, ...]:
    """Return the series; a class of which there was none is 0."""
    families = Families()
    for cause, count in reports.counts.items():
        families.gauge(
            "opsk_postmortem_reports",
            "Reports on failed jobs that ended within the last 24 hours, by class of the cause (none: none is named).",
            count,
            **{"class": cause},
        )
    families.gauge(
        "opsk_postmortem_last_end_timestamp_seconds", "When the last job ended that has a report.", reports.last_end_s
    )
    return families.all()


def make(
    folder: Path | None,
    on: str = AUTO,
    *,
    procfs: Path = Path("/proc"),
    cgroups: Path = Path("/sys/fs/cgroup"),
    deadline_s: float = DEFAULT_DEADLINE_S,
    controllers: Controllers | None = None,
) -> ReportsCollector:
    """Return the collector of a node; nothing is read before the first scrape.

    Parameters
    ----------
    on
        Which node exports reports: ``auto``, ``off``, or a host's name.
    """
    election = Election(on, procfs=procfs, cgroups=cgroups)
    client = CommandClient()
    return ReportsCollector(
        folder, election, controllers or client.controllers, cluster=lambda: cluster_name(client), deadline_s=deadline_s
    )

"""Finds jobs that the recorder missed, or whose records were lost, in Slurm's accounting.

A job of seconds ends before anybody has looked; a record is lost with a process that is killed. So the accounting is
queried from time to time for jobs that have ended, the store is queried for its records of them, and missing records
are sent again until the store has them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from opsk.errors import OpskError, StoreError
from opsk.slurm.commands.accounting import AccountedRun
from opsk.store.records.jobs import JobSeen
from opsk.workload.advice_record import AdviceRecord
from opsk_tui.data.job_ends import build_job_record
from opsk_tui.data.recording import build_job_seen
from opsk_tui.data.view import JobView

EVERY_S = 60.0
MAX_PAUSE_S = 960.0
"""Where there is no accounting it is rarely queried."""
SETTLE_S = 20.0
"""Jobs that have just ended are on their way to the store, and to the accounting."""
AGAIN_S = 900.0
"""Each query overlaps the previous one by so long: slurmctld may report to the accounting late."""
FIRST_LOOK_S = 86400.0
"""The first query goes back to the last job in the store, but no farther than this."""
MAX_WINDOW_S = 3600.0
"""The longest time span of one query: a day of a large cluster is a long answer."""
RESEND_AFTER_S = 300.0
"""A store that is full or away accepts nothing meanwhile."""
MAX_OPEN = 20_000
FINAL = (
    "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "DEADLINE", "BOOT_FAIL",
)  # fmt: skip

Key = tuple[str, datetime]
AccountingLookup = Callable[[Sequence[str], float, float], Sequence[AccountedRun]]
"""Returns the runs that ended in some states between two times; raises a `SlurmError` where there is no answer."""
StoreLookup = Callable[[str, Sequence[str]], Mapping[Key, tuple[datetime, str | None]]]
"""Returns the jobs of a cluster, by their ids, that the store has: time of the record, and final state, if any."""

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class MissedJobs:
    """Queries the accounting for past jobs at intervals.

    Parameters
    ----------
    ended
        Queries the accounting.
    known
        Queries the store.
    since
        Submission time of the last job in the store, by cluster.
    every_s
        Pause between two queries [s].
    clock
        Seconds since 1970.
    now
        A monotonic clock [s].
    """

    ended: AccountingLookup
    known: StoreLookup
    since: Mapping[str, datetime] = field(default_factory=dict)
    every_s: float = EVERY_S
    clock: Callable[[], float] = time.time
    now: Callable[[], float] = time.monotonic
    _until_s: float | None = None
    _due_s: float = float("-inf")
    _failures: int = 0
    _open: dict[Key, AccountedRun] = field(default_factory=dict)
    _settled: dict[Key, float] = field(default_factory=dict)
    _sent_at_s: dict[Key, float] = field(default_factory=dict)

    def records(self, cluster: str) -> list[JobSeen]:
        """Return the jobs of a cluster that the store lacks, or whose end it lacks; nothing where it is not yet due.

        It may block for as long as the accounting may take.
        """
        if not cluster or self.now() < self._due_s:
            return []
        self._due_s = self.now() + self.every_s
        try:
            self._look_back(cluster)
        except OpskError as error:
            if not self._failures:
                log.warning("jobs that nobody saw are not looked for: %s", error.message)
            self._failures += 1
            self._due_s = self.now() + min(self.every_s * 2.0 ** min(self._failures, 8), MAX_PAUSE_S)
        else:
            self._failures = 0
        try:
            return self._find_missing(cluster)
        except StoreError:  # the writer of the store reports it
            return []

    def _look_back(self, cluster: str) -> None:
        """Query the jobs that have ended since the last query.

        Raises
        ------
        OpskError
            The accounting does not answer.
        """
        newest_s = self.clock() - SETTLE_S
        if self._until_s is None:
            since = self.since.get(cluster)
            self._until_s = newest_s if since is None else max(newest_s - FIRST_LOOK_S, since.timestamp())
        from_s = min(self._until_s, newest_s) - AGAIN_S  # not before: this clock may have been ahead
        until_s = min(newest_s, from_s + MAX_WINDOW_S)
        for run in self.ended(FINAL, from_s, until_s):
            key = _key(run)
            if key is not None and key not in self._settled and len(self._open) < MAX_OPEN:
                self._open[key] = run
        self._until_s = until_s
        self._settled = {key: at_s for key, at_s in self._settled.items() if at_s >= from_s - AGAIN_S}

    def _find_missing(self, cluster: str) -> list[JobSeen]:
        """Return the records that the store lacks of the open jobs, and close those that need none.

        Raises
        ------
        StoreError
            The store does not answer.
        """
        known = self.known(cluster, [label for label, _ in self._open]) if self._open else {}
        missing = []
        for key, run in list(self._open.items()):
            recorded_at, state = known.get(key, (None, None))
            advice = AdviceRecord.parse(run.admin_comment)
            is_too_old = self.clock() - (run.end_s or 0.0) > FIRST_LOOK_S  # the store refuses it
            if state == run.state or is_too_old or (recorded_at is None and advice is None):
                del self._open[key]
                self._sent_at_s.pop(key, None)
                self._settled[key] = run.end_s or 0.0
            elif self.now() - self._sent_at_s.get(key, float("-inf")) >= RESEND_AFTER_S:
                self._sent_at_s[key] = self.now()
                at_s = max(
                    self.clock(), recorded_at.timestamp() if recorded_at is not None else 0.0
                )  # the newest record counts
                missing.append(
                    build_job_seen(cluster, JobView(record=build_job_record(run), advice=advice), key[1], at_s)
                )
        return missing


def _key(run: AccountedRun) -> Key | None:
    """Return the key of a run in the store; ``None`` for one that never ran, or stands for several."""
    if run.submit_s is None or run.start_s is None or not run.nodes or "[" in run.label:
        return None
    return run.label, datetime.fromtimestamp(run.submit_s, UTC)

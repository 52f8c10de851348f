"""Which jobs came and went between two looks, or were told of and lost on the way? Slurm's accounting knows them all.

A job of seconds is over before anybody looked; a record is lost with the process that had it when it was killed. So the
accounting is asked now and then for jobs that have ended, the store for what it has of them, and what it lacks is told
again, until it has it.
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
from opsk_tui.data.ends import job_of_run
from opsk_tui.data.recording import job_seen
from opsk_tui.data.view import JobView

EVERY_S = 60.0
LONGEST_PAUSE_S = 960.0
"""Where there is no accounting it is asked for seldom."""
SETTLE_S = 20.0
"""What has just ended is on its way to the store, and to the accounting."""
AGAIN_S = 900.0
"""Each look asks for so long before the last one again: slurmctld may tell the accounting late."""
FIRST_LOOK_S = 86400.0
"""The first look goes back to what the store knows last, but no farther than this."""
MOST_AT_ONCE_S = 3600.0
"""One question is for no more time than this: a day of a large cluster is a long answer."""
TELL_AGAIN_S = 300.0
"""A store that is full or away takes nothing meanwhile."""
MOST_OPEN = 20_000
FINAL = (
    "COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "DEADLINE", "BOOT_FAIL",
)  # fmt: skip

Key = tuple[str, datetime]
Asked = Callable[[Sequence[str], float, float], Sequence[AccountedRun]]
"""Returns the runs that ended in some states between two times; raises a `SlurmError` where it does not say."""
Known = Callable[[str, Sequence[str]], Mapping[Key, tuple[datetime, str | None]]]
"""Returns of jobs of a cluster, by their ids, those that the store has: as of when, and as what they ended, if so."""

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Missed:
    """Looks back, again and again.

    Parameters
    ----------
    ended
        Asks the accounting.
    known
        Asks the store.
    since
        When the last job was submitted that the store has, by cluster.
    every_s
        Pause between two looks [s].
    clock
        Seconds since 1970.
    now
        A clock that nobody sets [s].
    """

    ended: Asked
    known: Known
    since: Mapping[str, datetime] = field(default_factory=dict)
    every_s: float = EVERY_S
    clock: Callable[[], float] = time.time
    now: Callable[[], float] = time.monotonic
    _until_s: float | None = None
    _due_s: float = float("-inf")
    _failures: int = 0
    _open: dict[Key, AccountedRun] = field(default_factory=dict)
    _settled: dict[Key, float] = field(default_factory=dict)
    _told_s: dict[Key, float] = field(default_factory=dict)

    def records(self, cluster: str) -> list[JobSeen]:
        """Return the jobs of a cluster that the store lacks, or whose end it lacks; nothing where it is not yet time.

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
            self._due_s = self.now() + min(self.every_s * 2.0 ** min(self._failures, 8), LONGEST_PAUSE_S)
        else:
            self._failures = 0
        try:
            return self._lacking(cluster)
        except StoreError:  # who writes into the store tells of it
            return []

    def _look_back(self, cluster: str) -> None:
        """Ask for jobs that have ended since the last look.

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
        until_s = min(newest_s, from_s + MOST_AT_ONCE_S)
        for run in self.ended(FINAL, from_s, until_s):
            key = _key(run)
            if key is not None and key not in self._settled and len(self._open) < MOST_OPEN:
                self._open[key] = run
        self._until_s = until_s
        self._settled = {key: at_s for key, at_s in self._settled.items() if at_s >= from_s - AGAIN_S}

    def _lacking(self, cluster: str) -> list[JobSeen]:
        """Return what the store lacks of the jobs that are open; those that it has, or need not have, are so no more.

        Raises
        ------
        StoreError
            The store does not answer.
        """
        known = self.known(cluster, [label for label, _ in self._open]) if self._open else {}
        found = []
        for key, run in list(self._open.items()):
            at, state = known.get(key, (None, None))
            advice = AdviceRecord.parse(run.admin_comment)
            is_too_old = self.clock() - (run.end_s or 0.0) > FIRST_LOOK_S  # the store refuses it
            if state == run.state or is_too_old or (at is None and advice is None):
                del self._open[key]
                self._told_s.pop(key, None)
                self._settled[key] = run.end_s or 0.0
            elif self.now() - self._told_s.get(key, float("-inf")) >= TELL_AGAIN_S:
                self._told_s[key] = self.now()
                at_s = max(self.clock(), at.timestamp() if at is not None else 0.0)  # the newest record counts
                found.append(job_seen(cluster, JobView(record=job_of_run(run), advice=advice), key[1], at_s))
        return found


def _key(run: AccountedRun) -> Key | None:
    """Return what a run is known by in the store; ``None`` of one that never ran, or stands for several."""
    if run.submit_s is None or run.start_s is None or not run.nodes or "[" in run.label:
        return None
    return run.label, datetime.fromtimestamp(run.submit_s, UTC)

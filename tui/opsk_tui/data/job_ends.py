"""Finds how jobs ended that Slurm no longer lists.

Slurm is asked again until it answers: a job may still be completing, and Slurm may be away.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from opsk.errors import InputError, OpskError, SlurmError
from opsk.hostlist import fold
from opsk.slurm.adapter import slurm_client
from opsk.slurm.client import SlurmClient
from opsk.slurm.commands.accounting import AccountedRun, AccountingClient
from opsk.slurm.records import JobRecord
from opsk.store.records.jobs import JobSeen

QUESTIONS_A_MINUTE = 30
AGAIN_AFTER_S = 5.0
GIVEN_UP_AFTER_S = 900.0
"""After this time a job that Slurm does not know is taken to have ended."""

EndLookup = Callable[[str, datetime], JobRecord | None]
"""Returns Slurm's record of a job by its id and submission time; ``None``: there is none. Raises an `OpskError`
where Slurm does not answer.
"""


@dataclass(slots=True, kw_only=True)
class _PendingEnd:
    """A job that is not listed: its last record, since when it is gone, and when to query again."""

    seen: JobSeen
    since_s: float
    due_s: float


class Endings:
    """Jobs that are gone, until their ends are known.

    Parameters
    ----------
    ended
        Queries Slurm.
    """

    def __init__(self, ended: EndLookup) -> None:
        self._ended = ended
        self._pending: dict[tuple[str, datetime], _PendingEnd] = {}

    def add(self, seen: JobSeen, now_s: float) -> None:
        """Query from now on how a job ended."""
        self._pending.setdefault((seen.job, seen.submitted_at), _PendingEnd(seen=seen, since_s=now_s, due_s=now_s))

    def forget(self, keys: Iterable[tuple[str, datetime]]) -> None:
        """Stop querying jobs that are listed again."""
        for key in keys:
            self._pending.pop(key, None)

    def pop_ended(self, now_s: float) -> list[JobSeen]:
        """Return the jobs whose ends have become known; those that Slurm has forgotten ended by now."""
        ended = []
        for key, pending in list(self._pending.items()):
            if now_s < pending.due_s <= now_s + AGAIN_AFTER_S:
                continue
            pending.due_s = now_s + AGAIN_AFTER_S
            record = self._resolve(pending, now_s)
            if record is not None:
                ended.append(record)
                del self._pending[key]
        return ended

    def _resolve(self, pending: _PendingEnd, now_s: float) -> JobSeen | None:
        seen = pending.seen
        at = max(seen.at, datetime.fromtimestamp(now_s, UTC))
        has_waited_long = abs(now_s - pending.since_s) > GIVEN_UP_AFTER_S
        try:
            last = self._ended(seen.job, seen.submitted_at)
        except OpskError:
            return _with_unknown_end(seen, at) if has_waited_long else None
        if last is None:
            return _with_unknown_end(seen, at)
        if last.is_active and not has_waited_long:
            return None
        return _with_unknown_end(seen, at) if last.is_active else _with_known_end(seen, last, at)


class SlurmEnds:
    """Queries how jobs ended, a bounded number per minute: slurmctld, then the accounting."""

    def __init__(
        self,
        *,
        slurm: SlurmClient | None = None,
        accounting: AccountingClient | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._slurm, self._accounting = slurm or slurm_client(), accounting or AccountingClient()
        self._clock = clock
        self._query_times: deque[float] = deque(maxlen=QUESTIONS_A_MINUTE)

    def __call__(self, job: str, submitted: datetime) -> JobRecord | None:
        """Return Slurm's record of one submission of a job; ``None``: there is none.

        Raises
        ------
        SlurmError
            It does not answer, or the limit of queries is reached.
        """
        now_s = self._clock()
        if len(self._query_times) == QUESTIONS_A_MINUTE and now_s - self._query_times[0] < 60:
            raise SlurmError("Slurm has been asked often enough for a minute")
        self._query_times.append(now_s)
        try:
            known = self._slurm.job(job)
        except InputError:
            known = None
        if known is not None and known.submit_time == submitted:
            return known
        try:
            runs = self._accounting.runs(job)
        except InputError:
            return None
        matching = [run for run in runs if run.submit_s == submitted.timestamp()]
        return build_job_record(matching[-1]) if matching else None


def build_job_record(run: AccountedRun) -> JobRecord:
    """Return a run of the accounting as a job."""
    return JobRecord(
        id=run.id, label=run.label, user=run.user, account=run.account, partition=run.partition, qos=run.qos,
        name=run.name, admin_comment=run.admin_comment or None, state=run.state, nodes=run.nodes,
        node_count=len(run.nodes), gpus=run.gpus, exit_code=run.exit_code, exit_signal=run.exit_signal,
        submit_time=_to_datetime(run.submit_s), start_time=_to_datetime(run.start_s), end_time=_to_datetime(run.end_s),
    )  # fmt: skip


def _to_datetime(unix_s: float | None) -> datetime | None:
    return None if unix_s is None else datetime.fromtimestamp(unix_s, UTC)


def format_exit(record: JobRecord) -> str | None:
    """Return status and signal as Slurm writes them; ``None`` while there are none."""
    return f"{record.exit_code}:{record.exit_signal or 0}" if record.exit_code is not None else None


def _with_known_end(seen: JobSeen, last: JobRecord, at: datetime) -> JobSeen:
    """Return a job with the end that Slurm reports."""
    return replace(
        seen,
        at=at,
        state=last.state,
        exit_code=format_exit(last),
        started_at=last.start_time,
        ended_at=last.end_time or at,
        node_list=fold(last.nodes) if last.nodes else seen.node_list,
        nodes=last.node_count or seen.nodes,
        gpus=last.gpus or seen.gpus,
    )


def _with_unknown_end(seen: JobSeen, at: datetime) -> JobSeen:
    """Return a job whose end is unknown."""
    return replace(seen, at=at, state=None, ended_at=at)

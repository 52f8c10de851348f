"""How did jobs end that Slurm lists no more? It is asked until it says so: one may be completing yet, Slurm be away."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from opsk.errors import InputError, OpskError, SlurmError
from opsk.hostlist import fold
from opsk.slurm.choice import slurm_client
from opsk.slurm.client import SlurmClient
from opsk.slurm.commands.accounting import AccountedRun, AccountingClient
from opsk.slurm.records import JobRecord
from opsk.store.records.jobs import JobSeen

QUESTIONS_A_MINUTE = 30
AGAIN_AFTER_S = 5.0
GIVEN_UP_AFTER_S = 900.0
"""After which a job of which Slurm says nothing is taken to have ended."""

Ended = Callable[[str, datetime], JobRecord | None]
"""Returns what Slurm knows of a job by its id and the time of its submission; ``None``: nothing. Raises an `OpskError`
where it does not say."""


@dataclass(slots=True, kw_only=True)
class _Gone:
    """A job that is not listed: as it was seen last, since when it is gone, and when to ask again."""

    seen: JobSeen
    since_s: float
    due_s: float


class Endings:
    """Jobs that are gone, until it is known how they ended.

    Parameters
    ----------
    ended
        Asks Slurm.
    """

    def __init__(self, ended: Ended) -> None:
        self._ended = ended
        self._gone: dict[tuple[str, datetime], _Gone] = {}

    def add(self, seen: JobSeen, now_s: float) -> None:
        """Ask from now on how a job ended."""
        self._gone.setdefault((seen.job, seen.submitted_at), _Gone(seen=seen, since_s=now_s, due_s=now_s))

    def forget(self, keys: Iterable[tuple[str, datetime]]) -> None:
        """Do not ask of jobs that are listed again."""
        for key in keys:
            self._gone.pop(key, None)

    def told(self, now_s: float) -> list[JobSeen]:
        """Return the jobs of which it has become known how they ended; those that Slurm has forgotten ended by now."""
        found = []
        for key, gone in list(self._gone.items()):
            if now_s < gone.due_s <= now_s + AGAIN_AFTER_S:
                continue
            gone.due_s = now_s + AGAIN_AFTER_S
            over = self._over(gone, now_s)
            if over is not None:
                found.append(over)
                del self._gone[key]
        return found

    def _over(self, gone: _Gone, now_s: float) -> JobSeen | None:
        seen = gone.seen
        at = max(seen.at, datetime.fromtimestamp(now_s, UTC))
        has_waited_long = abs(now_s - gone.since_s) > GIVEN_UP_AFTER_S
        try:
            last = self._ended(seen.job, seen.submitted_at)
        except OpskError:
            return _ended_by(seen, at) if has_waited_long else None
        if last is None:
            return _ended_by(seen, at)
        if last.is_active and not has_waited_long:
            return None
        return _ended_by(seen, at) if last.is_active else _ended_as(seen, last, at)


class SlurmEnds:
    """Asks Slurm how jobs ended, a bounded number a minute: slurmctld, and accounting where that has forgotten."""

    def __init__(
        self,
        *,
        slurm: SlurmClient | None = None,
        accounting: AccountingClient | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._slurm, self._accounting = slurm or slurm_client(), accounting or AccountingClient()
        self._clock = clock
        self._asked: deque[float] = deque(maxlen=QUESTIONS_A_MINUTE)

    def __call__(self, job: str, submitted: datetime) -> JobRecord | None:
        """Return what Slurm knows of one submission of a job; ``None``: it knows of none.

        Raises
        ------
        SlurmError
            It does not answer, or has been asked too often.
        """
        now_s = self._clock()
        if len(self._asked) == QUESTIONS_A_MINUTE and now_s - self._asked[0] < 60:
            raise SlurmError("Slurm has been asked often enough for a minute")
        self._asked.append(now_s)
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
        of_it = [run for run in runs if run.submit_s == submitted.timestamp()]
        return job_of_run(of_it[-1]) if of_it else None


def job_of_run(run: AccountedRun) -> JobRecord:
    """Return a run of the accounting as a job."""
    return JobRecord(
        id=run.id, label=run.label, user=run.user, account=run.account, partition=run.partition, qos=run.qos,
        name=run.name, admin_comment=run.admin_comment or None, state=run.state, nodes=run.nodes,
        node_count=len(run.nodes), gpus=run.gpus, exit_code=run.exit_code, exit_signal=run.exit_signal,
        submit_time=_moment(run.submit_s), start_time=_moment(run.start_s), end_time=_moment(run.end_s),
    )  # fmt: skip


def _moment(unix_s: float | None) -> datetime | None:
    return None if unix_s is None else datetime.fromtimestamp(unix_s, UTC)


def exit_words(record: JobRecord) -> str | None:
    """Return status and signal as Slurm writes them; ``None`` while there are none."""
    return f"{record.exit_code}:{record.exit_signal or 0}" if record.exit_code is not None else None


def _ended_as(seen: JobSeen, last: JobRecord, at: datetime) -> JobSeen:
    """Return a job as Slurm says that it ended."""
    return replace(
        seen,
        at=at,
        state=last.state,
        exit_code=exit_words(last),
        started_at=last.start_time,
        ended_at=last.end_time or at,
        node_list=fold(last.nodes) if last.nodes else seen.node_list,
        nodes=last.node_count or seen.nodes,
        gpus=last.gpus or seen.gpus,
    )


def _ended_by(seen: JobSeen, at: datetime) -> JobSeen:
    """Return a job of which nobody says how it ended."""
    return replace(seen, at=at, state=None, ended_at=at)

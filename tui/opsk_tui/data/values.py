"""Holds the last answer of Slurm for ``opsk top --once``: jobs, their age, and why there is no newer answer.

Slurm is asked in a thread of its own. While it does not answer the last answer stays, with its age and the reason; no
two queries run at the same time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from opsk.errors import OpskError
from opsk.slurm.client import SlurmClient
from opsk.slurm.records import JobRecord
from opsk.workload.advice_record import AdviceRecord

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job in Slurm's record, and the advice of its record (``None``: there is none)."""

    record: JobRecord
    advice: AdviceRecord | None = None


class JobSource(Protocol):
    """A source of jobs with their advice."""

    def jobs(self) -> tuple[JobView, ...]:
        """Return pending and active jobs.

        Raises
        ------
        OpskError
            They cannot be read now; the message says why.
        """
        ...


class SlurmJobs:
    """Lists the jobs of a cluster.

    Parameters
    ----------
    client
        The Slurm client; it has a deadline of its own.
    """

    def __init__(self, client: SlurmClient) -> None:
        self._client = client

    def jobs(self) -> tuple[JobView, ...]:
        """Return pending and active jobs."""
        return tuple(JobView(record=job, advice=advice_of(job)) for job in self._client.jobs(details=True))


def advice_of(job: JobRecord) -> AdviceRecord | None:
    """Return the advice in a job's ``admin_comment``; its ``comment`` is its user's own, who may write anything."""
    return AdviceRecord.parse(job.admin_comment or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedState:
    """The state at one moment.

    Parameters
    ----------
    jobs
        The last answer; empty before the first one.
    taken_at
        When it came, by the feed's clock [s]; ``None`` before the first one.
    problem, hint
        Why the last query was not answered; empty when it was.
    asking_since
        Start of the pending query; ``None`` when there is none.
    """

    jobs: tuple[JobView, ...] = ()
    taken_at: float | None = None
    problem: str = ""
    hint: str = ""
    asking_since: float | None = None


class Feed:
    """Holds the last answer of a source.

    Parameters
    ----------
    source
        The source.
    clock
        Monotonic seconds.
    """

    def __init__(self, source: JobSource, clock: Clock = time.monotonic) -> None:
        self._source = source
        self._clock = clock
        self._lock = threading.Lock()
        self._state = FeedState()

    @property
    def state(self) -> FeedState:
        """The present state."""
        with self._lock:
            return self._state

    def age_s(self) -> float | None:
        """Return how old the last answer is [s]; ``None`` before the first one."""
        taken_at = self.state.taken_at
        return None if taken_at is None else self._clock() - taken_at

    def waiting_s(self) -> float:
        """Return how long the pending query has been waiting for its answer [s]; 0 when there is none."""
        asking_since = self.state.asking_since
        return 0.0 if asking_since is None else self._clock() - asking_since

    def refresh(self) -> FeedState:
        """Query now, wait for the answer, and return the state; does nothing when a query is pending."""
        with self._lock:
            if self._state.asking_since is not None:
                return self._state
            self._state = replace(self._state, asking_since=self._clock())
        try:
            jobs = self._source.jobs()
        except OpskError as error:
            return self._change(problem=error.message, hint=error.hint)
        else:
            return self._change(jobs=jobs, taken_at=self._clock(), problem="", hint="")
        finally:
            self._change(asking_since=None)

    def refresh_in_background(self, done: Callable[[], object]) -> None:
        """Query in a daemon thread; ``done`` is called in that thread.

        Does nothing when a query is pending.
        """
        if self.state.asking_since is None:
            threading.Thread(target=self._refresh_then, args=(done,), name="opsk-top-feed", daemon=True).start()

    def _refresh_then(self, done: Callable[[], object]) -> None:
        """Query, then call back."""
        try:
            self.refresh()
        finally:
            done()

    def _change(self, **changes: Any) -> FeedState:
        """Change the state, and return it without a pending query."""
        with self._lock:
            self._state = replace(self._state, **changes)
            return replace(self._state, asking_since=None)

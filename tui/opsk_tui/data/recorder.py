"""Implements ``opsk top --record``: the service that fills the store, without a screen, one per cluster.

Records go through the advisor's socket where the store is a file that the advisor writes, else directly into the
database. Records that cannot be written wait here, up to a bound, and are sent again; every record may be sent twice.

A job of seconds ends before anybody has looked, and a record is lost with a process that is killed. So the accounting
is queried from time to time for jobs that have ended, and records that the store lacks are sent until it has them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from opsk.config import SiteConfig
from opsk.errors import InputError, OpskError, StoreError, UnavailableError
from opsk.slurm.commands.accounting import AccountedRun, AccountingClient
from opsk.stop_signals import StopSignals
from opsk.store.database.engine import open_store
from opsk.store.database.urls import default_url
from opsk.store.records.failures import find_failures
from opsk.store.records.jobs import JobSeen, find_jobs, find_known_jobs
from opsk.store.records.use import find_submitted, find_used
from opsk.store.writing import DirectWriter, Record, encode
from opsk.workload.advice_record import AdviceRecord
from opsk_tui.data.feed import ClusterFeed
from opsk_tui.data.job_use import JobUseRecorder
from opsk_tui.data.recording import (
    EVERY_S,
    QUESTIONS_A_MINUTE,
    SlurmEnds,
    ViewRecorder,
    batches,
    build_job_record,
    build_job_seen,
)
from opsk_tui.data.sources.advisor import send_records
from opsk_tui.data.view import JobView

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from opsk_tui.data.view import ClusterView

LOOK_BACK_EVERY_S = 60.0
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
MAX_WAITING = 20_000
AGAIN_AFTER_S = 10.0
LOOK_EVERY_S = 2.0
_ENDS_WITHIN_S = 25.0
"""For the last records after SIGTERM, whatever accounting or store do not answer: systemd waits for 30 s."""
Item = TypeVar("Item")
Answer = TypeVar("Answer")


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
    every_s: float = LOOK_BACK_EVERY_S
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


class Outbox:
    """Records on their way: through the advisor, else into the database.

    Parameters
    ----------
    send
        Sends lines of JSON to the advisor, and returns whether it accepted them.
    write
        Writes into the database.
    """

    def __init__(
        self, send: Callable[[Sequence[str]], bool] | None, write: Callable[[Sequence[Record]], object]
    ) -> None:
        self._send, self._write = send, write
        self._waiting: deque[Record] = deque(maxlen=MAX_WAITING)
        self._due_s = 0.0
        self._last_warning = ""
        self.written = 0

    def put(self, records: Sequence[Record], *, now: bool = False) -> None:
        """Add records and send the queue; refused records wait, and the oldest are dropped beyond the bound."""
        self._waiting.extend(records)
        if not now and time.monotonic() < self._due_s:
            return
        for part in list(batches(list(self._waiting))):
            try:
                is_accepted = self._hand_over(part)
            except (StoreError, UnavailableError) as error:
                is_accepted = False
                if error.message != self._last_warning:
                    self._last_warning = error.message
                    log.warning("records wait: %s", error.message)
            if not is_accepted:
                self._due_s = time.monotonic() + AGAIN_AFTER_S
                return
            self._last_warning = ""
            self.written += len(part)
            for _ in part:
                self._waiting.popleft()

    def _hand_over(self, part: Sequence[Record]) -> bool:
        if self._send is not None:
            with contextlib.suppress(UnavailableError):
                return self._send([encode(record) for record in part])
        try:
            self._write(part)
        except InputError:
            for record in part:
                try:
                    self._write([record])
                except InputError as error:
                    log.warning("%s", error.message)
        return True


def record(
    site: SiteConfig, *, prometheus: str | None = None, every_s: float = EVERY_S, for_s: float | None = None
) -> None:
    """Record the cluster until SIGTERM, or for some time.

    Raises
    ------
    StoreError
        The store cannot be opened.
    """
    stops = StopSignals(_ENDS_WITHIN_S)
    url = site.store.url or default_url()
    writer = DirectWriter(open_store(url))
    is_file = url.startswith("sqlite")
    outbox = Outbox(_build_question(site) if is_file else None, writer.write)
    keeper = ViewRecorder(
        every_s=every_s,
        still_open=_read_or_empty(url, lambda engine: find_failures(engine, still=True)),
        unfinished=_read_or_empty(url, lambda engine: find_jobs(engine, running=True)),
        ended=SlurmEnds(),
    )
    missed = MissedJobs(
        ended=AccountingClient().list_ended,
        known=lambda cluster, ids: _read_store(url, lambda engine: find_known_jobs(engine, cluster, ids)),
        since={job.cluster: job.submitted_at for job in reversed(_read_or_empty(url, find_jobs))},
        every_s=min(LOOK_BACK_EVERY_S, every_s),
    )
    use = JobUseRecorder(
        submitted=lambda cluster, since: _read_or_empty(
            url, lambda engine: find_submitted(engine, cluster=cluster, since=since)
        ),
        unfinished=_read_or_empty(url, lambda engine: find_used(engine, running=True)),
        ended=SlurmEnds(),
        host_peak=HostPeaks(),
        every_s=every_s,
    )
    keepers = (keeper, use) if site.history.enabled else (keeper,)
    asyncio.run(_run(ClusterFeed(site, prometheus=prometheus), keepers, missed, outbox, for_s, stops))
    log.info("%d records kept", outbox.written)


def _build_question(site: SiteConfig) -> Callable[[Sequence[str]], bool]:
    return lambda lines: send_records(site.advisor.socket, lines)


def _read_or_empty(url: str, read: Callable[[Engine], list[Item]]) -> list[Item]:
    """Return what the store returns; nothing where it cannot be read."""
    try:
        return _read_store(url, read)
    except OpskError:
        return []


def _read_store(url: str, read: Callable[[Engine], Answer]) -> Answer:
    """Return the result of a query of the store.

    Raises
    ------
    StoreError
        It does not answer.
    """
    engine = open_store(url, writing=False)
    try:
        return read(engine)
    finally:
        engine.dispose()


async def _run(
    feed: ClusterFeed,
    keepers: Sequence[ViewRecorder | JobUseRecorder],
    missed: MissedJobs,
    outbox: Outbox,
    for_s: float | None,
    stops: StopSignals,
) -> None:
    """Record at intervals; the present view counts, however many there were since."""
    last: list[ClusterView] = []
    late: list[Record] = []

    async def see() -> None:
        async for view in feed.views():
            last[:] = [view]

    async def look_back() -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                late.extend(await asyncio.to_thread(missed.records, last[0].cluster) if last else ())
            except Exception:
                log.exception("jobs that nobody saw are not looked for")

    viewing, looking = asyncio.create_task(see()), asyncio.create_task(look_back())
    end_s = time.monotonic() + for_s if for_s is not None else None
    try:
        has_stopped = False
        while not has_stopped and not viewing.done() and (end_s is None or time.monotonic() < end_s):
            has_stopped = await asyncio.to_thread(stops.wait, LOOK_EVERY_S)
            if last:
                late_records, late[:] = tuple(late), ()
                await asyncio.to_thread(_record_view, last[0], keepers, outbox, late_records)
        if last:
            final = [item for keeper in keepers for item in keeper.records(last[0], is_last=True)]
            outbox.put([*final, *late], now=True)
    finally:
        viewing.cancel()
        looking.cancel()
        await asyncio.gather(viewing, looking, return_exceptions=True)
        await feed.close()


def _record_view(
    view: ClusterView, keepers: Sequence[ViewRecorder | JobUseRecorder], outbox: Outbox, late: Sequence[Record]
) -> None:
    outbox.put([*(item for keeper in keepers for item in keeper.records(view)), *late])


class HostPeaks:
    """Queries the accounting for the host memory of ended jobs, a bounded number per minute."""

    def __init__(
        self, accounting: AccountingClient | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._accounting, self._clock = accounting or AccountingClient(), clock
        self._query_times: deque[float] = deque(maxlen=QUESTIONS_A_MINUTE)

    def __call__(self, job: str) -> float | None:
        """Return the highest memory of one task of a job [bytes]; ``None`` where it is unknown, or not queried."""
        now_s = self._clock()
        if len(self._query_times) == QUESTIONS_A_MINUTE and now_s - self._query_times[0] < 60:
            return None
        self._query_times.append(now_s)
        try:
            runs = self._accounting.runs(job)
        except OpskError:
            return None
        peaks = [step.memory_peak_bytes for step in runs[-1].steps if step.memory_peak_bytes]
        return float(max(peaks)) if peaks else None

"""Implements ``opsk top --record``: the service that fills the store, without a screen, one per cluster.

Records go through the advisor's socket where the store is a file that the advisor writes, else directly into the
database. Records that cannot be written wait here, up to a bound, and are sent again; every record may be sent twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from opsk.config import SiteConfig
from opsk.errors import InputError, OpskError, StoreError, UnavailableError
from opsk.slurm.commands.accounting import AccountingClient
from opsk.store.database.engine import open_store
from opsk.store.database.urls import default_url
from opsk.store.records.failures import find_failures
from opsk.store.records.jobs import find_jobs, find_known_jobs
from opsk.store.writing import DirectWriter, Record, encode
from opsk_tui.data.feed import ClusterFeed
from opsk_tui.data.job_ends import SlurmEnds
from opsk_tui.data.missed_jobs import EVERY_S as LOOK_BACK_EVERY_S
from opsk_tui.data.missed_jobs import MissedJobs
from opsk_tui.data.recording import EVERY_S, ViewRecorder, batches
from opsk_tui.data.sources.advisor import send_records

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from opsk_tui.data.view import ClusterView

MAX_WAITING = 20_000
AGAIN_AFTER_S = 10.0
LOOK_EVERY_S = 2.0

Item = TypeVar("Item")
Answer = TypeVar("Answer")

log = logging.getLogger(__name__)


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
    url = site.store.url or default_url()
    writer = DirectWriter(open_store(url))
    is_file = url.startswith("sqlite")
    outbox = Outbox(_socket_of(site) if is_file else None, writer.write)
    keeper = ViewRecorder(
        every_s=every_s,
        still_open=_read_or_empty(url, lambda engine: find_failures(engine, still=True)),
        unfinished=_read_or_empty(url, lambda engine: find_jobs(engine, running=True)),
        ended=SlurmEnds(),
    )
    missed = MissedJobs(
        ended=AccountingClient().ended,
        known=lambda cluster, ids: _read_store(url, lambda engine: find_known_jobs(engine, cluster, ids)),
        since={job.cluster: job.submitted_at for job in reversed(_read_or_empty(url, find_jobs))},
        every_s=min(LOOK_BACK_EVERY_S, every_s),
    )
    asyncio.run(_run(ClusterFeed(site, prometheus=prometheus), keeper, missed, outbox, for_s))
    log.info("%d records kept", outbox.written)


def _socket_of(site: SiteConfig) -> Callable[[Sequence[str]], bool]:
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
    feed: ClusterFeed, keeper: ViewRecorder, missed: MissedJobs, outbox: Outbox, for_s: float | None
) -> None:
    """Record at intervals; the present view counts, however many there were since."""
    ends = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ends.set)
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
        while not ends.is_set() and not viewing.done() and (end_s is None or time.monotonic() < end_s):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ends.wait(), LOOK_EVERY_S)
            if last:
                late_records, late[:] = tuple(late), ()
                await asyncio.to_thread(_record_view, last[0], keeper, outbox, late_records)
        if last:
            outbox.put([*keeper.records(last[0], is_last=True), *late], now=True)
    finally:
        viewing.cancel()
        looking.cancel()
        await asyncio.gather(viewing, looking, return_exceptions=True)
        await feed.close()


def _record_view(view: ClusterView, keeper: ViewRecorder, outbox: Outbox, late: Sequence[Record]) -> None:
    outbox.put([*keeper.records(view), *late])

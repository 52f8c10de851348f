"""How does the store fill by itself? ``opsk top --record``: a screen without a screen, one a cluster, as a service.

What it sees goes through the advisor's socket where the store is a file that the advisor writes, else straight into the
database. What cannot be written waits here, up to a bound, and is told again; all records may be told twice.
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
from opsk.store.records.failures import failures
from opsk.store.records.jobs import jobs, known_jobs
from opsk.store.writing import DirectWriter, Record, encode
from opsk_tui.data.ends import SlurmEnds
from opsk_tui.data.feed import ClusterFeed
from opsk_tui.data.missed_jobs import EVERY_S as LOOK_BACK_EVERY_S
from opsk_tui.data.missed_jobs import Missed
from opsk_tui.data.recording import EVERY_S, Keeper, batches
from opsk_tui.data.sources.advisor import send_records

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from opsk_tui.data.view import ClusterView

MOST_WAITING = 20_000
AGAIN_AFTER_S = 10.0
LOOK_EVERY_S = 2.0

Kept = TypeVar("Kept")
Answer = TypeVar("Answer")

log = logging.getLogger(__name__)


class Outbox:
    """Records on their way: through the advisor, else into the database.

    Parameters
    ----------
    send
        Hands lines of JSON to the advisor, and tells whether it took them.
    write
        Writes into the database.
    """

    def __init__(
        self, send: Callable[[Sequence[str]], bool] | None, write: Callable[[Sequence[Record]], object]
    ) -> None:
        self._send, self._write = send, write
        self._waiting: deque[Record] = deque(maxlen=MOST_WAITING)
        self._due_s = 0.0
        self._said = ""
        self.kept = 0

    def put(self, records: Sequence[Record], *, now: bool = False) -> None:
        """Take records and hand over what waits; what was refused waits, of too much the oldest is lost."""
        self._waiting.extend(records)
        if not now and time.monotonic() < self._due_s:
            return
        for part in list(batches(list(self._waiting))):
            try:
                is_taken = self._hand_over(part)
            except (StoreError, UnavailableError) as error:
                is_taken = False
                if error.message != self._said:
                    self._said = error.message
                    log.warning("records wait: %s", error.message)
            if not is_taken:
                self._due_s = time.monotonic() + AGAIN_AFTER_S
                return
            self._said = ""
            self.kept += len(part)
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
    """Keep what is seen until SIGTERM, or for some time.

    Raises
    ------
    StoreError
        The store cannot be opened.
    """
    url = site.store.url or default_url()
    writer = DirectWriter(open_store(url))
    is_file = url.startswith("sqlite")
    outbox = Outbox(_socket_of(site) if is_file else None, writer.write)
    keeper = Keeper(
        every_s=every_s,
        still_open=_known(url, lambda engine: failures(engine, still=True)),
        unfinished=_known(url, lambda engine: jobs(engine, running=True)),
        ended=SlurmEnds(),
    )
    missed = Missed(
        ended=AccountingClient().ended,
        known=lambda cluster, ids: _asked(url, lambda engine: known_jobs(engine, cluster, ids)),
        since={job.cluster: job.submitted_at for job in reversed(_known(url, jobs))},
        every_s=min(LOOK_BACK_EVERY_S, every_s),
    )
    asyncio.run(_run(ClusterFeed(site, prometheus=prometheus), keeper, missed, outbox, for_s))
    log.info("%d records kept", outbox.kept)


def _socket_of(site: SiteConfig) -> Callable[[Sequence[str]], bool]:
    return lambda lines: send_records(site.advisor.socket, lines)


def _known(url: str, read: Callable[[Engine], list[Kept]]) -> list[Kept]:
    """Return what the store has without an end; nothing where it cannot be read."""
    try:
        return _asked(url, read)
    except OpskError:
        return []


def _asked(url: str, read: Callable[[Engine], Answer]) -> Answer:
    """Return what the store answers.

    Raises
    ------
    StoreError
        It does not.
    """
    engine = open_store(url, writing=False)
    try:
        return read(engine)
    finally:
        engine.dispose()


async def _run(feed: ClusterFeed, keeper: Keeper, missed: Missed, outbox: Outbox, for_s: float | None) -> None:
    """Look again and again; the view of the moment counts, however many there were since."""
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

    seeing, looking = asyncio.create_task(see()), asyncio.create_task(look_back())
    end_s = time.monotonic() + for_s if for_s is not None else None
    try:
        while not ends.is_set() and not seeing.done() and (end_s is None or time.monotonic() < end_s):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ends.wait(), LOOK_EVERY_S)
            if last:
                found, late[:] = tuple(late), ()
                await asyncio.to_thread(_keep, last[0], keeper, outbox, found)
        if last:
            outbox.put([*keeper.records(last[0], is_last=True), *late], now=True)
    finally:
        seeing.cancel()
        looking.cancel()
        await asyncio.gather(seeing, looking, return_exceptions=True)
        await feed.close()


def _keep(view: ClusterView, keeper: Keeper, outbox: Outbox, late: Sequence[Record]) -> None:
    outbox.put([*keeper.records(view), *late])

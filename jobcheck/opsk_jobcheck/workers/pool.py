"""Schedules analyses on a pool of worker processes, with priorities and a time limit.

See ``worker``. Requests of slurmctld go first; one user occupies at most all but one worker; a worker that exceeds its
time is killed and replaced. Nothing here blocks the event loop.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from bisect import insort
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from opsk.config import SiteConfig
from opsk.errors import ConfigError
from opsk.units import KIB, MIB
from opsk_jobcheck.submission.protocol import HEADER_BYTES, frame
from opsk_jobcheck.workers.analysis import Analysis, AnalysisRequest, parse_analysis
from opsk_jobcheck.workers.forked_processes import ForkedProcess, ForkServer

START_S = 60.0
COMPUTE_S = 5.0
"""Longest time that one script may occupy a worker."""
MAX_WAITING = 256
RESTART_PAUSE_S = 1.0
READ_BYTES = 64 * KIB
MAX_REPLY_BYTES = 4 * MIB
"""Longer than any advice; a worker that sends more is broken."""

log = logging.getLogger(__name__)


class TooBusyError(Exception):
    """So many questions wait that one more would be answered only after its client's deadline."""


Reply = Mapping[str, Any]


class Worker:
    """One worker process, at the other end of a socket pair; it has one request at a time.

    Parameters
    ----------
    forks
        Starts the process.
    died
        Called when the process ends without a request.
    """

    def __init__(
        self,
        forks: ForkServer,
        site: SiteConfig,
        environment: Mapping[str, str],
        died: Callable[[Worker], None],
    ) -> None:
        self._forks = forks
        self._environment = environment
        self._died = died
        self._site = site
        self._process: ForkedProcess | None = None
        self._socket: socket.socket | None = None
        self._received = bytearray()
        self._unsent = b""
        self._then: Callable[[Reply | None], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Start the process and wait until it is ready.

        Raises
        ------
        ConfigError
            When the site's cluster or fabric cannot be read, or the process does not come up.
        """
        await self.kill()
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                streams = (theirs.fileno(), theirs.fileno())
                self._process = await self._forks.fork("worker", (), self._environment, streams)
        except BaseException as error:
            ours.close()
            if not isinstance(error, OSError):
                raise
            raise ConfigError(f"an advisor worker does not start: {error.strerror or error}") from error
        ours.setblocking(False)
        self._socket = ours
        loop = asyncio.get_running_loop()
        loop.add_reader(ours.fileno(), self._readable)
        ready: asyncio.Future[Reply | None] = loop.create_future()
        try:
            self._ask(self._site.model_dump_json().encode(), START_S, ready.set_result)
            reply = await ready
        except BaseException:
            self._hang_up()
            raise
        if reply is None:
            raise ConfigError("an advisor worker does not start", hint="see the lines above")
        if "error" in reply:
            await self.kill()
            raise ConfigError(str(reply["error"]), hint=str(reply.get("hint", "")))

    @property
    def alive(self) -> bool:
        """Whether the process can take a request."""
        return self._socket is not None

    @property
    def pid(self) -> int | None:
        """Process id, ``None`` before the start."""
        return self._process.pid if self._process else None

    def analyze(self, query: AnalysisRequest, then: Callable[[Analysis | None], None]) -> None:
        """Analyse a script; ``then`` receives the analysis, or ``None`` when the worker failed and was killed."""

        def read(reply: Reply | None) -> None:
            try:
                analysis = None if reply is None else parse_analysis(dict(reply))
            except (KeyError, TypeError) as error:
                log.warning("worker %s sends an invalid answer (%r)", self.pid, error)
                self._hang_up()
                analysis = None
            then(analysis)

        self._ask(json.dumps(query.pack()).encode(), COMPUTE_S, read)

    async def kill(self) -> None:
        """End the process and wait for it."""
        self._hang_up()
        if self._process is not None:
            await self._process.wait()

    def _ask(self, body: bytes, timeout_s: float, then: Callable[[Reply | None], None]) -> None:
        """Send one frame; ``then`` receives the reply, or ``None`` when none arrives in time."""
        self._then = then
        self._timer = asyncio.get_running_loop().call_later(
            timeout_s, self._fail, f"is busy for more than {timeout_s:.0f} s"
        )
        self._received.clear()
        self._send(frame(body))

    def _send(self, data: bytes) -> None:
        """Send what fits now, the rest when there is room."""
        if self._socket is None:
            self._fail("has gone")
            return
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._fail(f"has gone ({error!r})")
            return
        if sent < len(data):
            self._unsent = data[sent:]
            asyncio.get_running_loop().add_writer(self._socket.fileno(), self._writable)

    def _writable(self) -> None:
        """Send the rest."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_writer(self._socket.fileno())
            unsent, self._unsent = self._unsent, b""
            self._send(unsent)

    def _readable(self) -> None:
        """Read a part of a reply, and deliver a complete one."""
        if self._socket is None:
            return
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or self._then is None:
            self._fail("sends data without a request" if data else "has gone")
            return
        self._received += data
        length = int.from_bytes(self._received[:HEADER_BYTES], "big")
        if length > MAX_REPLY_BYTES:
            self._fail("sends too long an answer")
        elif len(self._received) >= HEADER_BYTES + length and len(self._received) >= HEADER_BYTES:
            try:
                reply = dict(json.loads(bytes(self._received[HEADER_BYTES:])))
            except (ValueError, TypeError) as error:
                self._fail(f"sends an invalid answer ({error!r})")
                return
            self._deliver(reply)

    def _deliver(self, reply: Reply | None) -> None:
        """Deliver the reply to its receiver, once."""
        then, self._then = self._then, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if then is not None:
            then(reply)

    def _fail(self, why: str) -> None:
        """Kill a worker that is broken; the pool replaces it."""
        log.warning("worker %s %s, and is replaced", self.pid, why)
        self._hang_up()
        if self._then is None:
            self._died(self)
        else:
            self._deliver(None)

    def _hang_up(self) -> None:
        """Close the socket and end the process."""
        if self._socket is not None:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._socket.fileno())
            loop.remove_writer(self._socket.fileno())
            self._socket.close()
            self._socket, self._unsent = None, b""
        if self._process is not None:
            self._process.kill()


@dataclass(order=True, slots=True)
class _Waiting:
    """A request that waits for a worker: slurmctld's before users', then in order."""

    rank: int
    number: int
    uid: int = field(compare=False)
    query: AnalysisRequest = field(compare=False)
    then: Callable[[Analysis | None, dict[str, float]], None] = field(compare=False)
    began: float = field(compare=False)


class WorkerPool:
    """A fixed number of workers for one site configuration.

    Parameters
    ----------
    forks
        Starts them.
    environment
        Variables of the workers in addition to the advisor's own.
    """

    def __init__(self, site: SiteConfig, forks: ForkServer, *, environment: Mapping[str, str]) -> None:
        self._workers = [Worker(forks, site, environment, self._died_idle) for _ in range(site.advisor.workers)]
        self._idle: list[Worker] = []
        self._waiting: list[_Waiting] = []
        self._busy_for: Counter[int] = Counter()
        self._number = 0
        self._short_from = site.advisor.short_advice_from
        self._repairs: set[asyncio.Task[None]] = set()
        self._closed = False

    async def start(self) -> None:
        """Start all workers.

        Raises
        ------
        ConfigError
            When the first that fails cannot start; none is left running then.
        """
        try:
            for worker in self._workers:
                await worker.start()
                self._idle.append(worker)
        except BaseException:
            await self.close()
            raise

    @property
    def is_crowded(self) -> bool:
        """Whether so many requests wait for a worker that the next is answered without slow parts."""
        return 0 < self._short_from <= len(self._waiting)

    def analyze(
        self,
        query: AnalysisRequest,
        *,
        uid: int,
        then: Callable[[Analysis | None, dict[str, float]], None],
        first: bool = False,
    ) -> None:
        """Have a worker analyse a script once one is idle.

        Parameters
        ----------
        then
            Receives the analysis, ``None`` when the worker failed, and how long it waited (``queue_ms``) and took
            (``think_ms``); never after the pool was closed.

        Raises
        ------
        TooBusyError
            When too many requests wait.
        """
        if len(self._waiting) >= MAX_WAITING:
            raise TooBusyError
        self._number += 1
        insort(self._waiting, _Waiting(0 if first else 1, self._number, uid, query, then, time.monotonic()))
        self._dispatch()

    async def close(self) -> None:
        """End all workers."""
        self._closed = True
        self._waiting.clear()
        for task in self._repairs:
            task.cancel()
        await asyncio.gather(*(worker.kill() for worker in self._workers), return_exceptions=True)

    def _dispatch(self) -> None:
        """Assign idle workers to waiting requests, leaving one worker to others than the busiest user."""
        max_busy = max(1, len(self._workers) - 1)
        for waiting in tuple(self._waiting):
            if not self._idle:
                return
            if waiting.rank and self._busy_for[waiting.uid] >= max_busy:
                continue
            self._waiting.remove(waiting)
            self._busy_for[waiting.uid] += 1
            worker = self._idle.pop()
            query = replace(waiting.query, is_hurried=True) if self.is_crowded else waiting.query
            worker.analyze(query, partial(self._take_result, waiting, worker, time.monotonic()))

    def _take_result(self, waiting: _Waiting, worker: Worker, started: float, analysis: Analysis | None) -> None:
        """Deliver the result of an analysis, and assign its worker to the next."""
        if self._closed:
            return
        timing = {"queue_ms": _ms(started - waiting.began), "think_ms": _ms(time.monotonic() - started)}
        self._busy_for[waiting.uid] -= 1
        if not self._busy_for[waiting.uid]:
            del self._busy_for[waiting.uid]
        if worker.alive:
            self._idle.append(worker)
            self._dispatch()
        else:
            self._replace(worker)
        waiting.then(analysis, timing)

    def _died_idle(self, worker: Worker) -> None:
        """Replace an idle worker that ended."""
        if worker in self._idle and not self._closed:
            self._idle.remove(worker)
            self._replace(worker)

    def _replace(self, worker: Worker) -> None:
        """Restart a dead worker in the background."""
        task = asyncio.get_running_loop().create_task(self._repair(worker))
        self._repairs.add(task)
        task.add_done_callback(self._repairs.discard)

    async def _repair(self, worker: Worker) -> None:
        """Restart a dead worker, until it is ready."""
        while not self._closed:
            try:
                await worker.start()
            except ConfigError as error:
                log.error("%s", error.message)  # noqa: TRY400 - the worker has printed its own traceback
                await asyncio.sleep(RESTART_PAUSE_S)
                continue
            self._idle.append(worker)
            self._dispatch()
            return


def _ms(seconds: float) -> float:
    """Return milliseconds as the audit log writes them."""
    return round(seconds * 1e3, 3)

"""Shares one GPU source among several collectors, and bounds the time that they wait for a driver that hangs.

One thread calls the driver; a caller waits for the reading for a bounded time. A driver that hangs blocks only that
thread: it gets no new request until it has answered, and callers fail at once. A reading that is younger than a second
is reused: the collectors of one scrape share it. `SharedGpus.close` ends the thread, which releases the driver.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as WaitTimeoutError

from opsk.errors import OpskError, TelemetryError
from opsk.telemetry import background_reader as background
from opsk.telemetry.gpu.samples import GpuReading, GpuSource

DEFAULT_PATIENCE_S = 3.0
DEFAULT_FRESH_S = 0.8


class SharedGpus:
    """A ``GpuSource`` that always answers within a bounded time.

    Parameters
    ----------
    source
        The source; only one thread ever calls it.
    patience_s
        How long a caller waits for a reading [s].
    fresh_s
        A reading is reused until it is this old [s].
    clock
        Monotonic seconds.
    """

    def __init__(
        self,
        source: GpuSource,
        *,
        patience_s: float = DEFAULT_PATIENCE_S,
        fresh_s: float = DEFAULT_FRESH_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._patience_s = patience_s
        self._fresh_s = fresh_s
        self._clock = clock
        self._lock = threading.Lock()
        self._requested = threading.Semaphore(0)
        self._run: Future[GpuReading] | None = None
        self._run_began_at = 0.0
        self._last: GpuReading | OpskError | None = None
        self._last_at = 0.0
        self._thread: threading.Thread | None = None
        self._closed = False

    def gpus(self) -> GpuReading:
        """Return a reading that is not older than ``fresh_s``, within ``patience_s``.

        Raises
        ------
        GpuDriverMissingError
            There is nothing to read on this node.
        TelemetryError
            The driver fails, or has not answered yet.
        """
        with self._lock:
            if self._last is not None and self._clock() - self._last_at < self._fresh_s:
                return _return_or_raise(self._last)
            run = self._run or self._begin()
            remaining = self._run_began_at + self._patience_s - self._clock()
        try:
            return run.result(timeout=max(0.0, remaining))
        except WaitTimeoutError:
            waited_s = self._clock() - self._run_began_at
            raise TelemetryError(
                f"the GPU driver has not answered for {waited_s:.0f} s",
                hint="see the kernel log for Xid lines; nvidia-smi on the node will hang likewise",
            ) from None
        finally:
            del run  # an error that it holds would hold this frame, and so itself

    def close(self) -> None:
        """Stop reading: the thread releases the driver and ends, at once or when the driver has answered."""
        with self._lock:
            self._closed = True
            self._requested.release()

    def _begin(self) -> Future[GpuReading]:
        """Request a reading from the thread, which the first request starts."""
        if self._closed:
            raise TelemetryError("the GPUs are not read any more")
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="gpus", daemon=True)
            self._thread.start()
        run = self._run = Future()
        self._run_began_at = self._clock()
        self._requested.release()
        return run

    def _work(self) -> None:
        """Read whenever a reading is requested, until closed."""
        while self._requested.acquire() and not self._closed:
            outcome: GpuReading | OpskError
            try:
                outcome = self._source.gpus()
            except OpskError as error:
                outcome = error
            except Exception as error:  # noqa: BLE001 - the callers get the error; the thread must go on
                outcome = TelemetryError(f"reading the GPUs failed: {type(error).__name__}: {error}")
            with self._lock:
                run, self._run = self._run, None
                self._last, self._last_at = outcome, self._clock()
            if run is None:
                continue
            if isinstance(outcome, OpskError):
                run.set_exception(outcome)
            else:
                run.set_result(outcome)
        with contextlib.suppress(Exception):
            background.close(self._source)


def _return_or_raise(outcome: GpuReading | OpskError) -> GpuReading:
    """Return a reading, or raise the error of the run."""
    try:
        if isinstance(outcome, OpskError):
            raise outcome.with_traceback(None)
        return outcome
    finally:
        del outcome  # likewise

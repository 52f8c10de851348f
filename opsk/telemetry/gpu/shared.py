"""How do several collectors read the same GPUs, when the driver may never answer?

One thread of its own asks the driver; whoever wants a reading waits for it, but only so long. A driver that hangs
keeps that one thread: it is asked nothing new until it has answered, and callers are told at once that it hangs. A
reading that is younger than a second is handed out again: the collectors of one scrape share it. The thread ends, and
lets the driver go, with `SharedGpus.close`.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as WaitTimeoutError

from opsk.errors import OpskError, TelemetryError
from opsk.telemetry import background
from opsk.telemetry.gpu.samples import GpuReading, GpuSource

DEFAULT_PATIENCE_S = 3.0
DEFAULT_FRESH_S = 0.8


class SharedGpus:
    """A ``GpuSource`` that always answers in time.

    Parameters
    ----------
    source
        What is read; only one thread ever calls it.
    patience_s
        How long a caller waits for a reading [s].
    fresh_s
        A reading is handed out again until it is this old [s].
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
        self._wanted = threading.Semaphore(0)
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
                return _given(self._last)
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
        """Read no more: the thread lets the driver go and ends, at once or when the driver has answered."""
        with self._lock:
            self._closed = True
            self._wanted.release()

    def _begin(self) -> Future[GpuReading]:
        """Ask the thread for a reading, and start the thread at the first."""
        if self._closed:
            raise TelemetryError("the GPUs are not read any more")
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="gpus", daemon=True)
            self._thread.start()
        run = self._run = Future()
        self._run_began_at = self._clock()
        self._wanted.release()
        return run

    def _work(self) -> None:
        """Read whenever somebody wants a reading, until closed."""
        while self._wanted.acquire() and not self._closed:
            outcome: GpuReading | OpskError
            try:
                outcome = self._source.gpus()
            except OpskError as error:
                outcome = error
            except Exception as error:  # noqa: BLE001 - whoever waits must be told; the thread must live on
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


def _given(outcome: GpuReading | OpskError) -> GpuReading:
    """Return a reading, or raise what was raised instead of one."""
    try:
        if isinstance(outcome, OpskError):
            raise outcome.with_traceback(None)
        return outcome
    finally:
        del outcome  # likewise

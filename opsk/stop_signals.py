"""Waits until SIGTERM or SIGINT tells this process to end."""

from __future__ import annotations

import contextlib
import faulthandler
import select
import signal
import socket
import time

_NUMBERS = (signal.SIGTERM, signal.SIGINT)
_TRACEBACK_SHARE = 0.8
"""Share of the time to end after which the process prints what its threads wait for."""


class StopSignals:
    """Takes SIGTERM and SIGINT from now on; only the main thread may create one.

    A handler that sets a `threading.Event` is no replacement: where the signal arrives while the event's own lock is
    held, the handler waits for the thread that it interrupted, for ever. Here the interpreter writes the number of the
    signal to a socket (`signal.set_wakeup_fd`), whichever thread the kernel gave the signal to.

    Parameters
    ----------
    ends_within_s
        From the first signal on, the process has so long to end [s]; no limit where ``None``. Then the kernel ends it,
        by SIGALRM: neither a thread that hangs in a driver nor a lock that it holds can prevent that, not even while
        the interpreter ends. Shortly before, the process prints to stderr what its threads wait for.
    """

    def __init__(self, ends_within_s: float | None = None) -> None:
        self._arrived, self._written = socket.socketpair()
        for end in (self._arrived, self._written):
            end.setblocking(False)
        self._has_stopped = False
        self._ends_within_s = ends_within_s
        signal.set_wakeup_fd(self._written.fileno(), warn_on_full_buffer=False)
        for number in _NUMBERS:
            signal.signal(number, lambda *_: self._limit_end())

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for a signal, at most ``timeout_s`` [s]; return whether one has arrived, now or before."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._has_stopped:
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([self._arrived], [], [], left_s)[0]:
                return False
            self._has_stopped = any(number in _NUMBERS for number in self._arrived.recv(64))
        return True

    def _limit_end(self) -> None:
        """Let the kernel end the process where it does not end in time; a second signal gives no more time."""
        limit_s, self._ends_within_s = self._ends_within_s, None
        if limit_s is None:
            return
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
        signal.setitimer(signal.ITIMER_REAL, limit_s)
        with contextlib.suppress(OSError, ValueError, AttributeError, RuntimeError):  # stderr may be closed, or no file
            faulthandler.dump_traceback_later(_TRACEBACK_SHARE * limit_s)

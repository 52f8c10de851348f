"""Waits until SIGTERM or SIGINT tells this process to end."""

from __future__ import annotations

import select
import signal
import socket
import time

_NUMBERS = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Takes SIGTERM and SIGINT from now on; only the main thread may create one.

    A handler that sets a `threading.Event` is no replacement: where the signal arrives while the event's own lock is
    held, the handler waits for the thread that it interrupted, for ever. Here the interpreter writes the number of the
    signal to a socket (`signal.set_wakeup_fd`), whichever thread the kernel gave the signal to.
    """

    def __init__(self) -> None:
        self._arrived, self._written = socket.socketpair()
        for end in (self._arrived, self._written):
            end.setblocking(False)
        self._has_stopped = False
        signal.set_wakeup_fd(self._written.fileno(), warn_on_full_buffer=False)
        for number in _NUMBERS:
            signal.signal(number, lambda *_: None)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for a signal, at most ``timeout_s`` [s]; return whether one has arrived, now or before."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._has_stopped:
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([self._arrived], [], [], left_s)[0]:
                return False
            self._has_stopped = any(number in _NUMBERS for number in self._arrived.recv(64))
        return True

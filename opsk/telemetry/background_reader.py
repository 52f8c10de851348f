"""Reads a source that may be slow or hang in a background thread, so that callers wait for a bounded time.

Each source has one thread, which reads it on demand and optionally at an interval. Callers get the last result, its
age, and why there is no newer one. A read that hangs in the kernel is left alone until it returns.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

T = TypeVar("T")


def close(source: object) -> None:
    """Close a source if it has a method ``close``."""
    end = getattr(source, "close", None)
    if end is not None:
        end()


@dataclass(frozen=True, slots=True, kw_only=True)
class Latest(Generic[T]):
    """The last result of a source.

    Parameters
    ----------
    value
        Its last value; ``None`` before the first.
    age_s
        How long ago that read finished [s].
    error
        Why the last finished read failed; ``None`` when it succeeded.
    hanging_s
        How long the read under way has been going on [s]; ``None`` between reads.
    """

    value: T | None = None
    age_s: float | None = None
    error: Exception | None = None
    hanging_s: float | None = None

    @property
    def fresh_value(self) -> T | None:
        """The value if the requested read finished; ``None`` where it failed or hangs."""
        return self.value if self.error is None and self.hanging_s is None else None


class Background(Generic[T]):
    """Reads one source in a thread of its own, one read at a time.

    Parameters
    ----------
    name
        Name of the thread.
    read
        Reads the source once.
    every_s
        Read at this interval after the first request [s]; only on request when ``None``.
    clock
        Monotonic seconds.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[], T],
        every_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._read = read
        self._every_s = every_s
        self._clock = clock
        self._changed = threading.Condition()
        self._requested = False
        self._closed = False
        self._thread: threading.Thread | None = None
        self._began: float | None = None
        self._finished = 0
        self._value: T | None = None
        self._value_at: float | None = None
        self._error: Exception | None = None

    def refresh(self, wait_s: float) -> Latest[T]:
        """Request another read, wait at most this long for it, and return the last result."""
        with self._changed:
            before = self._finished
            self._request()
            self._changed.wait_for(lambda: self._closed or self._finished != before, timeout=wait_s)
            # A read for another caller may have started meanwhile: that one does not hang.
            return replace(self._latest(), hanging_s=None) if self._finished != before else self._latest()

    def latest(self, first_wait_s: float = 0.0) -> Latest[T]:
        """Return the last result; the first caller waits at most this long for the first result."""
        with self._changed:
            if not self._finished:
                self._request()
                self._changed.wait_for(lambda: self._closed or self._finished != 0, timeout=first_wait_s)
            return self._latest()

    def close(self) -> None:
        """Read no more, and end the thread: at once, or when the read under way returns."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _request(self) -> None:
        """Request a read; the first request starts the thread."""
        if self._closed:
            return
        self._requested = True
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _latest(self) -> Latest[T]:
        """Return the current state."""
        now = self._clock()
        return Latest(
            value=self._value,
            age_s=None if self._value_at is None else now - self._value_at,
            error=self._error,
            hanging_s=None if self._began is None else now - self._began,
        )

    def _work(self) -> None:
        """Read on every request and at every interval, until closed."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._requested, timeout=self._every_s)
                if self._closed:
                    return
                self._requested = False
                self._began = self._clock()
            value, error = self._read_once()
            with self._changed:
                self._began, self._error = None, error
                self._finished += 1
                if error is None:
                    self._value, self._value_at = value, self._clock()
                self._changed.notify_all()

    def _read_once(self) -> tuple[T | None, Exception | None]:
        """Read once; whatever a source raises is returned, so that the thread goes on."""
        try:
            return self._read(), None
        except Exception as error:  # noqa: BLE001 - passed to the callers
            return None, error

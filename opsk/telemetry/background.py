"""How is a source read that may take long or hang, so that who asks never waits for it longer than he wants to?

One thread for each source reads it, on demand and, where wanted, every so often. Who asks gets the last answer, how old
it is, and why there is no newer one. A read that hangs in the kernel is left where it is until it returns.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

T = TypeVar("T")


def close(source: object) -> None:
    """Let a source go that can be let go, whatever it is."""
    end = getattr(source, "close", None)
    if end is not None:
        end()


@dataclass(frozen=True, slots=True, kw_only=True)
class Latest(Generic[T]):
    """What is known of a source.

    Parameters
    ----------
    value
        Its last answer; ``None`` before the first.
    age_s
        How long ago that answer was complete [s].
    error
        Why the last finished read gave none; ``None`` when it did.
    hanging_s
        How long the read under way has been going on [s]; ``None`` between reads.
    """

    value: T | None = None
    age_s: float | None = None
    error: Exception | None = None
    hanging_s: float | None = None

    @property
    def in_time(self) -> T | None:
        """The answer if it came when it was asked for; ``None`` where that read failed or hangs."""
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
        Read this often without being asked, once somebody has asked [s]; never when ``None``.
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
        self._wanted = False
        self._closed = False
        self._thread: threading.Thread | None = None
        self._began: float | None = None
        self._finished = 0
        self._value: T | None = None
        self._value_at: float | None = None
        self._error: Exception | None = None

    def fresh(self, wait_s: float) -> Latest[T]:
        """Read once more, wait at most so long for it, and return what is known then."""
        with self._changed:
            before = self._finished
            self._ask()
            self._changed.wait_for(lambda: self._closed or self._finished != before, timeout=wait_s)
            # Somebody else may have asked meanwhile, and been begun for: that is no hanging.
            return replace(self._latest(), hanging_s=None) if self._finished != before else self._latest()

    def latest(self, first_wait_s: float = 0.0) -> Latest[T]:
        """Return what is known; who asks first waits at most so long for the first answer."""
        with self._changed:
            if not self._finished:
                self._ask()
                self._changed.wait_for(lambda: self._closed or self._finished != 0, timeout=first_wait_s)
            return self._latest()

    def close(self) -> None:
        """Read no more, and end the thread: at once, or when the read under way returns."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _ask(self) -> None:
        """Have the source read, by a thread that begins with the first question."""
        if self._closed:
            return
        self._wanted = True
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _latest(self) -> Latest[T]:
        """Return what is known now."""
        now = self._clock()
        return Latest(
            value=self._value,
            age_s=None if self._value_at is None else now - self._value_at,
            error=self._error,
            hanging_s=None if self._began is None else now - self._began,
        )

    def _work(self) -> None:
        """Read whenever somebody asks, or it is time, until closed."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._wanted, timeout=self._every_s)
                if self._closed:
                    return
                self._wanted = False
                self._began = self._clock()
            value, error = self._attempt()
            with self._changed:
                self._began, self._error = None, error
                self._finished += 1
                if error is None:
                    self._value, self._value_at = value, self._clock()
                self._changed.notify_all()

    def _attempt(self) -> tuple[T | None, Exception | None]:
        """Read once; however a source fails, its thread lives on and tells."""
        try:
            return self._read(), None
        except Exception as error:  # noqa: BLE001 - handed to whoever asks
            return None, error

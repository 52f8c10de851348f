"""Samples resident memory and open files of opsk's processes every few seconds, to see what grows."""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from opsk.lab.processes import Process
from tests.soak.daemons import Daemons

EVERY_S = 3.0
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MAY_GROW = 1.15
MAY_GROW_BYTES = 12 << 20
MAY_GROW_FILES = 6
WARM_S = 60.0
"""What a process takes up in its first minute is no leak: caches fill, modules load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One process at one time."""

    at_s: float
    rss_bytes: int
    files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """What a process took at first and at last, in the middle of some looks each."""

    name: str
    pid: int
    looks: int
    lived_s: float
    rss_bytes: tuple[int, int]
    files: tuple[int, int]

    @property
    def is_flat(self) -> bool:
        """Whether it has not grown more than a process may that does new things."""
        (first, last), (few, many) = self.rss_bytes, self.files
        return last <= first * MAY_GROW + MAY_GROW_BYTES and many <= few + MAY_GROW_FILES


@dataclass(slots=True)
class Gauges:
    """Looks at daemons of opsk's and at what they have started."""

    daemons: Daemons
    watched: Sequence[str]
    looks: dict[tuple[str, int], list[Look]] = field(default_factory=dict)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def watch(self) -> None:
        """Begin to look."""
        self._thread = threading.Thread(target=self._look, name="gauges", daemon=True)
        self._thread.start()

    def leave(self) -> None:
        """Look no more."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def growths(self) -> list[Growth]:
        """Return how each process grew that lived long enough for it."""
        found = []
        for (name, pid), looks in sorted(self.looks.items()):
            warm = [look for look in looks if look.at_s - looks[0].at_s >= WARM_S]
            if len(warm) < 9:
                continue
            part = max(len(warm) // 4, 3)
            first, last = warm[:part], warm[-part:]
            found.append(Growth(
                name=name, pid=pid, looks=len(looks), lived_s=round(looks[-1].at_s - looks[0].at_s, 1),
                rss_bytes=(_middle(first, "rss_bytes"), _middle(last, "rss_bytes")),
                files=(_middle(first, "files"), _middle(last, "files")),
            ))  # fmt: skip
        return found

    def _look(self) -> None:
        while not self._stopped.wait(EVERY_S):
            for name in self.watched:
                process = self.daemons.process(name)
                if process is not None:
                    self._look_at(name, process)

    def _look_at(self, name: str, process: Process) -> None:
        rows = {process.pid: name}
        if name == "advisor":
            rows |= {pid: f"{name}: {_kind(line)}" for pid, line in self.daemons.children(name).items()}
        for pid, shown in rows.items():
            with suppress(OSError, IndexError, ValueError):
                resident = int((Path("/proc") / str(pid) / "statm").read_text().split()[1])
                files = len(list((Path("/proc") / str(pid) / "fd").iterdir()))
                look = Look(at_s=time.monotonic(), rss_bytes=resident * PAGE_BYTES, files=files)
                self.looks.setdefault((shown, pid), []).append(look)


def _kind(line: str) -> str:
    for word, kind in (
        ("opsk worker", "worker"),
        ("opsk watcher", "watcher"),
        ("fork_server", "fork server"),
        ("recorder", "writer of records"),
    ):
        if word in line:
            return kind
    return line[:40]


def _middle(looks: Sequence[Look], what: str) -> int:
    return int(statistics.median(getattr(look, what) for look in looks))

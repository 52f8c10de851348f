"""Whose is a job, where the advisor's unit has no way to Slurm? As opsk-watcher hands it over, in its folder.

The recorder asks seldom, and about jobs that have just begun as well. The watcher asks Slurm only while somebody wants
to know; so who asks here says that he does, and waits a moment where what lies there is old.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from opsk.errors import InputError
from opsk.slurm.snapshot import LARGEST_BYTES, Snapshot, SnapshotReader
from opsk_jobcheck.cluster_state.snapshots import SNAPSHOT, WANTED

LOOK_EVERY_S = 0.5
GRACE_S = 5.0
"""How much later than its interval the watcher's next answer may come."""


class HandedJobs:
    """What the watcher knows of jobs.

    Parameters
    ----------
    folder
        The site's ``live_folder``; without one nothing is known.
    interval_s
        How often the watcher asks Slurm at most.
    clock
        Seconds since 1970.
    """

    def __init__(
        self,
        folder: Path | None,
        interval_s: float,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._folder = folder
        self._patience_s = interval_s + GRACE_S
        self._clock = clock
        self._sleep = sleep
        self._reader = SnapshotReader()
        self._seen: tuple[int, int] | None = None
        self._last: Snapshot | None = None
        self._users: dict[str, str] = {}

    def user_of(self, job: str) -> str | None:
        """Return the name of a job's user; ``None`` where the watcher knows no such job, or there is none."""
        if self._folder is None:
            return None
        begun_s = self._clock()
        self._look()
        while job not in self._users and self._is_old(begun_s) and self._clock() - begun_s < self._patience_s:
            self._sleep(LOOK_EVERY_S)
            self._look()
        return self._users.get(job)

    def cluster(self) -> str:
        """Return what the cluster is called; empty where that is not known."""
        self._look()
        return self._last.cluster if self._last is not None else ""

    def _is_old(self, now_s: float) -> bool:
        """Tell whether there is something to wait for: a watcher whose last answer came before."""
        return self._last is not None and now_s - self._last.taken_at_s > self._patience_s

    def _look(self) -> None:
        """Say that somebody wants to know, and read what has changed."""
        if self._folder is None:
            return
        path = self._folder / SNAPSHOT
        with suppress(OSError):
            (self._folder / WANTED).touch(mode=0o600)
        with suppress(OSError, InputError):
            facts = path.stat()
            seen = (facts.st_mtime_ns, facts.st_ino)
            if seen == self._seen or facts.st_size > LARGEST_BYTES:
                return
            self._seen = seen
            self._last = self._reader.read(path.read_bytes())
            self._users = {
                name: each.user for each in self._last.jobs for name in (str(each.id), each.label) if each.user
            }

"""Looks up the owners of jobs in the files that opsk-watcher writes, where the advisor's unit cannot reach Slurm.

The recorder looks up owners rarely, also those of jobs that have just started. The watcher asks Slurm only while a
reader has requested it; so a lookup first requests a new snapshot, and waits for a moment where the present one is old.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from opsk.errors import InputError
from opsk.slurm.snapshot import MAX_BYTES, Snapshot, SnapshotReader
from opsk_jobcheck.cluster_state.snapshots import REQUEST_FILE, SNAPSHOT

LOOK_EVERY_S = 0.5
GRACE_S = 5.0
"""How much later than its interval the watcher's next answer may come."""


class WatcherJobs:
    """The jobs that the watcher knows.

    Parameters
    ----------
    folder
        The site's ``live_folder``; without one nothing is known.
    interval_s
        The watcher's shortest interval between queries of Slurm.
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
        self._file_stamp: tuple[int, int] | None = None
        self._last: Snapshot | None = None
        self._users: dict[str, str] = {}

    def user_of(self, job: str) -> str | None:
        """Return the name of a job's user; ``None`` where the watcher does not know the job, or there is no watcher."""
        if self._folder is None:
            return None
        started_s = self._clock()
        self._refresh()
        while job not in self._users and self._is_old(started_s) and self._clock() - started_s < self._patience_s:
            self._sleep(LOOK_EVERY_S)
            self._refresh()
        return self._users.get(job)

    def cluster(self) -> str:
        """Return the name of the cluster; empty where it is unknown."""
        self._refresh()
        return self._last.cluster if self._last is not None else ""

    def _is_old(self, now_s: float) -> bool:
        """Return whether waiting helps: there is a watcher whose last answer is old."""
        return self._last is not None and now_s - self._last.taken_at_s > self._patience_s

    def _refresh(self) -> None:
        """Request a snapshot, and read the present one where it has changed."""
        if self._folder is None:
            return
        path = self._folder / SNAPSHOT
        with suppress(OSError):
            (self._folder / REQUEST_FILE).touch(mode=0o600)
        with suppress(OSError, InputError):
            facts = path.stat()
            stamp = (facts.st_mtime_ns, facts.st_ino)
            if stamp == self._file_stamp or facts.st_size > MAX_BYTES:
                return
            self._file_stamp = stamp
            self._last = self._reader.read(path.read_bytes())
            self._users = {name: job.user for job in self._last.jobs for name in (str(job.id), job.label) if job.user}

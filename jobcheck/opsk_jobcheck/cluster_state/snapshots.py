"""Asks Slurm once for all jobs and nodes on behalf of everybody on a host, in a process of its own.

It asks only while a request was made within the last half minute, which the advisor signals by touching a file, and at
most once per interval, however many readers there are. Slurm's answer is one file, replaced atomically. The process
ends when its standard input closes, so it does not outlive the advisor. `WatcherJobs` looks up the owners of jobs in
that file, where the advisor's unit cannot reach Slurm.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pwd
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from opsk.errors import InputError, OpskError
from opsk.slurm.client import SlurmClient
from opsk.slurm.commands.command import CommandClient
from opsk.slurm.snapshot import MAX_BYTES, Snapshot, SnapshotReader, pack, parse_private_data

SNAPSHOT, REQUEST_FILE = "cluster", "wanted"
"""Files in the folder: Slurm's last answer, and the one whose time is the time of the last request."""
REQUEST_VALID_S = 30.0
LOOK_EVERY_S = 0.2
CONFIG_EVERY_S = 600.0
"""Slurm's own configuration changes rarely; it includes what is hidden from users."""
SHARE_OF_TIME = 0.1
"""The largest share of the time that is spent on queries: a slow controller is queried less often."""
MAX_PAUSE_S = 60.0
"""Users watch screens: a controller that is back is noticed soon."""
QUESTION_DEADLINE_S = 10.0
NICENESS = 10

log = logging.getLogger(__name__)

RECHECK_EVERY_S = 0.5
GRACE_S = 5.0
"""How much later than its interval the watcher's next answer may come."""


@dataclass(slots=True, kw_only=True)
class SnapshotPoller:
    """Queries everything from Slurm, and holds its last answer.

    Parameters
    ----------
    slurm
        The Slurm client.
    clock
        Seconds since 1970.
    interval_s
        Shortest time between two queries [s].
    """

    slurm: SlurmClient
    clock: Callable[[], float]
    interval_s: float
    last: Snapshot = field(default_factory=lambda: Snapshot(taken_at_s=0.0))
    _queried_at_s: float = float("-inf")
    _took_s: float = 0.0
    _failures: int = 0
    _config_at_s: float = float("-inf")

    def is_due(self) -> bool:
        """Return whether Slurm may be queried again."""
        pause_s = max(self.interval_s, self._took_s / SHARE_OF_TIME) * 2.0 ** min(self._failures, 8)
        since_s = self.clock() - self._queried_at_s
        return since_s >= min(pause_s, max(MAX_PAUSE_S, self.interval_s)) or since_s < 0

    def ask(self) -> Snapshot:
        """Query once; where Slurm does not answer, the last answer stays, with the reason."""
        started_s = self._queried_at_s = self.clock()
        try:
            if started_s - self._config_at_s > CONFIG_EVERY_S or not self.last.taken_at_s:
                self._read_config(started_s)
            jobs = self.slurm.jobs(details=True)
            nodes = self.slurm.nodes()
            self.last = replace(self.last, jobs=jobs, nodes=nodes, taken_at_s=self.clock(), problem="", hint="")
            self._failures = 0
        except OpskError as error:
            self._failures += 1
            self.last = replace(self.last, problem=error.message, hint=error.hint)
        finally:
            self._took_s = max(0.0, self.clock() - started_s)
        return self.last

    def _read_config(self, now_s: float) -> None:
        """Read what Slurm hides from users, before any data is passed to them."""
        config = self.slurm.config()
        self.last = replace(
            self.last,
            private=parse_private_data(config),
            cluster=config.get("ClusterName", ""),
            release=self.slurm.release(),
        )
        self._config_at_s = now_s


def look_up_uid(user: str) -> int | None:
    """Return a user's uid; ``None`` where this host knows no such user."""
    try:
        return pwd.getpwnam(user).pw_uid
    except (KeyError, ValueError):
        return int(user) if user.isdecimal() and len(user) < 10 else None


def poll_on_request(poller: SnapshotPoller, folder: Path, *, is_over: Callable[[float], bool]) -> None:
    """Query Slurm whenever there is a request and it is due, until the end.

    Parameters
    ----------
    is_over
        Waits for so long [s] and returns whether to end.
    """
    while not is_over(LOOK_EVERY_S):
        if is_requested(folder) and poller.is_due():
            try:
                _write_snapshot(poller.ask(), folder)
            except OSError as error:  # the folder is gone with an advisor that was killed, or its disk is full
                log.warning("the snapshot of jobs and nodes cannot be written: %s", error)
            except Exception:
                log.exception("jobs and nodes are not known")


def is_requested(folder: Path) -> bool:
    """Return whether there was a request a short while ago."""
    try:
        age_s = time.time() - (folder / REQUEST_FILE).stat().st_mtime
    except OSError:
        return False
    return -REQUEST_VALID_S < age_s < REQUEST_VALID_S


def _write_snapshot(snapshot: Snapshot, folder: Path) -> None:
    """Replace the snapshot file."""
    draft = folder / f".{SNAPSHOT}.{os.getpid()}"
    draft.write_bytes(pack(snapshot, look_up_uid).to_bytes())
    draft.chmod(0o600)
    draft.replace(folder / SNAPSHOT)


def main(folder: Path, interval_s: float) -> None:
    """Poll for the advisor that has started this process."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    threading.Thread(target=_end_with_input, daemon=True).start()
    run_service(folder, interval_s)


def run_service(folder: Path, interval_s: float) -> None:
    """Poll until this process is ended."""
    poller = SnapshotPoller(slurm=CommandClient(deadline_s=QUESTION_DEADLINE_S), clock=time.time, interval_s=interval_s)
    poll_on_request(poller, folder, is_over=_pause)


def _pause(pause_s: float) -> bool:
    """Wait; the process is ended here."""
    time.sleep(pause_s)
    return False


def _end_with_input() -> None:
    """End this process when the advisor has ended."""
    while os.read(0, 4096):
        pass
    os._exit(0)


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

    def find_user(self, job: str) -> str | None:
        """Return the name of a job's user; ``None`` where the watcher does not know the job, or there is no watcher."""
        if self._folder is None:
            return None
        started_s = self._clock()
        self._refresh()
        while job not in self._users and self._is_old(started_s) and self._clock() - started_s < self._patience_s:
            self._sleep(RECHECK_EVERY_S)
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


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="opsk advisor: %(levelname)s %(message)s")
    main(Path(sys.argv[1]), float(sys.argv[2]))

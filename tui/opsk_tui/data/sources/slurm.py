"""Reads jobs and nodes from Slurm, through this host's advisor or else with the user's own rights.

Without an advisor the screens of a user share one answer through a file and a lock: the file is the user's own, in
their runtime folder, and nobody else may read it. The first reader that finds it too old takes the lock and asks Slurm;
the others wait.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from opsk.errors import InputError, OpskError, SlurmError
from opsk.slurm.client import SlurmClient
from opsk.slurm.snapshot import MAX_BYTES, Snapshot, SnapshotReader, pack
from opsk_tui.data.sources.advisor import ask_cluster

LOCK_WITHIN_S = 30.0
_WAIT_S = 0.1
DIRECTLY = "asked directly"


def find_runtime_folder(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return a folder that only this user may enter; ``None`` where none can be created.

    ``XDG_RUNTIME_DIR`` where there is one, which is never on a network; else one in the folder for temporary files.
    """
    runtime = environ.get("XDG_RUNTIME_DIR")
    path = Path(runtime) / "opsk" if runtime else Path(tempfile.gettempdir()) / f"opsk-{os.getuid()}"
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        facts = path.lstat()
    except OSError:
        return None
    is_private = stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid() and not facts.st_mode & 0o077
    return path if is_private else None


class SharedSnapshot:
    """The file of one cluster.

    Parameters
    ----------
    folder
        A folder of this user alone.
    slurm
        The Slurm client.
    interval_s
        Shortest time between queries of Slurm [s].
    """

    def __init__(
        self,
        folder: Path | None,
        slurm: SlurmClient,
        interval_s: float,
        *,
        environ: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.time,
    ) -> None:
        which = hashlib.sha256(environ.get("SLURM_CONF", "").encode()).hexdigest()[:12]
        self._path = folder / f"slurm-{which}" if folder is not None else None
        self._slurm = slurm
        self._interval_s = interval_s
        self._clock = clock
        self._name = ""
        self._release: tuple[int, ...] = ()

    def read(self) -> bytes:
        """Return a snapshot that is no older than the interval, as bytes.

        Raises
        ------
        SlurmError
            Slurm does not answer, or another program of this user has held the lock for long.
        """
        if self._path is None:
            return self._ask_slurm()
        content = self._read_fresh(self._path)
        if content is not None:
            return content
        with _hold_lock(self._path.with_suffix(".lock")):
            content = self._read_fresh(self._path)
            if content is None:
                content = self._ask_slurm()
                draft = self._path.with_suffix(f".{os.getpid()}")
                with contextlib.suppress(OSError):
                    draft.touch(mode=0o600)
                    draft.write_bytes(content)
                    draft.replace(self._path)
            return content

    def _read_fresh(self, path: Path) -> bytes | None:
        try:
            facts = path.stat()
            age_s = self._clock() - facts.st_mtime
            if facts.st_uid != os.getuid() or not -1.0 < age_s < self._interval_s or facts.st_size > MAX_BYTES:
                return None
            return path.read_bytes()
        except OSError:
            return None

    def _ask_slurm(self) -> bytes:
        jobs, nodes = self._slurm.jobs(details=True), self._slurm.nodes()
        if not self._name:
            self._release = self._slurm.release()
            self._name = self._slurm.config().get("ClusterName", "")
        return pack(
            Snapshot(taken_at_s=self._clock(), jobs=jobs, nodes=nodes, cluster=self._name, release=self._release)
        ).to_bytes()


@contextlib.contextmanager
def _hold_lock(path: Path) -> Iterator[None]:
    """Hold the lock, or give up after a while."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        yield
        return
    try:
        end = time.monotonic() + LOCK_WITHIN_S
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if time.monotonic() > end:
                    raise SlurmError("another opsk top of yours has been asking Slurm for long") from error
                time.sleep(_WAIT_S)
        yield
    finally:
        os.close(handle)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmAnswer:
    """Slurm's answer, and the route by which it came (``the advisor`` or ``asked directly``)."""

    snapshot: Snapshot
    route: str


class SlurmSource:
    """Queries jobs and nodes, again and again.

    Parameters
    ----------
    socket
        Socket of the advisor; ``None`` to do without.
    slurm
        The Slurm client where no advisor shares a snapshot.
    interval_s
        Shortest time between direct queries of Slurm [s].
    sees_more
        Whether this user may see more than the advisor shares: operators then query Slurm themselves.
    """

    def __init__(
        self,
        socket: Path | None,
        slurm: SlurmClient,
        interval_s: float,
        *,
        sees_more: Callable[[], bool] = lambda: False,
        folder: Path | None = None,
    ) -> None:
        self._socket = socket
        self._shared_file = SharedSnapshot(folder or find_runtime_folder(), slurm, interval_s)
        self._sees_more = sees_more
        self._shared, self._direct = SnapshotReader(), SnapshotReader()

    def read(self) -> SlurmAnswer:
        """Return Slurm's last answer; it may block for as long as Slurm may take.

        Raises
        ------
        OpskError
            Slurm does not answer, and the advisor has nothing either.
        """
        answer = self._from_advisor()
        if answer is not None:
            return SlurmAnswer(snapshot=answer, route="the advisor")
        return SlurmAnswer(snapshot=self._direct.read(self._shared_file.read()), route=DIRECTLY)

    def _from_advisor(self) -> Snapshot | None:
        """Return the advisor's snapshot; ``None`` where there is none, or it omits what this user may see."""
        if self._socket is None:
            return None
        try:
            snapshot = self._shared.read(ask_cluster(self._socket, self._shared.digest))
        except InputError:
            self._shared = SnapshotReader()
            return None
        except OpskError:
            return None
        if not snapshot.taken_at_s or (snapshot.is_partial and (not snapshot.nodes or self._sees_more())):
            return None
        return snapshot

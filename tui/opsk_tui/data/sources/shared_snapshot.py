"""Shares one Slurm snapshot among the screens of a user through a file and a lock, where no advisor shares one.

The file is the user's own, in their runtime folder; it holds Slurm's answer to that user and nobody else may read it.
The first reader that finds it too old takes the lock and asks Slurm; the others wait.
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
from pathlib import Path

from opsk.errors import SlurmError
from opsk.slurm.client import SlurmClient
from opsk.slurm.snapshot import MAX_BYTES, Snapshot, pack

LOCK_WITHIN_S = 30.0
_WAIT_S = 0.1


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

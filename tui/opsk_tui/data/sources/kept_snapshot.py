"""How do several screens of one user ask Slurm once, where no advisor shares its answer? Through a file and a lock.

The file is the user's own, in his runtime folder; it holds what Slurm told him and nobody else may read it. Who finds
it too old takes the lock and asks; the others wait for him.
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
from opsk.slurm.snapshot import LARGEST_BYTES, Snapshot, pack

LOCK_WITHIN_S = 30.0
_WAIT_S = 0.1


def folder_of(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return a folder that only this user may enter; ``None`` where none can be had.

    ``XDG_RUNTIME_DIR`` where there is one, which is never on a network; else one in the folder for temporary files.
    """
    runtime = environ.get("XDG_RUNTIME_DIR")
    path = Path(runtime) / "opsk" if runtime else Path(tempfile.gettempdir()) / f"opsk-{os.getuid()}"
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        facts = path.lstat()
    except OSError:
        return None
    is_own = stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid() and not facts.st_mode & 0o077
    return path if is_own else None


class KeptSnapshot:
    """The file of one cluster.

    Parameters
    ----------
    folder
        A folder of this user alone.
    slurm
        Who asks when it is time.
    interval_s
        Slurm is asked no more often than this [s].
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
            Slurm does not answer, or another program of this user has been asking it for long.
        """
        if self._path is None:
            return self._asked()
        found = self._fresh(self._path)
        if found is not None:
            return found
        with _locked(self._path.with_suffix(".lock")):
            found = self._fresh(self._path)
            if found is None:
                found = self._asked()
                draft = self._path.with_suffix(f".{os.getpid()}")
                with contextlib.suppress(OSError):
                    draft.touch(mode=0o600)
                    draft.write_bytes(found)
                    draft.replace(self._path)
            return found

    def _fresh(self, path: Path) -> bytes | None:
        try:
            facts = path.stat()
            age_s = self._clock() - facts.st_mtime
            if facts.st_uid != os.getuid() or not -1.0 < age_s < self._interval_s or facts.st_size > LARGEST_BYTES:
                return None
            return path.read_bytes()
        except OSError:
            return None

    def _asked(self) -> bytes:
        jobs, nodes = self._slurm.jobs(details=True), self._slurm.nodes()
        if not self._name:
            self._release = self._slurm.release()
            self._name = self._slurm.config().get("ClusterName", "")
        return pack(
            Snapshot(taken_at_s=self._clock(), jobs=jobs, nodes=nodes, cluster=self._name, release=self._release)
        ).to_bytes()


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
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

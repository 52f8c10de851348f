"""Creates temporary folders for a process and its children, which disappear after it even if it is killed.

A killed process removes nothing: the next process of its kind removes folders whose owner is gone. The kernel releases
the lock on a folder when its owner dies.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

_OWNER = ".owner"


class ProcessFolder:
    """A new folder of this process, in the service's run-time directory or the one for temporary files.

    Parameters
    ----------
    purpose
        Prefix of its name; folders with this prefix are searched for stale ones.
    """

    def __init__(self, purpose: str) -> None:
        top = Path(os.environ.get("RUNTIME_DIRECTORY", "").partition(":")[0] or tempfile.gettempdir())
        for stale in top.glob(f"{purpose}-*"):
            with suppress(OSError):
                _remove_if_stale(stale)
        self.path = Path(tempfile.mkdtemp(prefix=f"{purpose}-", dir=top))
        draft = self.path / f"{_OWNER}.new"
        self._handle = os.open(draft, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        draft.replace(self.path / _OWNER)  # folders without it are not considered stale

    def __enter__(self) -> Path:
        """Return the path."""
        return self.path

    def __exit__(self, *_: object) -> None:
        """Remove it."""
        self.remove()

    def remove(self) -> None:
        """Remove the folder and what is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(OSError):
            os.close(self._handle)


def _remove_if_stale(folder: Path) -> None:
    """Remove a folder of this user whose owner is gone.

    Raises
    ------
    OSError
        It has no owner file, or its owner is alive.
    """
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        return
    handle = os.open(folder / _OWNER, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(handle)

"""Where does a process keep files for itself or its children? In a folder that is gone after it, killed or not.

A killed process removes nothing: the next of its kind does, of folders whose owner is gone. The kernel lets go of the
lock on a folder when its owner dies.
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


class OwnFolder:
    """A new folder below the service's run-time directory, else that for temporary files; it is this process's own.

    Parameters
    ----------
    purpose
        Begins its name, and that of the folders that are looked through for ones that were left.
    """

    def __init__(self, purpose: str) -> None:
        top = Path(os.environ.get("RUNTIME_DIRECTORY", "").partition(":")[0] or tempfile.gettempdir())
        for left in top.glob(f"{purpose}-*"):
            with suppress(OSError):
                _remove_if_left(left)
        self.path = Path(tempfile.mkdtemp(prefix=f"{purpose}-", dir=top))
        draft = self.path / f"{_OWNER}.new"
        self._handle = os.open(draft, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        draft.replace(self.path / _OWNER)  # without it nobody takes the folder for one that was left

    def __enter__(self) -> Path:
        """Return where it is."""
        return self.path

    def __exit__(self, *_: object) -> None:
        """Remove it."""
        self.remove()

    def remove(self) -> None:
        """Remove the folder and what is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(OSError):
            os.close(self._handle)


def _remove_if_left(folder: Path) -> None:
    """Remove a folder of this user's whose owner is gone.

    Raises
    ------
    OSError
        It is none, or its owner lives.
    """
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid():
        return
    handle = os.open(folder / _OWNER, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(handle)

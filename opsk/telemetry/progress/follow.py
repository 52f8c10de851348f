"""How is a log read that still grows, is rotated, truncated, or not what it seems?

A poll reads a bounded number of bytes and never waits: only regular files are opened, never through a link, and only
those of one owner where the caller asks for that. Users may choose where a log is; nothing of it is written. In a user
namespace (systemd's ``PrivateUsers``) the owners of files cannot be told: there files of nobody known count if all may
read them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from opsk.errors import TelemetryError
from opsk.telemetry.progress.stream import Found, ProgressReader
from opsk.units import KIB, MIB

_READ_BYTES = 64 * KIB
_NOBODY = 65534
"""The owner of a file whose owner has no number in this user namespace (kernel.overflowuid)."""
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


class Follower:
    """Reads a growing log.

    Parameters
    ----------
    path
        The log.
    poll_bytes
        Most bytes that one poll reads.
    tail_bytes
        How far from its end a log is read that is met for the first time, or that has outrun its reader; ``None`` is
        from its beginning, whatever its length.
    owner
        Only a file of this user is read; ``None`` is anybody's.
    reader
        What reads the lines, where more is known of the run than the log says.
    links
        Whether the name may be a link: who names a log may mean what it stands for, a user's own path may not.
    """

    def __init__(
        self,
        path: Path,
        *,
        poll_bytes: int = MIB,
        tail_bytes: int | None = None,
        owner: int | None = None,
        reader: ProgressReader | None = None,
        links: bool = False,
    ) -> None:
        self.path = path
        self.reader = ProgressReader(str(path)) if reader is None else reader
        self.is_behind = False
        self._links = links
        self.written_unix_s: float | None = None
        self.skipped_bytes = 0
        self._poll_bytes = poll_bytes
        self._tail_bytes = tail_bytes
        self._owner = owner
        self._handle: int | None = None
        self._inode: tuple[int, int] | None = None
        self._offset = 0

    def poll(self) -> Iterator[Found]:
        """Yield what has come since the last poll.

        Raises
        ------
        TelemetryError
            There is no such file, or it is none that may be read.
        """
        if self._handle is None:
            self._open()
        left, self.is_behind = self._poll_bytes, False
        for turn in range(2):
            if self._handle is None:
                return
            status = os.fstat(self._handle)
            if status.st_size < self._offset:
                self.reader.skip()
                self._offset = 0
            self._catch_up(status.st_size)
            for data in self._read(left):
                left -= len(data)
                yield from self.reader.feed(data)
            self.is_behind = self._offset < status.st_size
            if self.is_behind or turn or not self._replaced():
                break
            self.close()
            self.reader.skip()
            self._open()
        self.written_unix_s = status.st_mtime

    def keep_to(self, tail_bytes: int) -> None:
        """Read no more than this far from the end from now on."""
        self._tail_bytes = tail_bytes

    def close(self) -> None:
        """Let go of the file."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _read(self, most: int) -> Iterator[bytes]:
        """Yield what is there, ``most`` bytes at most."""
        handle = self._handle
        while most > 0 and handle is not None:
            data = os.pread(handle, min(most, _READ_BYTES), self._offset)
            if not data:
                return
            self._offset += len(data)
            most -= len(data)
            yield data

    def _catch_up(self, size: int) -> None:
        """Leave out what could never be read in time."""
        behind = size - self._offset
        if self._tail_bytes is None or behind <= self._tail_bytes + self._poll_bytes:
            return
        self.skipped_bytes += behind - self._tail_bytes
        self._offset = size - self._tail_bytes
        self.reader.skip()

    def _replaced(self) -> bool:
        """Tell whether another file has the log's name now."""
        try:
            status = self.path.stat() if self._links else self.path.lstat()
        except OSError:
            return False
        return (status.st_dev, status.st_ino) != self._inode

    def _open(self) -> None:
        """Open the log: the same file goes on where it was left, another that has its name now begins."""
        try:
            handle = os.open(self.path, _FLAGS & ~os.O_NOFOLLOW if self._links else _FLAGS)
        except OSError as error:
            raise TelemetryError(f"{self.path}: {error.strerror}") from error
        status = os.fstat(handle)
        wrong = None
        if not stat.S_ISREG(status.st_mode):
            wrong = "is no regular file"
        elif self._owner is not None and not _is_of(status, self._owner):
            wrong = "is not its owner's"
        if wrong:
            os.close(handle)
            raise TelemetryError(f"{self.path}: {wrong}")
        before, self._inode = self._inode, (status.st_dev, status.st_ino)
        self._handle = handle
        if before == self._inode:
            return
        self._offset = 0
        if before is None and self._tail_bytes is not None and status.st_size > self._tail_bytes:
            self._offset = status.st_size - self._tail_bytes


def _is_of(status: os.stat_result, owner: int) -> bool:
    """Tell whether a file may be taken for one of this user."""
    return status.st_uid == owner or (status.st_uid == _NOBODY and bool(status.st_mode & stat.S_IROTH))

"""Follows a log file that grows, is rotated or truncated.

A poll reads a bounded number of bytes and never blocks: only regular files are opened, never through a link, and only
those of one owner where the caller asks for that. Users may choose where a log is; its content is never written
anywhere. In a user namespace (systemd's ``PrivateUsers``) the owners of files are unknown: there files of an unmapped
owner count if everybody may read them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from opsk.errors import TelemetryError
from opsk.telemetry.progress.stream import ProgressItem, ProgressReader
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
        How far from its end a log is read that is opened first, or that has outrun its reader; ``None`` is
        from its beginning, whatever its length.
    owner
        Only a file of this user is read; ``None`` is anybody's.
    reader
        Parses the lines; given where more is known of the run than is in the log.
    links
        Whether the name may be a link: allowed for a log that the caller names, not for a path that a user chose.
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
        self.has_backlog = False
        self._links = links
        self.written_unix_s: float | None = None
        self.skipped_bytes = 0
        self._poll_bytes = poll_bytes
        self._tail_bytes = tail_bytes
        self._owner = owner
        self._handle: int | None = None
        self._inode: tuple[int, int] | None = None
        self._offset = 0

    def poll(self) -> Iterator[ProgressItem]:
        """Yield what has come since the last poll.

        Raises
        ------
        TelemetryError
            There is no such file, or it is none that may be read.
        """
        if self._handle is None:
            self._open()
        remaining_bytes, self.has_backlog = self._poll_bytes, False
        for turn in range(2):
            if self._handle is None:
                return
            status = os.fstat(self._handle)
            if status.st_size < self._offset:
                self.reader.skip()
                self._offset = 0
            self._catch_up(status.st_size)
            for data in self._read(remaining_bytes):
                remaining_bytes -= len(data)
                yield from self.reader.feed(data)
            self.has_backlog = self._offset < status.st_size
            if self.has_backlog or turn or not self._is_replaced():
                break
            self.close()
            self.reader.skip()
            self._open()
        self.written_unix_s = status.st_mtime

    def limit_tail(self, tail_bytes: int) -> None:
        """Read no more than this far from the end from now on."""
        self._tail_bytes = tail_bytes

    def close(self) -> None:
        """Close the file."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _read(self, max_bytes: int) -> Iterator[bytes]:
        """Yield what is there, at most ``max_bytes``."""
        handle = self._handle
        while max_bytes > 0 and handle is not None:
            data = os.pread(handle, min(max_bytes, _READ_BYTES), self._offset)
            if not data:
                return
            self._offset += len(data)
            max_bytes -= len(data)
            yield data

    def _catch_up(self, size: int) -> None:
        """Skip what could never be read in time."""
        unread_bytes = size - self._offset
        if self._tail_bytes is None or unread_bytes <= self._tail_bytes + self._poll_bytes:
            return
        self.skipped_bytes += unread_bytes - self._tail_bytes
        self._offset = size - self._tail_bytes
        self.reader.skip()

    def _is_replaced(self) -> bool:
        """Return whether another file has the log's name now."""
        try:
            status = self.path.stat() if self._links else self.path.lstat()
        except OSError:
            return False
        return (status.st_dev, status.st_ino) != self._inode

    def _open(self) -> None:
        """Open the log: the same file continues at its offset, a new file under its name starts at 0."""
        try:
            handle = os.open(self.path, _FLAGS & ~os.O_NOFOLLOW if self._links else _FLAGS)
        except OSError as error:
            raise TelemetryError(f"{self.path}: {error.strerror}") from error
        status = os.fstat(handle)
        wrong = None
        if not stat.S_ISREG(status.st_mode):
            wrong = "is no regular file"
        elif self._owner is not None and not _is_owned_by(status, self._owner):
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


def _is_owned_by(status: os.stat_result, owner: int) -> bool:
    """Return whether a file counts as owned by this user."""
    return status.st_uid == owner or (status.st_uid == _NOBODY and bool(status.st_mode & stat.S_IROTH))

"""Follows ``/dev/kmsg``, or a file like it, without ever blocking."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from opsk.telemetry.kernel_log.event_reader import EventReader
from opsk.telemetry.kernel_log.events import KernelEvent
from opsk.telemetry.kernel_log.lines import LineReader

KMSG = Path("/dev/kmsg")
MAX_RECORDS = 50_000
"""Records of one poll: the buffer of a big machine at start, and a bound for a kernel that logs without end."""
_RECORD_BYTES = 1 << 14
"""A record of the kernel has at most 8192 bytes; a read into less room than it needs would fail for ever."""
_MAX_OVERRUNS = 100
_CHUNK_BYTES = 1 << 16
_LONGEST_PART = 1 << 17


@dataclass(frozen=True, slots=True, kw_only=True)
class KmsgBatch:
    """The result of one poll.

    Parameters
    ----------
    events
        In order.
    records
        Records read.
    lost
        Records that were overwritten before they could be read, since the first poll.
    problem
        Why the log cannot be read now (permission, no such file); empty when it can.
    """

    events: tuple[KernelEvent, ...] = ()
    records: int = 0
    lost: int = 0
    problem: str = ""


class KmsgReader:
    """Follows a kernel log from what is in its buffer on.

    A character device returns one record a read and EPIPE when records were overwritten; a plain file (also one
    that was rotated or cut) is read line by line. Neither is ever waited for, and nothing is raised.

    Parameters
    ----------
    path
        ``/dev/kmsg`` or a file of its records, or of lines of any format that `LineReader` supports.
    boot_unix_s
        When the machine was booted [s since 1970]: sets the time of the events.
    """

    def __init__(self, path: Path = KMSG, boot_unix_s: float | None = None) -> None:
        self._path = path
        self._lines = LineReader(boot_unix_s=boot_unix_s)
        self._events = EventReader()
        self._descriptor: int | None = None
        self._identity: tuple[int, int] | None = None
        self._device = False
        self._offset = 0
        self._part = b""
        self._last: int | None = None
        self._lost = 0

    def poll(self) -> KmsgBatch:
        """Return what is new; everything that is still in the buffer at the first call."""
        events: list[KernelEvent] = []
        records = 0
        try:
            self._follow()
            for raw in self._records():
                records += self._take(raw, events)
                if records >= MAX_RECORDS:
                    break
        except OSError as error:
            self.close()
            return KmsgBatch(
                events=tuple(events), records=records, lost=self._lost, problem=f"{self._path}: {error.strerror}"
            )
        return KmsgBatch(events=tuple(events), records=records, lost=self._lost)

    def close(self) -> None:
        """Close the file; a later poll opens it again and skips the records that were seen."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None

    def _follow(self) -> None:
        """Open the file, again if another one is at its place or it has become shorter."""
        if self._descriptor is None:
            self._open()
        elif not self._device:
            status = self._path.stat()
            if (status.st_dev, status.st_ino) != self._identity:
                self.close()
                self._open()
            elif status.st_size < self._offset:
                self._restart()

    def _open(self) -> None:
        """Open the file where reading stopped, or at its beginning if it is another one."""
        self._descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        status = os.fstat(self._descriptor)
        self._device = stat.S_ISCHR(status.st_mode)
        identity = (status.st_dev, status.st_ino)
        if identity != self._identity or (not self._device and status.st_size < self._offset):
            self._restart()
        self._identity = identity

    def _restart(self) -> None:
        """Reset the state after a file was replaced."""
        self._offset, self._part, self._last = 0, b"", None

    def _records(self) -> Iterator[bytes]:
        """Yield what can be read now, record by record."""
        return self._read_device() if self._device else self._read_lines()

    def _read_device(self) -> Iterator[bytes]:
        """Yield records of the device; each read is one."""
        overruns = 0
        while self._descriptor is not None:
            try:
                record = os.read(self._descriptor, _RECORD_BYTES)
            except BlockingIOError:
                return
            except BrokenPipeError:
                # Overrun: the next read returns the oldest record that is left. Its number shows what was lost.
                overruns += 1
                if overruns > _MAX_OVERRUNS:
                    return
                continue
            if not record:
                return
            yield record

    def _read_lines(self) -> Iterator[bytes]:
        """Yield the complete lines of a file, and one without an end when nothing is added to it any more."""
        grown = False
        while self._descriptor is not None:
            chunk = os.pread(self._descriptor, _CHUNK_BYTES, self._offset)
            if not chunk:
                break
            grown = True
            self._offset += len(chunk)
            *whole, self._part = (self._part + chunk).split(b"\n")
            if len(self._part) > _LONGEST_PART:
                whole, self._part = [*whole, self._part], b""
            yield from whole
        if not grown and self._part:
            part, self._part = self._part, b""
            yield part

    def _take(self, raw: bytes, events: list[KernelEvent]) -> int:
        """Add the events of one record; 0 for one that was seen before."""
        line = self._lines.read(raw.decode("utf-8", "replace"))
        if line.sequence is not None:
            if self._last is not None and line.sequence <= self._last:
                return 0
            self._lost += 0 if self._last is None else line.sequence - self._last - 1
            self._last = line.sequence
        events += self._events.feed(line)
        return 1


def boot_unix_s() -> float:
    """Return when this machine was booted by the kernel's clock of log records [s since 1970]."""
    return time.time() - time.monotonic()

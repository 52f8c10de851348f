"""Reads the events of a whole kernel log, or of ``/dev/kmsg`` as it grows, and joins the lines of one event."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

from opsk.telemetry.kernel_log.events import FallenOffBusEvent, KernelEvent, OomEvent, XidEvent, sanitise
from opsk.telemetry.kernel_log.lines import LONGEST_LINE, KernelLine, LineReader
from opsk.telemetry.kernel_log.patterns import ANY_NEEDLE, RULES, Rule, normalise_address

MAX_EVENTS = 100_000
"""Limit of the events of one log; a flood of one kind must not fill the memory."""
_JOINED_LINES = 40
"""Lines over which the parts of one event may be spread, with others in between."""
_GROUP_LINES = 2000
_MAX_GPUS = 256

_PCI = r"(?:[0-9a-fA-F]{1,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?"
_GPU_AT = re.compile(rf"NVRM: GPU at (?:PCI:)?(?P<pci>{_PCI}): (?P<uuid>GPU-[0-9a-fA-F-]{{8,40}})")
_FALLING = re.compile(rf"NVRM: The NVIDIA GPU (?P<pci>{_PCI})")
_GROUP = re.compile(r"Tasks in (?P<cgroup>[^\n]{1,1000}?) are going to be killed due to memory\.oom\.group set")
_OOM_STARTS = "invoked oom-killer"
_CONTEXT = re.compile("|".join(map(re.escape, ("NVRM: GPU at", "NVRM: The NVIDIA GPU", _OOM_STARTS, "oom.group set"))))
_INTEREST = re.compile(f"{ANY_NEEDLE.pattern}|{_CONTEXT.pattern}")
KMSG = Path("/dev/kmsg")
MAX_RECORDS = 50_000
"""Records of one poll: the buffer of a big machine at start, and a bound for a kernel that logs without end."""
_RECORD_BYTES = 1 << 14
"""A record of the kernel has at most 8192 bytes; a read into less room than it needs would fail for ever."""
_MAX_OVERRUNS = 100
_CHUNK_BYTES = 1 << 16
_LONGEST_PART = 1 << 17


class EventReader:
    """Turns lines into events, in order; remembers what the next lines may belong to."""

    def __init__(self) -> None:
        self._uuids: dict[str, str] = {}
        self._falling: tuple[str | None, int] = (None, 0)
        self._victim: OomEvent | None = None
        self._victim_since = 0
        self._cgroups: tuple[str | None, str | None] = (None, None)
        self._cgroups_since = 0
        self._count = 0

    def feed(self, line: KernelLine) -> list[KernelEvent]:
        """Return the events that are complete with this line."""
        self._count += 1
        events = self._flush_expired()
        for message in line.message.split("\n", 64)[:64]:
            if _INTEREST.search(message):
                self._note(message)
                event = _build_event(message, line)
                if event is not None:
                    events += self._join(event)
        return events

    def flush(self) -> list[KernelEvent]:
        """Return the event that still waits for its other lines."""
        waiting, self._victim = self._victim, None
        return [waiting] if waiting is not None else []

    def _flush_expired(self) -> list[KernelEvent]:
        """Return an event whose other half has not come within a few lines."""
        return self.flush() if self._count - self._victim_since > _JOINED_LINES else []

    def _note(self, message: str) -> None:
        """Remember the context that a line gives for later lines."""
        if _CONTEXT.search(message) is None:
            return
        named = _GPU_AT.search(message)
        pci = normalise_address(named["pci"]) if named else None
        if named and pci and len(self._uuids) < _MAX_GPUS:
            self._uuids[pci] = named["uuid"]
        falling = _FALLING.search(message)
        if falling:
            self._falling = (normalise_address(falling["pci"]), self._count)
        if _OOM_STARTS in message:
            self._cgroups = (None, None)
        group = _GROUP.search(message)
        if group:
            cgroup = sanitise(group["cgroup"], 300)
            self._cgroups, self._cgroups_since = (cgroup, self._cgroups[1] or cgroup), self._count

    def _join(self, event: KernelEvent) -> list[KernelEvent]:
        """Return the events that this one completes."""
        if isinstance(event, XidEvent):
            return [replace(event, gpu_uuid=self._uuids.get(event.pci))]
        if isinstance(event, FallenOffBusEvent):
            pci, since = self._falling
            near = self._count - since <= _JOINED_LINES
            self._falling = (None, 0)
            return [replace(event, pci=event.pci or (pci if near else None))]
        return self._join_oom(event) if isinstance(event, OomEvent) else [event]

    def _join_oom(self, event: OomEvent) -> list[KernelEvent]:
        """Join the line that names the cgroup with the one that reports the kill."""
        if event.cgroup is not None:
            before = self.flush()
            self._victim, self._victim_since = event, self._count
            self._cgroups, self._cgroups_since = (event.limit_cgroup, event.limit_cgroup), self._count
            return before
        chosen = self._victim
        if chosen is not None and chosen.pid in (None, event.pid):
            self._victim = None
            return [
                replace(
                    chosen,
                    pid=event.pid,
                    process=event.process,
                    rss_bytes=event.rss_bytes,
                    scope=chosen.scope or event.scope,
                )
            ]
        if self._count - self._cgroups_since <= _GROUP_LINES:
            event = replace(event, cgroup=self._cgroups[0], limit_cgroup=self._cgroups[1])
        return [*self.flush(), event]


def _build_event(message: str, line: KernelLine) -> KernelEvent | None:
    """Return the event of one message; ``None`` when it is none."""
    base: dict[str, Any] = {
        "at": line.stamp,
        "text": sanitise(message),
        "host": line.host,
        "sequence": line.sequence,
        "line": line.number,
    }
    for rule in RULES:
        if rule.needle in message and _may_say(rule, line):
            match = rule.pattern.search(message)
            if match is not None:
                return rule.build(match, base)
    return None


def _may_say(rule: Rule, line: KernelLine) -> bool:
    """Return whether the sender of a line is trusted: any user can log a line under his own name."""
    if line.ident is None:
        return True
    return line.ident in rule.senders or (line.from_kernel and not rule.senders)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLog:
    """The events of a kernel log.

    Parameters
    ----------
    events
        In the order of the log.
    lines
        Lines read.
    cut_lines
        Lines that were longer than the parsed part.
    left_out
        Events beyond `MAX_EVENTS`.
    """

    events: tuple[KernelEvent, ...]
    lines: int
    cut_lines: int = 0
    left_out: int = 0


def read_kernel_log(
    lines: str | Iterable[str],
    *,
    zone: tzinfo | None = None,
    not_after: datetime | None = None,
    boot_unix_s: float | None = None,
) -> KernelLog:
    """Return the events of a kernel log of any form; lines that are none are passed over.

    Parameters
    ----------
    lines
        The log, or its lines.
    zone, not_after, boot_unix_s
        What the caller knows of its time stamps; see `LineReader`.
    """
    reader, joined = LineReader(zone=zone, not_after=not_after, boot_unix_s=boot_unix_s), EventReader()
    events: list[KernelEvent] = []
    number = cut = left_out = 0
    for number, line in enumerate(lines.removesuffix("\n").split("\n") if isinstance(lines, str) else lines, 1):
        cut += len(line) > LONGEST_LINE and not line.startswith(("{", "\x1e"))
        if _INTEREST.search(line) or line.startswith(("{", "\x1e", "data:")):
            new_events = joined.feed(reader.read(line, number))
            room = MAX_EVENTS - len(events)
            events += new_events[:room]
            left_out += len(new_events[room:])
    events += joined.flush()
    return KernelLog(events=tuple(events), lines=number, cut_lines=cut, left_out=left_out)


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

    A file like it may stand in for it. A poll never blocks.

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

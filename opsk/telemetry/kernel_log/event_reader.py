"""Reads the events of a whole kernel log, and joins the lines that one event is spread over."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from typing import Any

from opsk.telemetry.kernel_log.event_builders import normalise_address
from opsk.telemetry.kernel_log.events import FallenOffBusEvent, KernelEvent, OomEvent, XidEvent, sanitise
from opsk.telemetry.kernel_log.lines import LONGEST_LINE, KernelLine, LineReader
from opsk.telemetry.kernel_log.patterns import ANY_NEEDLE, RULES, Rule

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

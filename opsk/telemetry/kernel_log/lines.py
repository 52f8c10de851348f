"""Parses the lines of kernel logs into timestamp, sender and message, for every format that the logs come in.

Supported are records of ``/dev/kmsg``, ``dmesg`` (raw, decoded, ``-T``, ISO), ``journalctl -k`` (short forms and JSON),
syslog files (RFC 3164 and 5424), and lines of an unknown format, which are all message. A time is never made up: what a
line does not state (year, zone, boot) stays unknown unless the caller knows it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from enum import StrEnum
from typing import Any

LONGEST_LINE = 8192
"""Characters of a line that are parsed; a record of ``/dev/kmsg`` has at most as many bytes."""
_LONGEST_JSON = 1 << 16
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH = f"(?P<month>{'|'.join(_MONTHS)})"
_CLOCK = r"(?P<hour>\d{2}):(?P<minute>\d{2}):(?P<second>\d{2})(?:[.,](?P<fraction>\d{1,9}))?"
_DATE = r"(?P<year>\d{4})-(?P<monthday>\d{2}-\d{2})"
_ZONE = r"(?P<zone>Z|UTC|[+-]\d{2}:?\d{2})"
_SENDER = r"(?P<host>[\w.:-]{1,255}) (?P<ident>[\w./@-]{1,128})(?:\[\d{1,10}\])?: "

_STAMP_PARTS = ("second", "fraction", "year", "zone")

_KMSG = re.compile(r"(\d{1,7}),(\d{1,20}),(\d{1,20}),[^;]{0,120};(.*)", re.DOTALL)
_ESCAPED = re.compile(r"(?:\\x[0-9a-f]{2})+")
_LEVEL = re.compile(r"<(\d{1,3})>(?:1 (?=\d{4}-))?")
_LEVELS = ("emerg", "alert", "crit", "err", "warn", "notice", "info", "debug")
_FACILITY = re.compile(rf"[a-z0-9]{{2,8}}\s{{0,8}}:({'|'.join(_LEVELS)})\s{{0,8}}: ?")
_BOOT = re.compile(r"\[\s{0,12}(?P<uptime>\d{1,10}\.\d{1,9})\](?:\[\s{0,8}[CT]\d{1,8}\])? ?")
_BOOT_SENDER = re.compile(r"(?P<host>[\w.:-]{1,255}) (?P<ident>kernel): ")
_PASSED = re.compile(r"\[\s{0,12}[+<]\s{0,12}\d{1,10}\.\d{1,9}>?\] ?")
_CTIME = re.compile(rf"\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) {_MONTH}\s+(?P<day>\d{{1,2}}) {_CLOCK} (?P<year>\d{{4}})\] ?")
_MANAGER = re.compile(rf"\[{_MONTH}\s+(?P<day>\d{{1,2}}) (?P<year>\d{{4}}) {_CLOCK}\] (?:\[[\w ]{{1,24}}\] ){{0,2}}")
_SHORT = re.compile(rf"{_MONTH}\s+(?P<day>\d{{1,2}}) (?:(?P<year>\d{{4}}) )?{_CLOCK} {_SENDER}")
_ISO_DMESG = re.compile(rf"{_DATE}T\d{{2}}:\d{{2}}:\d{{2}},\d{{1,9}}[+-]\d{{2}}:?\d{{2}} ")
_ISO = re.compile(rf"\[?{_DATE}[T ]{_CLOCK} ?{_ZONE}?\]? ")
_FULL = re.compile(rf"[A-Z][a-z]{{2}} {_DATE} {_CLOCK} (?:{_ZONE}|[A-Z]{{2,5}}) {_SENDER}")
_UNIX = re.compile(rf"(?P<unix>\d{{9,11}}\.\d{{1,9}}) {_SENDER}")
_SENDER_ONLY = re.compile(_SENDER)
_RFC5424 = re.compile(r"(?P<host>\S{1,255}) (?P<ident>\S{1,48}) \S{1,128} \S{1,32} (?:-|(?:\[[^\]]{0,500}\])+) ?")
_PARALLEL = re.compile(
    r"([A-Za-z0-9][\w.-]{0,63}): (?=\[\s{0,12}\d|\[[A-Z][a-z]{2} |<\d|\d{4}-|\d,\d|[A-Z][a-z]{2}\s+\d{1,2} )"
)


class Clock(StrEnum):
    """Which clock a time stamp is of."""

    MONOTONIC = "monotonic"
    """Seconds since boot; not counted while the machine sleeps."""
    REALTIME = "realtime"
    """A point in time: the zone is stated, or the caller has stated it."""
    LOCAL = "local"
    """A wall clock whose zone the line does not state."""
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """When a line was written, as far as it is stated.

    Parameters
    ----------
    clock
        What the line states.
    monotonic_s
        Seconds since boot.
    unix_s
        Seconds since 1970, when it is certain: a zone is stated or was given.
    wall
        Wall clock as written, without zone; ``None`` where the year is not written and unknown.
    text
        The stamp as written.
    """

    clock: Clock = Clock.NONE
    monotonic_s: float | None = None
    unix_s: float | None = None
    wall: datetime | None = None
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLine:
    """One parsed line of a log.

    Parameters
    ----------
    message
        The message; may hold several lines where one record does.
    stamp, host, ident
        When, on which host, and by whom (``kernel``, ``systemd-networkd``); ``None`` when the line does not state it.
    level
        0 (emergency) to 7 (debug).
    sequence
        Number of the record in the kernel's buffer.
    number
        Number of the line in its file, from 1.
    """

    message: str
    stamp: Stamp = field(default_factory=Stamp)
    host: str | None = None
    ident: str | None = None
    level: int | None = None
    sequence: int | None = None
    number: int | None = None

    @property
    def from_kernel(self) -> bool:
        """Whether the kernel may have written it: any process can write to syslog, under its own name."""
        return self.ident is None or self.ident == "kernel"


@dataclass(frozen=True, slots=True, kw_only=True)
class LineReader:
    """Parses lines.

    Parameters
    ----------
    zone
        Zone of wall clocks that state none; without it they have no ``unix_s``.
    not_after
        Wall clock that no line is later than (when the file was last written): determines the year where it is missing.
    boot_unix_s
        When the machine was booted [s since 1970]: sets ``unix_s`` of stamps that count seconds since boot.
    """

    zone: tzinfo | None = None
    not_after: datetime | None = None
    boot_unix_s: float | None = None

    def read(self, line: str, number: int | None = None) -> KernelLine:
        """Parse a line; one of unknown format is all message."""
        text = line.rstrip("\r\n")
        parsed = _parse_json(text) if text[:1] in "{\x1ed" else None
        text = text[:LONGEST_LINE]
        if parsed is None:
            parsed = self._kmsg(text) or self._text(text)
        return replace(parsed, number=number)

    def _kmsg(self, text: str) -> KernelLine | None:
        """Read a record of ``/dev/kmsg``."""
        match = _KMSG.fullmatch(text)
        if match is None:
            return None
        return KernelLine(
            message=_unescape(match[4].split("\n", 1)[0]),
            stamp=self._since_boot(int(match[3]) / 1e6, match[3]),
            level=int(match[1]) & 7,
            sequence=int(match[2]),
        )

    def _text(self, text: str, host: str | None = None) -> KernelLine:
        """Read any other form: marks of level first, then the time, then who wrote it."""
        level, text = _parse_level(text)
        for pattern, read in _FORMS:
            match = pattern.match(text)
            if match is not None:
                line = read(self, match, text)
                return replace(line, level=level, host=line.host or host)
        sender = _PARALLEL.match(text)
        if host is None and sender is not None:
            line = self._text(text[sender.end() :], sender[1])
            return replace(line, host=None, ident="kernel") if line.host == "kernel" else line
        return KernelLine(message=text, level=level, host=host)

    def _boot(self, match: re.Match[str], text: str) -> KernelLine:
        """Read ``[  123.456789] text``; journalctl's short-monotonic form names host and kernel after it."""
        rest = text[match.end() :]
        stamp = self._since_boot(float(match["uptime"]), match["uptime"])
        sender = _BOOT_SENDER.match(rest)
        if sender is not None:
            return KernelLine(message=rest[sender.end() :], stamp=stamp, host=sender["host"], ident=sender["ident"])
        return KernelLine(message=rest, stamp=stamp)

    def _read_undated(self, match: re.Match[str], text: str) -> KernelLine:
        """Read ``[  +0.000123] text``: the time since the line before is no time."""
        return KernelLine(message=text[match.end() :], stamp=Stamp(text=match[0].strip()))

    def _read_dated(self, match: re.Match[str], text: str) -> KernelLine:
        """Read a wall clock, then perhaps host and program, then perhaps the kernel's own time."""
        stamp, rest = self._wall(match), text[match.end() :]
        groups = match.groupdict()
        host, ident = groups.get("host"), groups.get("ident")
        if match.re is _ISO:
            sender = _SENDER_ONLY.match(rest) or _RFC5424.match(rest)
            if sender is not None:
                host, ident, rest = sender["host"], sender["ident"], rest[sender.end() :]
        inner = _BOOT.match(rest)
        if inner is not None:
            stamp, rest = replace(stamp, monotonic_s=float(inner["uptime"])), rest[inner.end() :]
        return KernelLine(message=rest, stamp=stamp, host=host, ident=ident)

    def _read_dmesg_iso(self, match: re.Match[str], text: str) -> KernelLine:
        """Read ``2025-01-21T04:41:44,285060+00:00 text``: dmesg's ISO form, the only one with a comma."""
        wall = _ISO.match(text)
        return KernelLine(message=text[match.end() :], stamp=self._wall(wall) if wall else Stamp(text=match[0].strip()))

    def _read_unix_time(self, match: re.Match[str], text: str) -> KernelLine:
        """Read journalctl's short-unix form."""
        stamp = Stamp(clock=Clock.REALTIME, unix_s=float(match["unix"]), text=match["unix"])
        return KernelLine(message=text[match.end() :], stamp=stamp, host=match["host"], ident=match["ident"])

    def _since_boot(self, uptime_s: float, text: str) -> Stamp:
        """Return the stamp of a time since boot."""
        unix_s = None if self.boot_unix_s is None else self.boot_unix_s + uptime_s
        return Stamp(clock=Clock.MONOTONIC, monotonic_s=uptime_s, unix_s=unix_s, text=text)

    def _wall(self, match: re.Match[str]) -> Stamp:
        """Return the stamp of a wall clock."""
        groups = match.groupdict()
        end = max(match.end(part) for part in _STAMP_PARTS if groups.get(part))
        text = match.string[match.start() : end].lstrip("[")
        try:
            wall = self._moment(groups)
            zone = _parse_zone(groups.get("zone")) or self.zone
            if wall is None or zone is None:
                return Stamp(clock=Clock.LOCAL, wall=wall, text=text)
            return Stamp(clock=Clock.REALTIME, unix_s=wall.replace(tzinfo=zone).timestamp(), wall=wall, text=text)
        except (ValueError, OverflowError):
            return Stamp(clock=Clock.LOCAL, text=text)

    def _moment(self, groups: dict[str, Any]) -> datetime | None:
        """Return the wall clock that the parts of a stamp name; ``None`` where the year is unknown."""
        if groups.get("monthday"):
            month, day = (int(part) for part in groups["monthday"].split("-"))
        else:
            month, day = _MONTHS.index(groups["month"]) + 1, int(groups["day"])
        hour, minute, second = (int(groups[part]) for part in ("hour", "minute", "second"))
        fraction = int((groups.get("fraction") or "0").ljust(6, "0")[:6])

        def moment(year: int) -> datetime:
            leap = second == 60
            wall = datetime(year, month, day, hour, minute, 59 if leap else second, fraction)  # noqa: DTZ001 - no zone
            return wall + timedelta(seconds=leap)

        if groups.get("year"):
            return moment(int(groups["year"]))
        if self.not_after is None:
            return None
        # A day of grace: the caller's clock and the log's may be of two zones.
        for year in range(self.not_after.year + 1, self.not_after.year - 8, -1):
            try:
                wall = moment(year)
            except ValueError:  # 29 February
                continue
            if wall <= self.not_after + timedelta(days=1):
                return wall
        return None


_FORMS: tuple[tuple[re.Pattern[str], Callable[[LineReader, re.Match[str], str], KernelLine]], ...] = (
    (_BOOT, LineReader._boot),
    (_CTIME, LineReader._read_dated),
    (_SHORT, LineReader._read_dated),
    (_FULL, LineReader._read_dated),
    (_ISO_DMESG, LineReader._read_dmesg_iso),
    (_ISO, LineReader._read_dated),
    (_UNIX, LineReader._read_unix_time),
    (_MANAGER, LineReader._read_dated),
    (_PASSED, LineReader._read_undated),
)


def _parse_level(text: str) -> tuple[int | None, str]:
    """Return the level that a line begins with (``<12>``, ``kern  :warn  : ``), and the rest."""
    match = _LEVEL.match(text)
    if match is not None:
        return int(match[1]) & 7, text[match.end() :]
    match = _FACILITY.match(text)
    if match is not None:
        return _LEVELS.index(match[1]), text[match.end() :]
    return None, text


def _parse_zone(text: str | None) -> tzinfo | None:
    """Return the zone that ``+01:00``, ``+0100``, ``Z`` or ``UTC`` names."""
    if text is None:
        return None
    if text in ("Z", "UTC"):
        return UTC
    return datetime.strptime(text.replace(":", ""), "%z").tzinfo


def _parse_json(text: str) -> KernelLine | None:
    """Read one entry of ``journalctl -o json`` (also ``json-seq`` and ``json-sse``)."""
    text = text.lstrip("\x1e").removeprefix("data: ")
    if not text.startswith("{") or len(text) > _LONGEST_JSON:
        return None
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        return None
    message = _parse_journal_text(entry.get("MESSAGE"))
    if message is None:
        return None
    realtime = _parse_microseconds(entry.get("_SOURCE_REALTIME_TIMESTAMP") or entry.get("__REALTIME_TIMESTAMP"))
    monotonic = _parse_microseconds(entry.get("_SOURCE_MONOTONIC_TIMESTAMP") or entry.get("__MONOTONIC_TIMESTAMP"))
    clock = Clock.REALTIME if realtime is not None else Clock.MONOTONIC if monotonic is not None else Clock.NONE
    ident = "kernel" if entry.get("_TRANSPORT") == "kernel" else entry.get("SYSLOG_IDENTIFIER")
    host, level = entry.get("_HOSTNAME"), str(entry.get("PRIORITY", ""))
    return KernelLine(
        message=message[:LONGEST_LINE],
        stamp=Stamp(clock=clock, monotonic_s=monotonic, unix_s=realtime),
        host=host[:255] if isinstance(host, str) else None,
        ident=ident[:128] if isinstance(ident, str) else None,
        level=int(level) if level in set("01234567") else None,
    )


def _parse_journal_text(message: Any) -> str | None:
    """Return a message of the journal; one that is no UTF-8 is a list of its bytes there."""
    if isinstance(message, list):
        try:
            return bytes(message).decode("utf-8", "replace")
        except (TypeError, ValueError):
            return None
    return message if isinstance(message, str) else None


def _parse_microseconds(value: Any) -> float | None:
    """Return seconds for a count of microseconds, which the journal writes as a string."""
    text = str(value)
    return int(text) / 1e6 if text.isascii() and text.isdigit() and len(text) < 20 else None


def _unescape(text: str) -> str:
    r"""Return a record's text with ``\xNN`` as what they stand for: UTF-8, and new lines inside of one record."""
    return _ESCAPED.sub(lambda match: bytes.fromhex(match[0].replace("\\x", "")).decode("utf-8", "replace"), text)

"""Parses the times that training logs, launchers and glog write, as seconds since 1970."""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo

from opsk.telemetry.progress.values import parse_timestamp_unix_s

_HEAD = 160
"""A time stamp precedes the message; later dates are part of the message."""
_GLOG = re.compile(
    r"\[?[EWIFD] ?(?P<date>\d{2,4}) (?P<hour>\d{2}):(?P<minute>\d{2}):(?P<second>\d{2})(?P<part>\.\d+)?", re.ASCII
)
_SYSLOG = re.compile(
    r"\b(?P<month>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {1,2}(?P<day>\d{1,2}) "
    r"(?:(?P<year>\d{4}) )?(?P<hour>\d{2}):(?P<minute>\d{2}):(?P<second>\d{2})(?P<part>\.\d+)?(?: (?P<after>\d{4}))?",
    re.ASCII,
)
_US = re.compile(
    r"\b(?P<month>\d{2})/(?P<day>\d{2})/(?P<year>\d{4}) (?P<hour>\d{2}):(?P<minute>\d{2}):(?P<second>\d{2})", re.ASCII
)
_CLOCK = re.compile(r"(?:^|[\s\[])(?P<hour>[01]\d|2[0-3]):(?P<minute>[0-5]\d):(?P<second>[0-5]\d)(?P<part>[.,]\d+)?\b")
_CANCELLED = re.compile(r"CANCELLED AT (\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2})")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAY_S = 86400.0


class LineClock:
    """Reads the times of one log's lines.

    Parameters
    ----------
    not_after_s
        No line is later than this (when the file was last written, or the job ended) [s since 1970]: gives the year,
        or the day, where a line does not.
    zone
        Zone of clocks that state none; UTC when ``None``.
    """

    def __init__(self, not_after_s: float | None = None, zone: tzinfo | None = None) -> None:
        self._not_after_s = not_after_s
        self._zone = zone or UTC
        self._latest: float | None = None

    def read(self, text: str) -> float | None:
        """Return when a line was written [s since 1970]; ``None`` where it has no time."""
        cancelled = _CANCELLED.search(text)
        head = cancelled[1] if cancelled else text[:_HEAD]
        time_s = self._read_stated(head)
        if time_s is None:
            time_s = (
                self._read_glog(head)
                or self._read_dated(_SYSLOG, head)
                or self._read_dated(_US, head)
                or self._read_clock(head)
            )
        if time_s is not None:
            self._latest = time_s
        return time_s

    def _read_stated(self, head: str) -> float | None:
        """Read ISO and its kin."""
        time_s = parse_timestamp_unix_s(head)
        if time_s is None or re.search(r"[Zz]|[+-]\d{2}:?\d{2}\b", head[19:40]):
            return time_s
        return time_s - self._utc_offset_s(time_s)

    def _utc_offset_s(self, naive_s: float) -> float:
        """Return how far the zone is ahead of UTC at this wall clock [s]."""
        offset = datetime.fromtimestamp(naive_s, UTC).replace(tzinfo=self._zone).utcoffset()
        return offset.total_seconds() if offset else 0.0

    def _read_glog(self, head: str) -> float | None:
        """Read ``E321 02:07:08.4``: month and day without a year, the month without a leading zero."""
        match = _GLOG.search(head)
        if match is None:
            return None
        date, moments = match["date"], []
        for cut in range(1, len(date)):
            month, day = int(date[:cut]), int(date[cut:])
            moments.append(self._build_moment(None, month, day, match))
        return self._pick_nearest([each for each in moments if each is not None])

    def _read_dated(self, pattern: re.Pattern[str], head: str) -> float | None:
        """Read syslog's and American dates."""
        match = pattern.search(head)
        if match is None:
            return None
        groups = match.groupdict()
        month = _MONTHS.index(groups["month"]) + 1 if groups["month"] in _MONTHS else int(groups["month"])
        year = groups.get("year") or groups.get("after")
        return self._build_moment(int(year) if year else None, month, int(groups["day"]), match)

    def _read_clock(self, head: str) -> float | None:
        """Read a clock without a date: the day is that of the line before, or of the end."""
        match = _CLOCK.search(head)
        anchor = self._latest if self._latest is not None else self._not_after_s
        if match is None or anchor is None:
            return None
        day = datetime.fromtimestamp(anchor, self._zone)
        first = self._build_moment(day.year, day.month, day.day, match)
        return None if first is None else self._pick_nearest([first - _DAY_S, first, first + _DAY_S])

    def _build_moment(self, year: int | None, month: int, day: int, match: re.Match[str]) -> float | None:
        """Return a moment; without a year the latest that is not after the end."""
        part = (match.groupdict().get("part") or "").replace(",", ".")
        clock = (int(match["hour"]), int(match["minute"]), int(match["second"]))
        if year is not None:
            return self._to_unix_s(year, month, day, clock, part)
        if self._not_after_s is None:
            return None
        last = datetime.fromtimestamp(self._not_after_s, self._zone).year
        for guess in (last, last - 1, last - 2, last - 3, last - 4):
            time_s = self._to_unix_s(guess, month, day, clock, part)
            if time_s is not None and time_s <= self._not_after_s + _DAY_S:
                return time_s
        return None

    def _to_unix_s(self, year: int, month: int, day: int, clock: tuple[int, int, int], part: str) -> float | None:
        """Return a wall clock as seconds since 1970; ``None`` where there is no such day."""
        try:
            whole = datetime(year, month, day, clock[0], clock[1], min(clock[2], 59), tzinfo=self._zone)
        except ValueError:
            return None
        return whole.timestamp() + (float(f"0{part}") if part else 0.0)

    def _pick_nearest(self, moments: list[float]) -> float | None:
        """Return the moment nearest to the line before, or to the end."""
        anchor = self._latest if self._latest is not None else self._not_after_s
        allowed = [each for each in moments if self._not_after_s is None or each <= self._not_after_s + _DAY_S]
        if anchor is None or not allowed:
            return allowed[0] if allowed else None
        return min(allowed, key=lambda each: abs(each - anchor))

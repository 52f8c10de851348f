"""When was a line written? The forms that training logs, launchers and glog write, as seconds since 1970."""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo

from opsk.telemetry.progress.values import stamp_unix_s

_HEAD = 160
"""A time stamp stands before the message; dates further behind are what the message is about."""
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
        No line is later than this (when the file was last written, or the job ended) [s since 1970]: tells the year,
        or the day, where a line does not.
    zone
        Zone of clocks that state none; UTC when ``None``.
    """

    def __init__(self, not_after_s: float | None = None, zone: tzinfo | None = None) -> None:
        self._not_after_s = not_after_s
        self._zone = zone or UTC
        self._latest: float | None = None

    def read(self, text: str) -> float | None:
        """Return when a line was written [s since 1970]; ``None`` where it does not say."""
        cancelled = _CANCELLED.search(text)
        head = cancelled[1] if cancelled else text[:_HEAD]
        found = self._stated(head)
        if found is None:
            found = self._glog(head) or self._dated(_SYSLOG, head) or self._dated(_US, head) or self._clock(head)
        if found is not None:
            self._latest = found
        return found

    def _stated(self, head: str) -> float | None:
        """Read ISO and its kin."""
        found = stamp_unix_s(head)
        if found is None or re.search(r"[Zz]|[+-]\d{2}:?\d{2}\b", head[19:40]):
            return found
        return found - self._ahead_s(found)

    def _ahead_s(self, naive_s: float) -> float:
        """Return how far the zone is ahead of UTC at this wall clock [s]."""
        offset = datetime.fromtimestamp(naive_s, UTC).replace(tzinfo=self._zone).utcoffset()
        return offset.total_seconds() if offset else 0.0

    def _glog(self, head: str) -> float | None:
        """Read ``E321 02:07:08.4``: month and day without a year, the month without a leading zero."""
        found = _GLOG.search(head)
        if found is None:
            return None
        date, moments = found["date"], []
        for cut in range(1, len(date)):
            month, day = int(date[:cut]), int(date[cut:])
            moments.append(self._moment(None, month, day, found))
        return self._nearest([each for each in moments if each is not None])

    def _dated(self, pattern: re.Pattern[str], head: str) -> float | None:
        """Read syslog's and American dates."""
        found = pattern.search(head)
        if found is None:
            return None
        groups = found.groupdict()
        month = _MONTHS.index(groups["month"]) + 1 if groups["month"] in _MONTHS else int(groups["month"])
        year = groups.get("year") or groups.get("after")
        return self._moment(int(year) if year else None, month, int(groups["day"]), found)

    def _clock(self, head: str) -> float | None:
        """Read a clock without a date: the day is that of the line before, or of the end."""
        found = _CLOCK.search(head)
        anchor = self._latest if self._latest is not None else self._not_after_s
        if found is None or anchor is None:
            return None
        day = datetime.fromtimestamp(anchor, self._zone)
        first = self._moment(day.year, day.month, day.day, found)
        return None if first is None else self._nearest([first - _DAY_S, first, first + _DAY_S])

    def _moment(self, year: int | None, month: int, day: int, found: re.Match[str]) -> float | None:
        """Return a moment; without a year the latest that is not after the end."""
        part = (found.groupdict().get("part") or "").replace(",", ".")
        clock = (int(found["hour"]), int(found["minute"]), int(found["second"]))
        if year is not None:
            return self._at(year, month, day, clock, part)
        if self._not_after_s is None:
            return None
        last = datetime.fromtimestamp(self._not_after_s, self._zone).year
        for guess in (last, last - 1, last - 2, last - 3, last - 4):
            at = self._at(guess, month, day, clock, part)
            if at is not None and at <= self._not_after_s + _DAY_S:
                return at
        return None

    def _at(self, year: int, month: int, day: int, clock: tuple[int, int, int], part: str) -> float | None:
        """Return a wall clock as seconds since 1970; ``None`` where there is no such day."""
        try:
            whole = datetime(year, month, day, clock[0], clock[1], min(clock[2], 59), tzinfo=self._zone)
        except ValueError:
            return None
        return whole.timestamp() + (float(f"0{part}") if part else 0.0)

    def _nearest(self, moments: list[float]) -> float | None:
        """Return the moment nearest to the line before, or to the end."""
        anchor = self._latest if self._latest is not None else self._not_after_s
        allowed = [each for each in moments if self._not_after_s is None or each <= self._not_after_s + _DAY_S]
        if anchor is None or not allowed:
            return allowed[0] if allowed else None
        return min(allowed, key=lambda each: abs(each - anchor))

"""In which year were logs written whose lines tell none? Other logs of the job tell it, or the file's own time does.

glog and syslog write no year, and a file's time is that of the last copy as often as of the last line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from opsk.errors import InputError
from opsk.postmortem.logs.pieces import BROKEN, opened, taken
from opsk.units import KIB

_LOOKED_AT_BYTES = 16 * KIB
_ISO = re.compile(
    rb"(?m)(?:^[^\n]{0,48}?|CANCELLED AT )(?P<date>20\d\d-[01]\d-[0-3]\d)[T _](?P<time>[0-2]\d:[0-5]\d:[0-5]\d)"
)
_CTIME = re.compile(
    rb"(?m)^[^\n]{0,24}?\[?[A-Z][a-z]{2} (?P<date>[A-Z][a-z]{2} [ \d]\d) (?P<time>[0-2]\d:[0-5]\d:[0-5]\d)"
    rb" (?P<year>20\d\d)"
)
_HALF_A_YEAR_S = 183 * 86400.0


def stated_end_s(paths: Iterable[Path]) -> float | None:
    """Return a time after which no line was written, by the dates in logs that tell the year; ``None`` without any.

    Half a year behind the last of them: enough to tell the year of what has none, and no run is in doubt for so long.
    """
    latest = max((at for path in paths for at in _stated(path)), default=None)
    return latest + _HALF_A_YEAR_S if latest is not None else None


def _stated(path: Path) -> list[float]:
    """Return the times with a year at the beginning and the end of a log [s since 1970], zones aside."""
    data = _ends(path)
    found = [(each["date"] + b" " + each["time"], "%Y-%m-%d %H:%M:%S") for each in _ISO.finditer(data)][-64:]
    found += [
        (each["year"] + b" " + each["date"] + b" " + each["time"], "%Y %b %d %H:%M:%S")
        for each in _CTIME.finditer(data)
    ][-64:]
    times = []
    for text, form in found:
        try:
            times.append(datetime.strptime(text.decode("ascii"), form).replace(tzinfo=UTC).timestamp())
        except ValueError:
            continue
    return times


def _ends(path: Path) -> bytes:
    """Return the first and the last bytes of a log; of a compressed one the first."""
    try:
        with opened(path) as stream:
            start, _ = taken(stream, _LOOKED_AT_BYTES)
        with path.open("rb") as raw:
            if raw.read(2) != start[:2]:
                return start
            raw.seek(max(0, os.fstat(raw.fileno()).st_size - _LOOKED_AT_BYTES))
            return start + b"\n" + raw.read(_LOOKED_AT_BYTES)
    except (InputError, *BROKEN):
        return b""

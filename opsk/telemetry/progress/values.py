"""Parses numbers, sizes, durations and timestamps of logs into SI units."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

NUMBER = r"[-+]?(?:\d+(?:,\d{3})*(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|NaN|NAN|inf|Inf|INF|Infinity)"
_NUMBER = re.compile(rf"\s*['\"]?({NUMBER})\s*([KMBGT]?)(?![\w])", re.ASCII)
_SCALE = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}
_SIZE = re.compile(rf"\s*({NUMBER})\s*([KMGT]?)(i?)B", re.ASCII | re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_STAMP = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})[ T](\d{2}):(\d{2}):(\d{2})(?:[.,](\d{1,9}))?\s?(Z|[+-]\d{2}:?\d{2})?", re.ASCII
)
_LOOKED_AT = 160
"""A line's time stands near its beginning."""


def parse_number(text: str) -> float | None:
    """Return the number that a text begins with: ``1,234.5``, ``1.23K``, ``nan``; ``None`` when there is none."""
    match = _NUMBER.match(text)
    if match is None:
        return None
    try:
        return float(match[1].replace(",", "")) * _SCALE[match[2]]
    except ValueError:
        return None


def parse_positive(text: str) -> float | None:
    """Return the number that a text begins with if it can be a time or a rate."""
    value = parse_number(text)
    return value if value is not None and math.isfinite(value) and value > 0 else None


def parse_whole(text: str) -> int | None:
    """Return a whole number: ``1,000`` and ``794.0`` too."""
    value = parse_number(text)
    return int(value) if value is not None and math.isfinite(value) and 0 <= value < 1e15 else None


def parse_size_bytes(text: str, *, binary: bool = True) -> float | None:
    """Return a size in bytes; what is called GB is 2**30 bytes where a framework means that."""
    match = _SIZE.match(text)
    value = parse_number(match[1]) if match else None
    if match is None or value is None or not math.isfinite(value) or value < 0:
        return None
    base = 1024.0 if binary or match[3] else 1000.0
    return float(value * base ** _POWERS[match[2].upper()])


def parse_timestamp_unix_s(text: str) -> float | None:
    """Return the time that stands near the beginning of a line [s since 1970]; without a zone it is read as UTC."""
    match = _STAMP.search(text, 0, _LOOKED_AT)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(match[group]) for group in range(1, 7))
    try:
        whole_s = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=UTC).timestamp()
    except ValueError:
        return None
    return whole_s + (float(f"0.{match[7]}") if match[7] else 0.0) - _parse_zone_s(match[8])


def _parse_zone_s(text: str | None) -> float:
    """Return how far a zone is ahead of UTC [s]."""
    if not text or text == "Z":
        return 0.0
    ahead = int(text[1:3]) * 3600.0 + int(text[-2:]) * 60.0
    return -ahead if text[0] == "-" else ahead


def parse_duration_s(text: str) -> float | None:
    """Return ``H:MM:SS``, ``MM:SS`` or ``1 day, H:MM:SS`` in seconds."""
    days, _, clock = text.rpartition("day")
    parts = clock.lstrip("s, ").split(":")
    if not 2 <= len(parts) <= 3 or not all(part.strip().isdecimal() and len(part) < 8 for part in parts):
        return None
    seconds = 0
    for part in parts:
        seconds = seconds * 60 + int(part)
    return seconds + 86400.0 * (parse_whole(days) or 0)


def split_piped_fields(text: str) -> Iterator[tuple[str, str]]:
    """Yield name and value of ``name: value | name: value |``, names in lower case."""
    for part in text.split("|"):
        name, sign, value = part.rpartition(":")
        if sign:
            yield name.strip().lower(), value.strip()


def drop_missing(**values: float | None) -> Mapping[str, float]:
    """Return the values that are there."""
    return {name: value for name, value in values.items() if value is not None}

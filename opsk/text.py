r"""Formats values for people and programs, and escapes untrusted text.

Everything that a user, a log or a device supplies goes through `escape` or `blank_controls` before it reaches a
terminal, a report or a metric.
"""

from __future__ import annotations

import dataclasses
import json
import math
import unicodedata
from collections.abc import Collection, Mapping
from datetime import date
from enum import Enum
from pathlib import PurePath
from typing import Any

from opsk.units import GIB, MIB

_MAX_ASCII = 0x7F
_BLANKS = "\n\r\t\v\f"
MAX_MESSAGE_CHARS = 200
"""Maximum length of messages of other programs."""


def escape(text: str) -> str:
    r"""Return text with invisible characters written as ``\xNN`` or ``\uNNNN``, safe for a terminal.

    These are control characters, invisible and direction marks, lone surrogates, and unassigned code points. New lines,
    tabs and other blanks become spaces: an untrusted value can never start a new line.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    if char in _BLANKS or unicodedata.category(char) == "Zs":
        return " "
    return char.encode("ascii", "backslashreplace").decode() if ord(char) > _MAX_ASCII else f"\\x{ord(char):02x}"


def blank_controls(text: str, *, max_chars: int = MAX_MESSAGE_CHARS) -> str:
    """Return the start of a text as one printable line, with a space for each invisible character."""
    return "".join(char if char.isprintable() else " " for char in text[:max_chars])


def to_json_values(value: Any) -> Any:
    """Return ``value`` as dicts, lists, strings and numbers; sets are sorted, NaN and infinity become ``None``."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: to_json_values(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return to_json_values(value.value)
    if isinstance(value, Mapping):
        return {str(to_json_values(key)): to_json_values(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_values(entry) for entry in value]
    if isinstance(value, set | frozenset):
        return sorted((to_json_values(entry) for entry in value), key=lambda entry: (str(type(entry)), str(entry)))
    if hasattr(value, "tolist"):  # a numpy array or scalar, without importing numpy
        return to_json_values(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value


def read_fields(value: Any, *properties: str, without: Collection[str] = ()) -> dict[str, Any]:
    """Return the fields of a dataclass, unchanged, and the named properties; ``without`` some."""
    names = (*(item.name for item in dataclasses.fields(value)), *properties)
    return {name: getattr(value, name) for name in names if name not in without}


def format_json(value: Any) -> str:
    """Format an answer for programs: one JSON document, in ASCII."""
    return json.dumps(to_json_values(value), indent=2, ensure_ascii=True)


def format_count(number: int, noun: str) -> str:
    """Format a number with its noun: ``1 job``, ``2 jobs``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def format_bytes(size_bytes: float) -> str:
    """Format a size for people, in GiB with one decimal (MiB below one tenth of a GiB)."""
    if abs(size_bytes) < GIB / 10:
        return f"{size_bytes / MIB:.0f} MiB"
    return f"{size_bytes / GIB:.1f} GiB"


def format_share(ratio: float) -> str:
    """Format a share for people, in percent; shares just below 100 % or above 0 % are not rounded to these."""
    text = f"{ratio:.0%}"
    if text == "100%" and ratio < 1:
        return "> 99%"
    return "< 1%" if text == "0%" and ratio > 0 else text


def format_change(change: float, *, more: str, less: str, same: str = "same", digits: int = 1) -> str:
    """Format a difference with its direction in words, never with a sign: ``4.1% slower``, ``20.0% cheaper``.

    Parameters
    ----------
    change
        Share by which a value is above, or below zero under, what it is compared with.
    more, less
        Words for a value above, and for one below.
    same
        What is printed where the difference rounds to nothing.
    digits
        Decimals of the percentage.
    """
    size = f"{abs(change):.{digits}%}"
    if not math.isfinite(change):
        return "unknown"
    return f"{size} {more if change > 0 else less}" if float(size.rstrip("%")) else same


def format_duration(duration_s: float) -> str:
    """Format a duration for people: ``850 ms``, ``13.7 s``, ``12 min``, ``3.2 h``, ``33.4 days``, ``unknown``."""
    if not math.isfinite(duration_s):
        return "unknown"
    # from 0.9995 s on, three digits of milliseconds would round to 1e+03
    for limit, divisor, unit in (
        (0.9995, 1e-3, "ms"),
        (120.0, 1.0, "s"),
        (7200.0, 60.0, "min"),
        (172800.0, 3600.0, "h"),
    ):
        if abs(duration_s) < limit:
            return f"{duration_s / divisor:.3g} {unit}"
    days = duration_s / 86400
    return f"{days:,.0f} days" if abs(days) >= 999.95 else f"{days:.1f} days"

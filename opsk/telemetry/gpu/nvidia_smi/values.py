"""What does a value of nvidia-smi mean: a quantity (in SI units), a word, or one of its ways to say nothing?"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum

from opsk import units
from opsk.text import blank_controls

_NUMBER = re.compile(r"(-?\d{1,18}(?:\.\d{1,9})?)(?:\s{0,4}([A-Za-z%/][A-Za-z%/()]{0,11}))?")


class Absent(StrEnum):
    """Why there is no value; `is_error` tells bad news from "this GPU has no such thing"."""

    NOT_APPLICABLE = "n/a"
    NOT_SUPPORTED = "not supported"
    DEPRECATED = "requested functionality has been deprecated"
    NOT_FOUND = "not found"
    NO_PERMISSION = "insufficient permissions"
    LOST = "gpu is lost"
    RESET_REQUIRED = "gpu requires reset"
    UNKNOWN_ERROR = "unknown error"
    ERROR = "error"
    """Any other error that is not a value."""

    @property
    def is_error(self) -> bool:
        """Whether something is wrong with the GPU or its driver."""
        return self in {Absent.LOST, Absent.RESET_REQUIRED, Absent.UNKNOWN_ERROR, Absent.ERROR}


_ERRORS = ("timeout", "err!", "[gpu requires reset]", "fabric manager is not running", "driver not loaded")
_WORDS = {word.value: word for word in Absent if word is not Absent.ERROR} | {
    "na": Absent.NOT_APPLICABLE,
    "-": Absent.NOT_APPLICABLE,
    "": Absent.NOT_APPLICABLE,
    "unknown": Absent.NOT_APPLICABLE,
    "not available": Absent.NOT_APPLICABLE,
    "deprecated": Absent.DEPRECATED,
    "gpu requires restart": Absent.RESET_REQUIRED,
    "requires reset": Absent.RESET_REQUIRED,
    "function not found": Absent.NOT_SUPPORTED,
    "not implemented": Absent.NOT_SUPPORTED,
}


def absent(value: str | None) -> Absent | None:
    """Return why ``value`` is none; ``None`` for a value.

    Examples
    --------
    >>> absent("[Not Supported]"), absent("42 W")
    (<Absent.NOT_SUPPORTED: 'not supported'>, None)
    """
    if value is None:
        return Absent.NOT_APPLICABLE
    word = value.strip().strip("[]").strip().rstrip(".").casefold()
    found = _WORDS.get(word)
    if found is not None:
        return found
    if "gpu is lost" in word:
        return Absent.LOST
    return Absent.ERROR if word in _ERRORS or word.endswith(" error") or word.startswith("err") else None


_UNITS: dict[str, Callable[[float], float]] = {
    "": float,
    "b": float,
    "kib": lambda value: value * units.KIB,
    "mib": lambda value: value * units.MIB,
    "gib": lambda value: value * units.GIB,
    "gb/s": lambda value: value * units.GB,
    "w": float,
    "mw": units.milli,
    "c": float,
    "mhz": units.megahertz,
    "%": units.percent,
    "us": units.micro,
    "ms": units.milliseconds,
    "s": float,
    "x": float,
    "bank(s)": float,
    "j": float,
    "mj": units.milli,
}


def quantity(value: str | None, unit: str | None = None) -> float | None:
    """Return a value in SI units; ``None`` when it is none, or has a unit that is not known.

    Parameters
    ----------
    value
        ``81559 MiB``, ``588.39 W``, ``11 %``, ``16x``.
    unit
        Unit for a number that states none.

    Examples
    --------
    >>> quantity("1980 MHz"), quantity("11 %"), quantity("N/A")
    (1980000000.0, 0.11, None)
    """
    found = _NUMBER.fullmatch(value.strip()) if value else None
    if found is None:
        return None
    convert = _UNITS.get((found[2] or unit or "").casefold())
    return None if convert is None else convert(float(found[1]))


def whole(value: str | None) -> int | None:
    """Return a count; ``None`` when the value is none."""
    found = quantity(value)
    return int(found) if found is not None and found >= 0 else None


def flag(value: str | None) -> bool | None:
    """Return what ``Yes``, ``Enabled``, ``Active``, ``True`` and their opposites say."""
    word = (value or "").strip().casefold()
    if word in {"yes", "enabled", "active", "true", "on"}:
        return True
    return False if word in {"no", "disabled", "not active", "false", "off", "inactive"} else None


def printable(text: str) -> str:
    """Return text without signs that cannot be seen, cut."""
    return blank_controls(text).strip()


def word(value: str | None) -> str | None:
    """Return a value as text, printable and cut; ``None`` when it is none."""
    if value is None or absent(value) is not None:
        return None
    return printable(value) or None


def name(value: str | None) -> str | None:
    """Return a word of nvidia-smi in the form of opsk: ``In Progress`` as ``in_progress``."""
    found = word(value)
    return None if found is None else re.sub(r"[^a-z0-9]+", "_", found.casefold()).strip("_") or None

"""How is an answer printed: one JSON document for programs, and text that no input can turn into terminal control?"""

from __future__ import annotations

import dataclasses
import json
import math
import unicodedata
from collections.abc import Mapping
from datetime import date
from enum import Enum
from pathlib import PurePath
from typing import Any

import click

_ASCII = 0x7F


def plain(value: Any) -> Any:
    """Return ``value`` as dicts, lists, strings and numbers; sets are sorted, NaN and infinity become ``None``."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, set | frozenset):
        return sorted((plain(entry) for entry in value), key=lambda entry: (str(type(entry)), str(entry)))
    if hasattr(value, "tolist"):  # a numpy array or scalar, without importing numpy for those who use none
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value


def echo_json(document: Any) -> None:
    """Print one JSON document on stdout."""
    click.echo(json.dumps(plain(document), indent=2, ensure_ascii=True))


def harmless(text: str) -> str:
    r"""Return hostile text with signs that cannot be seen shown as ``\xNN`` or ``\uNNNN``, safe for a terminal.

    These are control characters, invisible and direction marks, lone surrogates, and what is not in Unicode.
    New lines, tabs and other blanks become spaces: one hostile value can never start a line of its own.
    """
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else _shown(sign) for sign in text)


def _shown(sign: str) -> str:
    if sign in "\n\t" or unicodedata.category(sign) == "Zs":
        return " "
    return sign.encode("ascii", "backslashreplace").decode() if ord(sign) > _ASCII else f"\\x{ord(sign):02x}"

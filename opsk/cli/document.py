"""How is an answer printed: one JSON document for programs, and text that no input can turn into terminal control?"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any

import click

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]")


def plain(value: Any) -> Any:
    """Return ``value`` as dicts, lists, strings and numbers; NaN and infinity become ``None``."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(entry) for entry in value]
    if hasattr(value, "item") and not isinstance(value, str | bytes):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, PurePath):
        return str(value)
    return value


def echo_json(document: Any) -> None:
    """Print one JSON document on stdout."""
    click.echo(json.dumps(plain(document), indent=2, ensure_ascii=True))


def harmless(text: str) -> str:
    r"""Return hostile text with control and direction characters shown as ``\xNN``, safe for a terminal.

    Tabs and new lines become spaces: one hostile value can never start a line of its own.
    """
    one_line = text.replace("\n", " ").replace("\t", " ")
    return _CONTROL.sub(lambda match: f"\\x{ord(match.group()):02x}", one_line)

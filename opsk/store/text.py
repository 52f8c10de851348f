"""Replaces characters in texts that no database can store: NUL and lone surrogates.

PostgreSQL refuses NUL, and all databases refuse surrogates, which represent bytes of a file's name that are not UTF-8.
Each becomes the replacement character, so that text that a user has written can never prevent a record from being
stored.
"""

from __future__ import annotations

import re
from typing import Any

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def sanitise_text(text: str) -> str:
    """Return a text without what no database holds."""
    return _UNSTORABLE.sub(REPLACEMENT, text)


def sanitise_texts(value: Any) -> Any:
    """Return a JSON value with all its texts, keys too, as they are stored."""
    if isinstance(value, str):
        return sanitise_text(value)
    if isinstance(value, dict):
        return {
            sanitise_text(key) if isinstance(key, str) else key: sanitise_texts(entry) for key, entry in value.items()
        }
    if isinstance(value, list | tuple):
        return [sanitise_texts(entry) for entry in value]
    return value

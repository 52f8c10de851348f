"""What is kept of a text that no database could hold as it is? All of it but NUL and lone surrogates.

PostgreSQL refuses NUL, and every one refuses surrogates, which stand for bytes of a file's name that are no UTF-8.
Each becomes the replacement character, so that what a user has written can never keep a record out.
"""

from __future__ import annotations

import re
from typing import Any

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_UNKEPT = re.compile("[\x00\ud800-\udfff]")


def kept_text(text: str) -> str:
    """Return a text without what no database holds."""
    return _UNKEPT.sub(REPLACEMENT, text)


def kept_texts(value: Any) -> Any:
    """Return what JSON can say with all its texts, keys too, as they are kept."""
    if isinstance(value, str):
        return kept_text(value)
    if isinstance(value, dict):
        return {kept_text(key) if isinstance(key, str) else key: kept_texts(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [kept_texts(entry) for entry in value]
    return value

"""Replaces characters in texts that no database can store: NUL and lone surrogates.

PostgreSQL refuses NUL, and all databases refuse surrogates, which represent bytes of a file's name that are not UTF-8.
Each becomes the replacement character, so that text that a user has written can never prevent a record from being
stored.
"""

from __future__ import annotations

import re
import zlib
from typing import Any

from opsk.errors import InputError

_MAX_CONTENT_BYTES = 1 << 29


def decompress(content: bytes, source: str) -> bytes:
    """Return what gzip holds.

    Raises
    ------
    InputError
        It is damaged, cut off, or more than opsk ever stores.
    """
    stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        done = stream.decompress(content, _MAX_CONTENT_BYTES)
    except zlib.error as error:
        raise InputError(f"{source}: damaged in the store: {error}", hint="save it again") from error
    if not stream.eof:
        raise InputError(f"{source}: damaged in the store: it is cut off", hint="save it again")
    return done


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

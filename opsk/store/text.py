"""What is kept of a text that no database could hold as it is? All of it but NUL and lone surrogates.

PostgreSQL refuses NUL, and every one refuses surrogates, which stand for bytes of a file's name that are no UTF-8.
Each becomes the replacement character, so that what a user has written can never keep a record out.
"""

from __future__ import annotations

import re
import zlib
from typing import Any

from opsk.errors import InputError

_MAX_CONTENT_BYTES = 1 << 29


def unpacked(content: bytes, source: str) -> bytes:
    """Return what gzip holds.

    Raises
    ------
    InputError
        It is damaged, cut off, or more than opsk ever keeps.
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

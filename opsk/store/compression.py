"""Unpacks gzip content of the store without trust: the database may be anybody's."""

from __future__ import annotations

import zlib

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

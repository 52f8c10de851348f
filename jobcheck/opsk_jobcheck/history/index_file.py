"""Writes and reads the file of earlier runs: documents by hashed key, looked up without reading the rest.

The file is a header (JSON), the keys in their order, the places of the documents, and the documents. It is replaced as
a whole, so a reader sees the old file or the new one.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import struct
from bisect import bisect_left
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

FILE_NAME = "history"
_MAGIC = b"opsk history 1\n"
_LENGTHS = struct.Struct("<II")
_PLACE = struct.Struct("<QI")
_KEY_BYTES = 16
Level = Literal["script", "command"]
"""Whether a key is that of a script, or of its commands alone."""


def build_key(uid: int, level: Level, key: str) -> bytes:
    """Return the key of a user's program: nobody else's program has the same."""
    return hashlib.blake2b(f"{uid} {level} {key}".encode(), digest_size=_KEY_BYTES).digest()


def build_account_key(account: str, level: Level, key: str) -> bytes:
    """Return the key of a program of an account; only its coordinators are looked up by it."""
    return hashlib.blake2b(f"account {account}\0{level} {key}".encode(), digest_size=_KEY_BYTES).digest()


def write_index(path: Path, documents: Mapping[bytes, bytes], header: Mapping[str, Any]) -> None:
    """Replace the file; it can be read by this user alone.

    Raises
    ------
    OSError
        There is no room, or the folder is gone.
    """
    keys = sorted(documents)
    head = json.dumps(header).encode("ascii")
    offset = len(_MAGIC) + _LENGTHS.size + len(head) + len(keys) * (_KEY_BYTES + _PLACE.size)
    places = bytearray()
    for key in keys:
        places += _PLACE.pack(offset, len(documents[key]))
        offset += len(documents[key])
    draft = path.with_name(f"{path.name}.new")
    with os.fdopen(os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(_MAGIC + _LENGTHS.pack(len(head), len(keys)) + head)
        file.write(b"".join(keys))
        file.write(places)
        file.writelines(documents[key] for key in keys)
    draft.replace(path)


class IndexFile:
    """The file as it was when it was opened.

    Raises
    ------
    OSError
        It cannot be read.
    ValueError
        It is no such file.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        start = len(_MAGIC) + _LENGTHS.size
        if self._map[: len(_MAGIC)] != _MAGIC or len(self._map) < start:
            raise ValueError(f"{path} is no file of earlier runs")
        head_length, self._count = _LENGTHS.unpack_from(self._map, len(_MAGIC))
        self._keys_at = start + head_length
        self._places_at = self._keys_at + self._count * _KEY_BYTES
        if len(self._map) < self._places_at + self._count * _PLACE.size:
            raise ValueError(f"{path} is torn")
        self.header: Mapping[str, Any] = json.loads(self._map[start : start + head_length])

    def find(self, key: bytes) -> bytes | None:
        """Return the document with a key; ``None``: there is none."""
        index = bisect_left(range(self._count), key, key=self._key)
        if index == self._count or self._key(index) != key:
            return None
        offset, length = _PLACE.unpack_from(self._map, self._places_at + index * _PLACE.size)
        return self._map[offset : offset + length]

    def close(self) -> None:
        """Release the file."""
        with suppress(BufferError):
            self._map.close()

    def _key(self, index: int) -> bytes:
        start = self._keys_at + index * _KEY_BYTES
        return self._map[start : start + _KEY_BYTES]

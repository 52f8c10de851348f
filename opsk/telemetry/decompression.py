"""Decompresses logs as streams in bounded memory: gzip, bzip2 and xz.

gzip and bzip2 need little memory whatever a file contains. An xz file states the memory that it needs, up to 4 GiB: a
file that needs more than the presets of xz do is refused.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from collections.abc import Callable
from typing import IO, Any, cast

from opsk.units import MIB

XZ_MEMORY_BYTES = 128 * MIB
"""``xz -9`` takes 65 MiB to unpack (xz(1), table of presets)."""
_CHUNK_BYTES = 1 << 16
_XZ = b"\xfd7zXZ\x00"
_MAGIC: tuple[tuple[bytes, Callable[[IO[bytes]], IO[bytes]]], ...] = (
    (b"\x1f\x8b", lambda raw: cast("IO[bytes]", gzip.GzipFile(fileobj=raw))),
    (b"BZh", bz2.BZ2File),
    (_XZ, lambda raw: cast("IO[bytes]", io.BufferedReader(_Xz(raw)))),
)
HEAD_BYTES = 8


def open_decompressed(raw: IO[bytes], head: bytes) -> IO[bytes]:
    """Return a stream of the decompressed content, by its magic bytes; the stream itself where it is not compressed.

    Reading raises ``EOFError``, ``OSError``, ``zlib.error`` or ``lzma.LZMAError`` where it is truncated, damaged, or
    needs too much memory.
    """
    return next((opened(raw) for magic, opened in _MAGIC if head.startswith(magic)), raw)


class _Xz(io.RawIOBase):
    """The content of an xz file: its streams, concatenated."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._ahead = b""
        self._stream = self._next()

    @staticmethod
    def _next() -> lzma.LZMADecompressor:
        return lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=XZ_MEMORY_BYTES)

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def close(self) -> None:
        """Close the file, too."""
        self._raw.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer as far as one decompression step goes; 0 at the end."""
        view = memoryview(buffer).cast("B")
        data = b""
        while not data:
            if self._stream.eof and not self._start_next_stream():
                return 0
            given = b""
            if self._stream.needs_input:
                given, self._ahead = self._ahead or self._raw.read(_CHUNK_BYTES), b""
                if not given:
                    raise EOFError("it ends in the middle")
            data = self._stream.decompress(given, len(view))
        view[: len(data)] = data
        return len(data)

    def _start_next_stream(self) -> bool:
        """Start the next stream after the padding; return whether there is one: other bytes there are ignored."""
        ahead = self._stream.unused_data.lstrip(b"\0")
        while len(ahead) < HEAD_BYTES and (more := self._raw.read(_CHUNK_BYTES)):
            ahead = (ahead + more).lstrip(b"\0")
        if not ahead.startswith(_XZ):
            return False
        self._stream, self._ahead = self._next(), ahead
        return True

"""Reads a log of any size in constant memory, in pieces that end with a line: gz, xz, bz2 or plain."""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from opsk.errors import InputError
from opsk.telemetry.decompression import HEAD_BYTES, open_decompressed
from opsk.units import KIB, MIB

PIECE_BYTES = MIB
MAX_REST_BYTES = 128 * KIB
"""This much of a line without an end is carried over; the rest is scanned where it is."""
EXCEPTION_REACH_BYTES = 24 * KIB
"""The exception is at most this far after the head of a traceback, and the two are not separated."""
_LONGEST_KERNEL_LINE_BYTES = 1 << 17
_LONGEST_BEFORE_BYTES = 256
_TRACEBACK = b"Traceback (most recent call last):"
OVERLAP_BYTES = 512
"""Longer than any fragment: a fragment cut in two is found in the next piece."""
BROKEN = (OSError, EOFError, lzma.LZMAError, zlib.error)
"""Exceptions of a damaged compressed file, wherever it ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Some whole lines of a log: bytes, the number of the first line (from 1), and whether it is the last piece."""

    data: bytes
    line: int
    offset: int
    is_last: bool = False


def open_log(path: Path) -> IO[bytes]:
    """Open a log, decompressed by its content, not by its name.

    Raises
    ------
    InputError
        It cannot be read, or is no file.
    """
    try:
        if not path.is_file():
            what = "a folder" if path.is_dir() else "no regular file" if path.exists() else "not there"
            raise InputError(f"{path}: {what}", hint="name the log files themselves")
        raw = path.open("rb")
        return open_decompressed(raw, raw.peek(HEAD_BYTES)[:HEAD_BYTES])
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}", hint="check its rights") from error


def _find_open_traceback(data: bytes, cut: int) -> int:
    """Return where a line begins after which an exception may not have come yet; -1 where there is none."""
    position = data.find(_TRACEBACK, max(0, cut - EXCEPTION_REACH_BYTES), cut)
    if position < 0:
        return -1
    begin = max(data.rfind(b"\n", 0, position), data.rfind(b"\r", 0, position)) + 1
    # the line before shows whether it is ignored; after carriage returns or a long line it is not worth waiting for
    before = data.rfind(b"\n", max(0, begin - _LONGEST_BEFORE_BYTES), max(0, begin - 1)) + 1
    return before if before else begin


def read_bytes(stream: IO[bytes], max_bytes: int) -> tuple[bytes, Exception | None]:
    """Return the next bytes, fewer only at the end, and why it ended there where it is damaged.

    What precedes the damage is valid: a node that dies leaves compressed logs without an end.
    """
    read = getattr(stream, "read1", stream.read)
    parts, size = [], 0
    try:
        while size < max_bytes and (data := read(max_bytes - size)):
            parts.append(data)
            size += len(data)
    except BROKEN as error:
        return b"".join(parts), error
    return b"".join(parts), None


def read_pieces(stream: IO[bytes], *, max_bytes: int = PIECE_BYTES) -> Iterator[Piece]:
    """Yield a stream in pieces of whole lines; lines end with LF, CR or both.

    Raises
    ------
    OSError, EOFError, lzma.LZMAError, zlib.error
        It is damaged, after everything before the damage was yielded.
    """
    rest, line, offset = b"", 1, 0
    broken: Exception | None = None
    while broken is None:
        data, broken = read_bytes(stream, max_bytes)
        if not data:
            break
        whole = rest + data
        cut = max(whole.rfind(b"\n"), whole.rfind(b"\r")) + 1
        overlap = 0
        if (traceback := _find_open_traceback(whole, cut)) >= 0:
            cut = traceback
        elif not cut and len(whole) >= MAX_REST_BYTES:
            cut, overlap = len(whole), OVERLAP_BYTES
        if cut:
            yield Piece(data=whole[:cut], line=line, offset=offset)
            line += whole.count(b"\n", 0, cut)
            offset += cut - overlap
            rest = whole[cut - overlap :]
        else:
            rest = whole
    yield Piece(data=rest, line=line, offset=offset, is_last=True)
    if broken is not None:
        raise broken


class KernelLines:
    """The lines of a kernel log, as text: of a long one the beginning, to the end or to where it is damaged."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.problem = ""

    def __iter__(self) -> Iterator[str]:
        """Yield lines."""
        try:
            while raw := self._stream.readline(_LONGEST_KERNEL_LINE_BYTES):
                yield raw.decode("utf-8", "replace")
                while len(raw) == _LONGEST_KERNEL_LINE_BYTES and not raw.endswith(b"\n"):
                    raw = self._stream.readline(_LONGEST_KERNEL_LINE_BYTES)
        except BROKEN as error:
            self.problem = f"damaged: {error}"

"""Reads a log of any size in pieces that end with a line: of one that is too large, its beginning and its end."""

from __future__ import annotations

import io
import lzma
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from opsk.errors import InputError
from opsk.telemetry.decompression import HEAD_BYTES, open_decompressed
from opsk.units import GIB, KIB, MIB

PIECE_BYTES = MIB
MAX_REST_BYTES = 128 * KIB
"""This much of a line without an end is carried over; the rest is scanned where it is."""
EXCEPTION_REACH_BYTES = 24 * KIB
"""The exception is at most this far after the head of a traceback, and the two are not separated."""
_LONGEST_KERNEL_LINE_BYTES = 128 * KIB
_LONGEST_BEFORE_BYTES = 1024
TRACEBACK = b"Traceback (most recent call last):"
OVERLAP_BYTES = 512
"""Longer than any fragment: a fragment cut in two is found in the next piece."""
BROKEN = (OSError, EOFError, lzma.LZMAError, zlib.error)
"""Exceptions of a damaged compressed file, wherever it ends."""
LINES_BEFORE = 8
"""Other ranks may have written between two lines of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Some whole lines of a log.

    Parameters
    ----------
    line
        The number of the first line, from 1.
    is_last
        Nothing follows.
    is_near_end
        What follows, if anything, is less than a line.
    """

    data: bytes
    line: int
    offset: int
    is_last: bool = False
    is_near_end: bool = False
    is_numbered: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """How much of one log is read: all of it up to ``whole_bytes``, of a larger one its beginning and its end.

    What is compressed cannot be read from its end: of more than ``whole_bytes`` only that much is read.
    """

    whole_bytes: int = 4 * GIB
    head_bytes: int = 256 * MIB
    tail_bytes: int = GIB


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
    position = data.find(TRACEBACK, max(0, cut - EXCEPTION_REACH_BYTES), cut)
    if position < 0:
        return -1
    begin = max(data.rfind(b"\n", 0, position), data.rfind(b"\r", 0, position)) + 1
    # a line before shows whether it is ignored; after carriage returns or a long line it is not worth waiting for
    low = max(0, begin - _LONGEST_BEFORE_BYTES)
    for _ in range(LINES_BEFORE):
        before = data.rfind(b"\n", low, max(0, begin - 1)) + 1
        if not begin or (not before and low):
            break
        begin = before
    return begin


def read_bytes(stream: IO[bytes] | _Limited, max_bytes: int) -> tuple[bytes, Exception | None]:
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


def read_pieces(stream: IO[bytes] | _Limited, *, max_bytes: int = PIECE_BYTES) -> Iterator[Piece]:
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
            is_near_end = len(data) < max_bytes and cut > whole.rfind(b"\n")
            yield Piece(data=whole[:cut], line=line, offset=offset, is_near_end=is_near_end)
            line += whole.count(b"\n", 0, cut)
            offset += cut - overlap
            rest = whole[cut - overlap :]
        else:
            rest = whole
    yield Piece(data=rest, line=line, offset=offset, is_last=True, is_near_end=True)
    if broken is not None:
        raise broken


class _Limited:
    """The next bytes of a stream, and no more."""

    def __init__(self, stream: IO[bytes], max_bytes: int) -> None:
        self._read = getattr(stream, "read1", stream.read)
        self.remaining_bytes = max_bytes

    def read(self, max_bytes: int) -> bytes:
        """Return some of them."""
        data: bytes = self._read(min(max_bytes, self.remaining_bytes)) if self.remaining_bytes else b""
        self.remaining_bytes -= len(data)
        return data


def read_limited_pieces(stream: IO[bytes], limits: ReadLimits) -> Iterator[Piece]:
    """Yield a log in pieces as `read_pieces` does, of one that is too large only the beginning and the end.

    Raises
    ------
    OSError, EOFError, lzma.LZMAError, zlib.error
        It is damaged.
    """
    size = find_size_bytes(stream)
    if size is not None and size <= limits.whole_bytes:
        yield from read_pieces(stream)
        return
    head = _Limited(stream, limits.whole_bytes if size is None else limits.head_bytes)
    last_line = 1
    for piece in read_pieces(head):
        yield piece
        last_line = piece.line + piece.data.count(b"\n")
    if size is None:
        return
    start = size - limits.tail_bytes
    stream.seek(start)
    for piece in read_pieces(stream):
        yield replace(piece, offset=start + piece.offset, line=last_line + piece.line, is_numbered=False)


def describe_limits(stream: IO[bytes], limits: ReadLimits, read_bytes_in_all: int) -> str:
    """Return which part of a log was read, as text; empty where it was read whole."""
    size = find_size_bytes(stream)
    if size is None:
        is_cut = read_bytes_in_all >= limits.whole_bytes
        return f"only the first {_format_size(limits.whole_bytes)} of its content were read" if is_cut else ""
    if size <= limits.whole_bytes:
        return ""
    head, tail = _format_size(limits.head_bytes), _format_size(limits.tail_bytes)
    return f"only the first {head} and the last {tail} of {_format_size(size)} were read"


def find_size_bytes(stream: IO[bytes]) -> int | None:
    """Return the size of a file as it is; ``None`` of one that is decompressed."""
    raw = getattr(stream, "raw", None)
    return os.fstat(stream.fileno()).st_size if isinstance(raw, io.FileIO) else None


def _format_size(size_bytes: int) -> str:
    for unit, power in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if size_bytes >= power:
            return f"{size_bytes / power:.4g} {unit}"
    return f"{size_bytes} bytes"


KERNEL_LIMITS = ReadLimits(whole_bytes=256 * MIB, head_bytes=32 * MIB, tail_bytes=224 * MIB)
"""A kernel log is read line by line, some 20 MB a second; months of a node that fails all the time are larger."""


class KernelLines:
    """The lines of a kernel log, as text: of a long line the beginning, of a log that is too large both ends.

    Attributes
    ----------
    problem
        Why it could not be read to its end.
    note
        Which part of it was read, where it was not all.
    numbered
        Number of lines before the part that was left out; ``None`` where nothing was.
    """

    def __init__(self, stream: IO[bytes], limits: ReadLimits = KERNEL_LIMITS) -> None:
        self._stream = stream
        self._limits = limits
        self.problem = self.note = ""
        self.numbered: int | None = None

    def __iter__(self) -> Iterator[str]:
        """Yield lines."""
        limits, size = self._limits, find_size_bytes(self._stream)
        is_whole = size is not None and size <= limits.whole_bytes
        allowed = limits.head_bytes if size is not None and not is_whole else limits.whole_bytes
        try:
            count = read = 0
            for raw in self._read_lines():
                count, read = count + 1, read + len(raw)
                yield raw.decode("utf-8", "replace")
                if read >= allowed and not is_whole:
                    break
            self.note = describe_limits(self._stream, limits, read)
            if size is None or is_whole:
                return
            self.numbered = count
            self._stream.seek(size - limits.tail_bytes)
            for number, raw in enumerate(self._read_lines()):
                if number:  # the first one is a part of a line
                    yield raw.decode("utf-8", "replace")
        except BROKEN as error:
            self.problem = f"damaged: {error}"

    def _read_lines(self) -> Iterator[bytes]:
        """Yield lines, of a long one the beginning."""
        while raw := self._stream.readline(_LONGEST_KERNEL_LINE_BYTES):
            yield raw
            while len(raw) == _LONGEST_KERNEL_LINE_BYTES and not raw.endswith(b"\n"):
                raw = self._stream.readline(_LONGEST_KERNEL_LINE_BYTES)

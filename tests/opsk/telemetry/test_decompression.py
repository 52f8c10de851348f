"""A compressed log gives what was put into it, and takes no more memory than is allowed, whatever it asks for."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.errors import InputError
from opsk.postmortem.logs.pieces import BROKEN, open_log, read_pieces
from opsk.telemetry.decompression import HEAD_BYTES, open_decompressed
from opsk.telemetry.progress.runs import read_log

PACKERS: dict[str, Callable[[bytes], bytes]] = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}


def asking_for_all_memory(text: bytes) -> bytes:
    """Return an xz file that asks for a dictionary of 4 GiB - 1.

    The .xz file format, 3.1 and 5.3.1: behind the stream's header of 12 bytes stands the block's: its size / 4 - 1,
    flags, filter 0x21, 1 byte of properties, the dictionary's size (40 is the largest), padding, CRC32.
    """
    packed = bytearray(lzma.compress(text))
    size = (packed[12] + 1) * 4
    assert packed[14:16] == b"\x21\x01"
    packed[16] = 40
    packed[12 + size - 4 : 12 + size] = struct.pack("<I", zlib.crc32(packed[12 : 12 + size - 4]))
    return bytes(packed)


def unpacked(data: bytes) -> bytes:
    return open_decompressed(io.BytesIO(data), data[:HEAD_BYTES]).read()


@given(parts=st.lists(st.binary(max_size=300), min_size=1, max_size=4), kind=st.sampled_from(sorted(PACKERS)))
def test_what_was_packed_comes_out_also_of_files_put_together(parts: list[bytes], kind: str) -> None:
    assert unpacked(b"".join(map(PACKERS[kind], parts))) == b"".join(parts)


def test_padding_between_and_other_bytes_behind_are_passed_over() -> None:
    # The .xz file format, 2.2: padding between streams is zeros, a multiple of four.
    one = lzma.compress(b"one")
    assert unpacked(one + bytes(8) + one + bytes(4)) == b"oneone"
    assert unpacked(one + b"no stream at all") == b"one"


def test_a_long_log_comes_in_pieces() -> None:
    text = b"".join(b"step %d\n" % number for number in range(200_000))
    stream = open_decompressed(io.BytesIO(lzma.compress(text, preset=0)), b"\xfd7zXZ\x00")
    assert b"".join(iter(lambda: stream.read(4096), b"")) == text


@pytest.mark.parametrize("cut", range(0, 60, 7))
def test_a_file_that_was_cut_raises_what_is_caught(cut: int) -> None:
    data = lzma.compress(b"text of a log" * 20)[: 6 + cut]
    with pytest.raises(BROKEN):
        unpacked(data)


def test_a_file_that_asks_for_four_gigabytes_is_refused(tmp_path: Path) -> None:
    bomb = tmp_path / "job.out.xz"
    bomb.write_bytes(asking_for_all_memory(b"iteration 1\n"))
    with open_log(bomb) as stream, pytest.raises(lzma.LZMAError, match=r"[Mm]emory"):
        list(read_pieces(stream))
    with pytest.raises(InputError, match=r"[Mm]emory"):
        read_log(bomb)


def test_the_strongest_preset_of_xz_is_read() -> None:
    assert unpacked(lzma.compress(b"text", preset=9 | lzma.PRESET_EXTREME)) == b"text"


def test_what_is_not_compressed_is_as_it_was() -> None:
    raw = io.BytesIO(b"iteration 1")
    assert open_decompressed(raw, b"iteratio") is raw

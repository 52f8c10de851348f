"""Recognises and reads files with forwarding tables, and checks their routes against the fabric."""

from __future__ import annotations

import subprocess
import sys
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from opsk.errors import InputError, UnavailableError
from opsk.fabric.checks.routes import check_routes
from opsk.fabric.dumps.dialects import merge_fabrics, read_fabric
from opsk.fabric.dumps.forwarding_tables import is_forwarding_dump, merge_tables, read_forwarding_tables
from opsk.fabric.dumps.guid_tables import GuidNames, add_host_names, read_guid_names
from opsk.fabric.fabric import Fabric, Fault
from opsk.fabric.forwarding import ForwardingTables, resolve_next_hops
from opsk.units import GIB, MIB

MAX_BYTES = GIB
"""More than any fabric dump (10,000 nodes of 8 HCAs make 40 MB) and less than memory."""
_MAX_UNPACK_RATIO, _ALWAYS_UNPACKED_BYTES = 200, 64 * MIB
"""gzip compresses dumps to a tenth and archives of sysfs to a fiftieth; a larger ratio is a decompression bomb."""

_TABLE_CHARACTERS = 1 << 24
"""More than any table of hosts and guids; larger files are not tried as one."""

STDIN = Path("-")
GZIP = b"\x1f\x8b"
_MAX_ERROR_CHARS = 300
_ENCODING_BYTES = 400
_MIN_ZERO_SHARE = 0.9


def read_dump(path: Path) -> Fabric:
    """Return the fabric of one dump, plain or gzipped; ``-`` is standard input.

    Raises
    ------
    InputError
        When the file cannot be read, or has no fabric in it.
    """
    return read_fabric(read_text(path), source=str(path))


def read_dumps(paths: Sequence[Path]) -> Fabric:
    """Return several dumps as one fabric; unreadable ones become faults as long as one can be read.

    A table of hosts and guids among them gives its names to the HCAs of the others.

    Raises
    ------
    InputError
        When none can be read; the message names all.
    """
    fabrics: list[Fabric] = []
    tables: list[GuidNames] = []
    unread: list[InputError] = []
    for path in paths:
        try:
            text = read_text(path)
            names = read_guid_names(text, source=str(path)) if len(text) < _TABLE_CHARACTERS else None
            if names is None:
                fabrics.append(read_fabric(text, source=str(path)))
            else:
                tables.append(names)
        except InputError as error:
            unread.append(error)
    if tables and not fabrics:
        unread += [
            InputError(
                f"{names.source}: a table of hosts and GUIDs contains no switches, and so no fabric",
                hint="also give the tree of `sharp_cmd topology`, or a dump of ibnetdiscover",
            )
            for names in tables
        ]
    if not fabrics:
        raise InputError("; ".join(error.message for error in unread), hint=unread[0].hint if unread else "")
    faults = tuple(
        Fault(kind="unreadable_file", where=error.message.split(":")[0], evidence=error.message, cost="left out")
        for error in unread
    )
    fabric = merge_fabrics(fabrics)
    for names in tables:
        fabric = add_host_names(fabric, names)
    return replace(fabric, faults=(*fabric.faults, *faults))


def read_live(deadline_s: float) -> Fabric:
    """Return the fabric that ``ibnetdiscover`` sees from this machine.

    Raises
    ------
    UnavailableError
        When the program is not installed, fails, or takes longer than ``deadline_s``.
    """
    hint = "install infiniband-diags and run opsk where it can read /dev/infiniband/umad*, or give a dump as FILE"
    try:
        result = subprocess.run(
            ["ibnetdiscover"], capture_output=True, timeout=deadline_s, check=False, stdin=subprocess.DEVNULL
        )
    except FileNotFoundError as error:
        raise UnavailableError("ibnetdiscover is not installed here", hint=hint) from error
    except OSError as error:
        raise UnavailableError(f"ibnetdiscover cannot be run: {error.strerror}", hint=hint) from error
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(
            f"ibnetdiscover did not answer within {deadline_s:g} s", hint="raise --deadline"
        ) from error
    if result.returncode:
        message = result.stderr.decode("utf-8", "replace").strip()[:_MAX_ERROR_CHARS]
        raise UnavailableError(f"ibnetdiscover failed with status {result.returncode}: {message}", hint=hint)
    try:
        return read_fabric(result.stdout.decode("utf-8", "replace"), source="ibnetdiscover")
    except InputError as error:
        raise UnavailableError(error.message, hint=hint) from error


def read_text(path: Path) -> str:
    """Return the text of a file, whatever its encoding: UTF-8, UTF-16 with byte order mark, with any bytes replaced.

    Raises
    ------
    InputError
        When the file cannot be read or is too large.
    """
    try:
        if path == STDIN:
            content = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with path.open("rb") as file:
                content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}", hint="give a dump of ibnetdiscover") from error
    if content.startswith(GZIP):
        content = unpack(content, path)
    if len(content) > MAX_BYTES:
        raise InputError(
            f"{path}: larger than {MAX_BYTES} bytes, too large for a fabric dump", hint="give one dump per file"
        )
    return content.decode(_detect_encoding(content), "replace")


def read_head(path: Path, size: int = 1 << 16) -> str:
    """Return the start of a file, unpacked, to recognise its format; empty when it cannot be read."""
    try:
        with path.open("rb") as file:
            content = file.read(size)
        if content.startswith(GZIP):
            content = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16).decompress(content, size)
    except (OSError, zlib.error):
        return ""
    return content.decode(_detect_encoding(content), "replace")


def _detect_encoding(content: bytes) -> str:
    """Return UTF-16 where a byte order mark or zeros in every other byte indicate it; else UTF-8."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    start = content[:_ENCODING_BYTES]
    for zeros, encoding in ((start[1::2], "utf-16-le"), (start[::2], "utf-16-be")):
        if zeros and zeros.count(0) > _MIN_ZERO_SHARE * len(zeros) and start.count(0) < len(start):
            return encoding
    return "utf-8"


def unpack(content: bytes, path: Path) -> bytes:
    """Return the content of gzip data up to the first error: a truncated file gives what came before.

    Raises
    ------
    InputError
        It is damaged from the beginning, or holds more than any dump or archive of its size.
    """
    limit = min(MAX_BYTES, max(_ALWAYS_UNPACKED_BYTES, _MAX_UNPACK_RATIO * len(content)))
    output = bytearray()
    while content and len(output) <= limit:
        stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        try:
            output += stream.decompress(content, limit + 1 - len(output))
        except zlib.error as error:
            if not output:
                raise InputError(f"{path}: broken gzip file: {error}", hint="copy it again") from error
            break
        content = stream.unused_data
    if len(output) > limit:
        raise InputError(
            f"{path}: unpacks to more than {limit} bytes, too much for a dump", hint="give the unpacked file"
        )
    return bytes(output)


def split_routes(files: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Split files into those without and those with forwarding tables, by their beginning."""
    routes = [path for path in files if path != STDIN and path.is_file() and is_forwarding_dump(read_head(path))]
    return [path for path in files if path not in routes], routes


def read_routes(paths: Sequence[Path]) -> ForwardingTables | None:
    """Return the merged tables of all files, ``None`` without files; a file without any table is a fault.

    Raises
    ------
    InputError
        When no file holds any table; the message names all.
    """
    parts: list[ForwardingTables] = []
    unread: list[InputError] = []
    for path in paths:
        try:
            parts.append(read_forwarding_tables(read_text(path), source=str(path)))
        except InputError as error:
            unread.append(error)
    if unread and not parts:
        raise InputError("; ".join(error.message for error in unread), hint=unread[0].hint)
    if not parts:
        return None
    tables = merge_tables(parts)
    return replace(tables, faults=(*tables.faults, *map(_build_unreadable_fault, unread)))


def build_routes_document(paths: Sequence[Path], fabric: Fabric) -> tuple[dict[str, Any] | None, tuple[Fault, ...]]:
    """Return the ``routes`` document of ``opsk fabric``, and the findings; ``None`` without tables."""
    try:
        tables = read_routes(paths)
    except InputError as error:
        return None, (_build_unreadable_fault(error),)
    if tables is None:
        return None, ()
    report = check_routes(resolve_next_hops(tables, fabric), fabric)
    document = {
        "source": tables.source,
        "switches": report.switches,
        "destinations": report.destinations,
        "unreachable": report.unreachable,
        "loops": report.loops,
    }
    return document, (*tables.faults, *report.faults)


def _build_unreadable_fault(error: InputError) -> Fault:
    where = error.message.split(":")[0]
    return Fault(kind="unreadable_file", where=where, evidence=error.message, cost="routes are unknown")


def build_missing_fabric_error(routes: Sequence[Path]) -> InputError:
    """Return the error for forwarding tables that are given without their fabric."""
    named = ", ".join(map(str, routes))
    return InputError(f"{named}: forwarding tables without a fabric", hint="also give a dump of ibnetdiscover")

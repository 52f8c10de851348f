"""Parses the files of a control group, for both versions of cgroups.

A group can disappear at any moment: what cannot be read is ``None`` or empty, never an error. Conversions happen here
only: USER_HZ, microseconds and nanoseconds to seconds, "max" and version 1's largest number to "no limit".
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

MICROSECONDS, NANOSECONDS = 1_000_000, 1_000_000_000
_USER_HZ = 100
"""Ticks of ``cpuacct.stat``: 100 a second on every Linux, whatever the kernel's own clock."""
_UNLIMITED_BYTES = 1 << 60
"""Version 1 writes "no limit" as the largest multiple of a page, version 2 as ``max``."""
_PAGE_BYTES, _MAX_READS = 1 << 16, 1024
_LEAF_LINKS = 2
_MAX_DIGITS = 20
"""The kernel's numbers have 64 bits; what is longer is none of them, and might not fit a float."""
AnyPath = str | os.PathLike[str]
Folder = tuple[str, str]
"""Name and path: paths are text here, since making objects of them costs more than reading the files."""
_RANGE = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?")


def read(path: AnyPath) -> str | None:
    """Return a file of the kernel as text; ``None`` when it is missing or not readable."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        return None
    parts: list[bytes] = []
    try:
        # The kernel returns long lists a page at a time.
        while len(parts) < _MAX_READS and (part := os.read(handle, _PAGE_BYTES)):
            parts.append(part)
    except OSError:
        return None
    finally:
        os.close(handle)
    return b"".join(parts).decode("ascii", "replace")


def _is_number(text: str) -> bool:
    """Return whether a word is a number in the kernel's format."""
    return text.isdecimal() and len(text) <= _MAX_DIGITS


def number(path: AnyPath) -> int | None:
    """Read a file that holds one number; ``None`` for ``max`` and for anything else."""
    text = (read(path) or "").strip()
    return int(text) if _is_number(text) else None


def limit(path: AnyPath) -> int | None:
    """Read a limit [bytes]; ``None`` where there is none."""
    value = number(path)
    return None if value is None or value >= _UNLIMITED_BYTES else value


def keyed(path: AnyPath) -> dict[str, int]:
    """Read lines of ``name number``; others are left out."""
    values: dict[str, int] = {}
    for line in (read(path) or "").splitlines():
        name, _, value = line.partition(" ")
        if _is_number(value.strip()):
            values[name] = int(value)
    return values


def numbers(path: AnyPath) -> frozenset[int]:
    """Read one process or thread id a line; 0 is a process of another pid namespace."""
    return frozenset(int(word) for word in (read(path) or "").split() if _is_number(word) and word != "0")


def cpu_count(path: AnyPath) -> int | None:
    """Count the CPUs of a list such as ``0-3,8``; ``None`` when it is empty or no list."""
    total = 0
    for part in (read(path) or "").strip().split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            return None
        total += int(match[2] or match[1]) - int(match[1]) + 1
    return total or None


def ticks_s(count: int | None) -> float | None:
    """Turn ticks of ``cpuacct.stat`` into seconds."""
    return None if count is None else count / _USER_HZ


def seconds(value: int | None, per_second: int) -> float | None:
    """Turn a count of microseconds (a million per second) or nanoseconds into seconds."""
    return None if value is None else value / per_second


def stalled_s(path: AnyPath) -> float | None:
    """Read from a pressure file how long some task waited [s]."""
    for line in (read(path) or "").splitlines():
        words = line.split()
        if words[:1] == ["some"] and words[-1].startswith("total=") and _is_number(words[-1][6:]):
            return int(words[-1][6:]) / MICROSECONDS
    return None


def io_bytes(path: AnyPath) -> tuple[int, int] | None:
    """Sum bytes read and written over the devices of version 2's ``io.stat``; ``None`` without the file."""
    text = read(path)
    if text is None:
        return None
    totals = {"rbytes": 0, "wbytes": 0}
    for line in text.splitlines():
        for word in line.split()[1:]:
            name, _, value = word.partition("=")
            if name in totals and _is_number(value):
                totals[name] += int(value)
    return totals["rbytes"], totals["wbytes"]


def blkio_bytes(path: AnyPath) -> tuple[int, int] | None:
    """Sum bytes read and written over the devices of version 1's ``*io_service_bytes*``; ``None`` without the file."""
    text = read(path)
    if text is None:
        return None
    totals = {"Read": 0, "Write": 0}
    for line in text.splitlines():
        words = line.split()
        if len(words) == 3 and words[1] in totals and _is_number(words[2]):
            totals[words[1]] += int(words[2])
    return totals["Read"], totals["Write"]


def folders(path: AnyPath) -> tuple[Folder, ...]:
    """Return the folders in a folder by name, links left out; none when it cannot be read.

    A folder without folders has two links, which spares the kernel from listing its sixty files.
    """
    try:
        if os.stat(path).st_nlink == _LEAF_LINKS:  # noqa: PTH116 - called some hundred times a scrape
            return ()
        with os.scandir(path) as entries:
            return tuple(sorted((entry.name, entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)))
    except OSError:
        return ()


def is_folder(path: AnyPath) -> bool:
    """Return whether a folder exists."""
    return Path(path).is_dir()


def walk(path: str, depth: int = 8) -> Iterator[str]:
    """Yield a folder and all below it."""
    yield path
    if depth:
        for _, folder in folders(path):
            yield from walk(folder, depth - 1)


def total(values: Iterable[int | None]) -> int | None:
    """Add up what is known; ``None`` when nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None

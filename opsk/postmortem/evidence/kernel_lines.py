"""Reads the kernel's own messages of this node for the time of a job, without what programs wrote to the log."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from opsk.telemetry.kernel_log import KMSG
from opsk.units import MIB

MAX_LINES, MAX_LINE_CHARS = 2000, 1000
_TAIL_BYTES = 8 * MIB
_RECORD_BYTES = 1 << 14
_MAX_RECORDS = 200_000
_MAX_OVERRUNS = 100
_JOURNAL_S = 10.0
_RECORD = re.compile(r"(\d{1,7}),\d{1,20},(\d{1,20}),[^;]{0,120};")
_KERNEL_FACILITY = 8
"""Records of priority 8 and more were written by programs, through /dev/kmsg itself."""
_INTEREST = re.compile(
    r"NVRM|nvidia|nvswitch|SXid|mlx\d|infiniband|\bib\d|oom|[Oo]ut of memory|hung_task|blocked for more|lockup"
    r"|panic|BUG:|[Mm]achine [Cc]heck|\bmce\b|EDAC|\bAER\b|PCIe|pcieport|segfault|general protection|Lustre|nfs"
    r"|I/O error|EXT4-fs|XFS|Link (?:up|down)|link (?:up|down)|thermal|throttl|No space"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLines:
    """Lines of the time of a job, the oldest first; ``problem`` is why there are none."""

    lines: tuple[str, ...] = ()
    left_out: int = 0
    source: str = ""
    problem: str = ""


def read_kernel_lines(path: Path, from_s: float, until_s: float, *, boot_unix_s: float) -> KernelLines:
    """Return the kernel's messages between two times [s since 1970]; from the journal where the log is not readable.

    Parameters
    ----------
    path
        ``/dev/kmsg``, or a file of its records.
    """
    try:
        records = list(_read_records(path))
    except OSError as error:
        if path != KMSG:
            return KernelLines(source=str(path), problem=f"{path}: {error.strerror}")
        return _read_journal(from_s, until_s, why=f"{path}: {error.strerror}")
    first_us, last_us = ((at - boot_unix_s) * 1e6 for at in (from_s, until_s))
    selected = (line for line in records if _is_kernel_record(line, first_us, last_us))
    return _limit_lines(selected, str(path))


def _is_kernel_record(line: str, first_us: float, last_us: float) -> bool:
    """Return whether a record is the kernel's and of this time."""
    match = _RECORD.match(line)
    return match is not None and int(match[1]) < _KERNEL_FACILITY and first_us <= int(match[2]) <= last_us


def _limit_lines(lines: Iterable[str], source: str) -> KernelLines:
    """Limit the number of lines: of too many, the last ones that may report failures remain."""
    selected = [line[:MAX_LINE_CHARS] for line in lines]
    number = len(selected)
    if number > MAX_LINES:
        selected = [line for line in selected if _INTEREST.search(line)][-MAX_LINES:]
    return KernelLines(lines=tuple(selected), left_out=number - len(selected), source=source)


def _read_records(path: Path) -> Iterator[str]:
    """Give the records of the kernel's buffer, or the last ones of a file; nothing is waited for."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        if stat.S_ISCHR(status.st_mode):
            yield from _read_device(handle)
            return
        offset = max(0, status.st_size - _TAIL_BYTES)
        text = os.pread(handle, _TAIL_BYTES, offset).decode("utf-8", "replace")
        yield from text.split("\n")[1 if offset else 0 :]
    finally:
        os.close(handle)


def _read_device(handle: int) -> Iterator[str]:
    """Give one record a read; records that are overwritten meanwhile are passed over."""
    overruns = 0
    for _ in range(_MAX_RECORDS):
        try:
            record = os.read(handle, _RECORD_BYTES)
        except BlockingIOError:
            return
        except BrokenPipeError:
            overruns += 1
            if overruns > _MAX_OVERRUNS:
                return
            continue
        if not record:
            return
        yield record.decode("utf-8", "replace").partition("\n")[0]


def _read_journal(from_s: float, until_s: float, *, why: str) -> KernelLines:
    """Read the kernel's lines from the journal."""
    command = ("journalctl", "-k", "-q", "--no-pager", "-o", "short-iso-precise", f"--since=@{from_s:.0f}",
               f"--until=@{until_s:.0f}")  # fmt: skip
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_JOURNAL_S, check=False,
            env={"PATH": os.defpath, "LC_ALL": "C"},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return KernelLines(problem=f"{why}; journalctl: {error}")
    if done.returncode != 0:
        return KernelLines(problem=f"{why}; journalctl: {done.stderr.decode('utf-8', 'replace').strip()[:200]}")
    return _limit_lines(done.stdout.decode("utf-8", "replace").splitlines(), "journalctl -k")

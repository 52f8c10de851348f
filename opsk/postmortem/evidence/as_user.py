"""Reads a user's files in a forked child that has switched to that user, so that root uses no right the user lacks."""

from __future__ import annotations

import contextlib
import os
import pwd
import select
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from opsk.errors import InputError
from opsk.units import MIB

MAX_BYTES = 64 * MIB
DEADLINE_S = 300.0
_CHUNK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """A user: number, name where there is one, and main group."""

    uid: int
    name: str = ""
    gid: int | None = None


def find_person(user: str | int | None) -> Person | None:
    """Return the user of a name or number; ``None`` where this host does not know the name."""
    if user is None or user == "":
        return None
    try:
        entry = pwd.getpwuid(user) if isinstance(user, int) else pwd.getpwnam(user)
    except (KeyError, OverflowError, ValueError):
        return Person(uid=user) if isinstance(user, int) and user >= 0 else None
    return Person(uid=entry.pw_uid, name=entry.pw_name, gid=entry.pw_gid)


def read_as(person: Person | None, work: Callable[[], bytes], *, deadline_s: float = DEADLINE_S) -> bytes:
    """Return the result of ``work``: with the rights of a user where the caller is root, else with the caller's own.

    Raises
    ------
    InputError
        It failed, took too long, returned too much, or root would have to do it as itself.
    """
    if os.geteuid() != 0:
        return work()
    if person is None:
        raise InputError("this host does not know the user of the job", hint="root reads a user's files only as them")
    if person.uid == 0:
        return work()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _become_and_write(person, work, reading, writing)
    os.close(writing)
    try:
        output, problem = _read_all(reading, time.monotonic() + deadline_s)
    finally:
        os.close(reading)
    if problem:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if problem or status != 0:
        raise InputError(f"files of {person.name or person.uid} could not be read: {problem or f'status {status}'}")
    return output


def _become_and_write(person: Person, work: Callable[[], bytes], reading: int, writing: int) -> None:
    """Switch to the user for good, do the work, write the result, and exit; never returns."""
    status = 1
    try:
        os.close(reading)
        group = person.gid if person.gid is not None else 65534
        if person.name:
            os.initgroups(person.name, group)
        else:
            os.setgroups([])
        os.setgid(group)
        os.setuid(person.uid)
        if os.geteuid() == person.uid:
            rest = memoryview(work())
            while rest:
                rest = rest[os.write(writing, rest[:_CHUNK_BYTES]) :]
            status = 0
    finally:
        os._exit(status)  # nothing of the parent is to be done twice


def _read_all(pipe: int, deadline_s: float) -> tuple[bytes, str]:
    """Return all bytes up to the end of the pipe, and the problem where there is one."""
    parts: list[bytes] = []
    size = 0
    while True:
        remaining_s = deadline_s - time.monotonic()
        if remaining_s <= 0 or not select.select([pipe], [], [], remaining_s)[0]:
            return b"", "it took too long"
        part = os.read(pipe, _CHUNK_BYTES)
        if not part:
            return b"".join(parts), ""
        parts.append(part)
        size += len(part)
        if size > MAX_BYTES:
            return b"", f"more than {MAX_BYTES} bytes"

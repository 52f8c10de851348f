"""Which TCP ports does a lab use, so that several labs and everything else on this machine stay apart?

A block of neighbouring ports below the ephemeral range is bound, not listened on, for as long as the lab starts. A
second lab cannot bind them; the Slurm daemons can, because both sides set ``SO_REUSEADDR`` and only they listen.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opsk.errors import LabError

LOWEST = 20_000
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_ATTEMPTS = 200


@contextmanager
def reserved_block(count: int) -> Iterator[int]:
    """Hold ``count`` neighbouring free ports; yields the first.

    Raises
    ------
    LabError
        When no such block is free.
    """
    highest = _ephemeral_start() - count
    if highest <= LOWEST:
        raise LabError(f"no room for {count} ports between {LOWEST} and the ephemeral ports of this machine")
    for _ in range(_ATTEMPTS):
        first = random.randint(LOWEST, highest)
        held = _bind_all(range(first, first + count))
        if held is None:
            continue
        try:
            yield first
        finally:
            for each in held:
                each.close()
        return
    raise LabError(f"no {count} neighbouring ports are free between {LOWEST} and {highest + count}")


def _bind_all(ports: range) -> list[socket.socket] | None:
    """Bind every port of the range, or none: ``None`` when one of them is taken."""
    held: list[socket.socket] = []
    for port in ports:
        each = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        held.append(each)
        try:
            # First without SO_REUSEADDR, which would overlook another lab that only holds the port.
            each.bind(("", port))
        except OSError:
            for taken in held:
                taken.close()
            return None
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return held


def _ephemeral_start() -> int:
    try:
        return int(_EPHEMERAL.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768

"""Reserves the TCP ports of a lab, so that labs and other programs on this machine do not collide.

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

MIN_PORT = 20_000
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_ATTEMPTS = 200


@contextmanager
def reserve_block(count: int) -> Iterator[int]:
    """Hold ``count`` neighbouring free ports; yields the first.

    Raises
    ------
    LabError
        When no such block is free.
    """
    highest = _read_ephemeral_start() - count
    if highest <= MIN_PORT:
        raise LabError(f"no room for {count} ports between {MIN_PORT} and the ephemeral ports of this machine")
    for _ in range(_ATTEMPTS):
        first = random.randint(MIN_PORT, highest)
        sockets = _bind_all(range(first, first + count))
        if sockets is None:
            continue
        try:
            yield first
        finally:
            for bound in sockets:
                bound.close()
        return
    raise LabError(f"no {count} neighbouring ports are free between {MIN_PORT} and {highest + count}")


def _bind_all(ports: range) -> list[socket.socket] | None:
    """Bind every port of the range, or none: ``None`` when one of them is taken."""
    sockets: list[socket.socket] = []
    for port in ports:
        bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sockets.append(bound)
        try:
            # First without SO_REUSEADDR, which would overlook another lab that only holds the port.
            bound.bind(("", port))
        except OSError:
            for earlier in sockets:
                earlier.close()
            return None
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return sockets


def _read_ephemeral_start() -> int:
    try:
        return int(_EPHEMERAL.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768

"""Who is connected, how long may he stay, and who gives way when there is no room?

There are never more than `MOST` connections, nor more than `MOST_OF_ONE` of one client. Where one too many comes, the
oldest that has sent nothing yet gives way: of the same client when that client has its share, else of whoever has the
most. A client never drives out one that has no more connections than itself, and nobody who has begun to ask.
"""

from __future__ import annotations

import contextlib
import ipaddress
import select
import socket
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

MOST = 64
MOST_OF_ONE = 16
"""Connections of one client: an address, a network of IPv6, or all processes of this node."""
LONGEST_HEAD_S = 3.0
"""For the TLS handshake and the head of the request, together: scrapers send them at once."""
LONGEST_S = 90.0
"""The longest deadline is a minute; who is not done by then feeds us byte by byte, to keep a thread."""


@dataclass(slots=True, kw_only=True, eq=False)
class Connection:
    """One connection: whose it is, until when it may last, and whether nothing has come of it yet.

    ``handle`` is an own one of the same socket: it is there until the connection has left, whoever closes the other.
    """

    client: str
    handle: socket.socket
    until: float
    idle: bool = True


class Connections:
    """All connections of one server; any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[Connection, None] = {}
        """In order of arrival."""

    def enter(self, request: socket.socket, client: str) -> Connection | None:
        """Take a connection in, in the place of an idle one if need be; ``None`` where there is no room."""
        with self._lock:
            if not self._make_room(client):
                return None
            entered = Connection(client=client, handle=request.dup(), until=time.monotonic() + LONGEST_HEAD_S)
            self._open[entered] = None
            return entered

    def leave(self, connection: Connection) -> None:
        """Forget a connection that is done with."""
        with self._lock:
            self._open.pop(connection, None)
            connection.handle.close()

    def hear(self, connection: Connection) -> bool:
        """Wait for the first byte; return whether there is one, in time and before somebody else took the place."""
        waiting = select.poll()
        waiting.register(connection.handle, select.POLLIN)
        came = waiting.poll(LONGEST_HEAD_S * 1000)
        with self._lock:
            connection.idle = False
            return bool(came) and connection in self._open

    def note_head(self, connection: Connection) -> None:
        """Give a client whose request has come the time for its answer."""
        with self._lock:
            connection.until = time.monotonic() + LONGEST_S

    def end_late(self) -> None:
        """End the connections that take too long."""
        now = time.monotonic()
        with self._lock:
            for connection in self._open:
                if now > connection.until:
                    _hang_up(connection)

    def _make_room(self, client: str) -> bool:
        """See to it that one more connection of a client has room; return whether it has."""
        taken = Counter(connection.client for connection in self._open)
        if taken[client] >= MOST_OF_ONE:
            return self._drive_out({client})
        if len(self._open) < MOST:
            return True
        # Those who have the most first: who has a few keeps them.
        for count in sorted(set(taken.values()), reverse=True):
            if count > taken[client] and self._drive_out({each for each in taken if taken[each] == count}):
                return True
        return False

    def _drive_out(self, clients: set[str]) -> bool:
        """Hang up on the oldest connection of these clients that has sent nothing; return whether there is one."""
        for connection in self._open:
            if connection.client in clients and connection.idle and not _has_sent(connection):
                del self._open[connection]
                _hang_up(connection)
                return True
        return False


def _has_sent(connection: Connection) -> bool:
    """Return whether something has come that nobody has read yet."""
    try:
        return bool(connection.handle.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except OSError:
        return False


def _hang_up(connection: Connection) -> None:
    """End a connection; its thread sees that, and leaves."""
    with contextlib.suppress(OSError):
        connection.handle.shutdown(socket.SHUT_RDWR)


def client_of(address: Any) -> str:
    """Return whose connections are counted together, from an address of a socket."""
    try:
        found = ipaddress.ip_address(str(address[0]).partition("%")[0])
    except ValueError:
        return "this node"
    if isinstance(found, ipaddress.IPv6Address):
        mapped = found.ipv4_mapped
        if mapped is None:
            return "this node" if found.is_loopback else str(ipaddress.IPv6Network((int(found), 64), strict=False))
        found = mapped
    return "this node" if found.is_loopback else str(found)

"""Tracks the open connections of the server, and closes those that are too old or for which there is no room.

There are never more than `MAX_CONNECTIONS`, nor more than `MAX_PER_CLIENT` of one client. When one too many arrives,
the oldest that has sent nothing yet is closed: of the same client when that client has reached its share, else of the
client that has the most. A client never displaces one that has no more connections than itself, nor any that has begun
to send a request.
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

MAX_CONNECTIONS = 64
MAX_PER_CLIENT = 16
"""Connections of one client: an address, a network of IPv6, or all processes of this node."""
MAX_HEAD_S = 3.0
"""For the TLS handshake and the head of the request, together: scrapers send them at once."""
MAX_ANSWER_S = 90.0
"""The longest deadline is a minute; a client that is slower sends byte by byte, to hold a thread."""


@dataclass(slots=True, kw_only=True, eq=False)
class Connection:
    """One connection: its client, its deadline, and whether it has sent nothing yet.

    ``handle`` duplicates the socket: it is valid until the connection is removed, even if the other one is closed.
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

    def admit(self, request: socket.socket, client: str) -> Connection | None:
        """Admit a connection, in the place of an idle one if need be; ``None`` where there is no room."""
        with self._lock:
            if not self._make_room(client):
                return None
            entered = Connection(client=client, handle=request.dup(), until=time.monotonic() + MAX_HEAD_S)
            self._open[entered] = None
            return entered

    def remove(self, connection: Connection) -> None:
        """Remove a connection that is finished."""
        with self._lock:
            self._open.pop(connection, None)
            connection.handle.close()

    def wait_for_data(self, connection: Connection) -> bool:
        """Wait for the first byte; return whether it arrived in time and before the connection was displaced."""
        waiting = select.poll()
        waiting.register(connection.handle, select.POLLIN)
        ready = waiting.poll(MAX_HEAD_S * 1000)
        with self._lock:
            connection.idle = False
            return bool(ready) and connection in self._open

    def note_head(self, connection: Connection) -> None:
        """Extend the deadline of a client whose request has arrived."""
        with self._lock:
            connection.until = time.monotonic() + MAX_ANSWER_S

    def close_overdue(self) -> None:
        """Close the connections that take too long."""
        now = time.monotonic()
        with self._lock:
            for connection in self._open:
                if now > connection.until:
                    _shut_down(connection)

    def _make_room(self, client: str) -> bool:
        """Make room for one more connection of a client; return whether there is room."""
        counts = Counter(connection.client for connection in self._open)
        if counts[client] >= MAX_PER_CLIENT:
            return self._displace({client})
        if len(self._open) < MAX_CONNECTIONS:
            return True
        # Clients with most connections first: those with few keep them.
        for count in sorted(set(counts.values()), reverse=True):
            if count > counts[client] and self._displace({each for each in counts if counts[each] == count}):
                return True
        return False

    def _displace(self, clients: set[str]) -> bool:
        """Shut down the oldest connection of these clients that has sent nothing; return whether there is one."""
        for connection in self._open:
            if connection.client in clients and connection.idle and not _has_sent(connection):
                del self._open[connection]
                _shut_down(connection)
                return True
        return False


def _has_sent(connection: Connection) -> bool:
    """Return whether there is unread data."""
    try:
        return bool(connection.handle.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except OSError:
        return False


def _shut_down(connection: Connection) -> None:
    """Shut a connection down; its thread notices that, and ends."""
    with contextlib.suppress(OSError):
        connection.handle.shutdown(socket.SHUT_RDWR)


def identify_client(address: Any) -> str:
    """Return the client whose connections are counted together, from an address of a socket."""
    try:
        ip = ipaddress.ip_address(str(address[0]).partition("%")[0])
    except ValueError:
        return "this node"
    if isinstance(ip, ipaddress.IPv6Address):
        mapped = ip.ipv4_mapped
        if mapped is None:
            return "this node" if ip.is_loopback else str(ipaddress.IPv6Network((int(ip), 64), strict=False))
        ip = mapped
    return "this node" if ip.is_loopback else str(ip)

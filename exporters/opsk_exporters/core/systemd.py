"""Implements systemd's protocols for socket activation, readiness and the watchdog.

Source: sd_listen_fds(3), sd_notify(3), sd_watchdog_enabled(3).
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping, MutableMapping

from opsk.errors import UnavailableError

_FIRST_DESCRIPTOR = 3


def receive_sockets(environ: MutableMapping[str, str] = os.environ) -> tuple[socket.socket, ...]:
    """Return the listening sockets that systemd opened for this process; none without socket activation.

    Raises
    ------
    UnavailableError
        Something else than listening stream sockets was passed.
    """
    process, count = environ.pop("LISTEN_PID", ""), environ.pop("LISTEN_FDS", "")
    environ.pop("LISTEN_FDNAMES", None)
    if process != str(os.getpid()) or not (count.isascii() and count.isdigit()):
        return ()
    received = []
    for descriptor in range(_FIRST_DESCRIPTOR, _FIRST_DESCRIPTOR + int(count)):
        try:
            os.set_inheritable(descriptor, False)
            handed = socket.socket(fileno=descriptor)
            listening = handed.type == socket.SOCK_STREAM and handed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        except OSError as error:
            raise UnavailableError(f"systemd handed over descriptor {descriptor}: {error.strerror}") from error
        if not listening:
            raise UnavailableError(
                f"systemd handed over descriptor {descriptor}, no listening stream socket",
                hint="the .socket unit needs ListenStream=",
            )
        handed.setblocking(True)
        received.append(handed)
    return tuple(received)


def notify(state: str, environ: Mapping[str, str] = os.environ) -> None:
    """Notify systemd of a state (``READY=1``); does nothing where there is no systemd."""
    address = environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    target = "\0" + address[1:] if address.startswith("@") else address
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        sender.sendto(state.encode(), target)


def watchdog_s(environ: Mapping[str, str] = os.environ) -> float | None:
    """Return the watchdog interval [s]: half of the time after which systemd acts; ``None`` for no watchdog."""
    limit = environ.get("WATCHDOG_USEC", "")
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    return int(limit) / 2e6 if limit.isascii() and limit.isdigit() and int(limit) > 0 else None

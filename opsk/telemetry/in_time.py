"""How is no HTTP server waited for longer than its deadline, however slowly it drips?

A socket's timeout counts from each byte anew: a server that sends one now and then, a head without an end or a body of
a promised gigabyte, is waited for as long as it wants. Here every read has what is left until one moment.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
import urllib.request
from collections.abc import Callable
from functools import partial
from typing import Any, cast


class _Reader(io.RawIOBase):
    """A socket's bytes until a moment of the monotonic clock."""

    def __init__(self, connection: socket.socket, end_s: float) -> None:
        self._connection, self._end_s = connection, end_s
        self._raw = cast("io.RawIOBase", connection.makefile("rb", buffering=0))

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read once; ``TimeoutError`` where the moment has come."""
        left_s = self._end_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("no whole answer in time")
        self._connection.settimeout(left_s)
        return cast("int | None", self._raw.readinto(buffer))

    def close(self) -> None:
        """Let go of the socket."""
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    """An answer whose head and body come in time, or raise ``TimeoutError``."""

    def __init__(self, sock: socket.socket, *given: Any, end_s: float, **more: Any) -> None:
        super().__init__(sock, *given, **more)
        self.fp.close()
        self.fp = io.BufferedReader(cast("io.RawIOBase", _Reader(sock, end_s)))


def until(end_s: float) -> Callable[..., http.client.HTTPResponse]:
    """Return what `http.client.HTTPConnection.response_class` must be for answers to end at a moment."""
    return partial(_Response, end_s=end_s)


class _Http(urllib.request.HTTPHandler):
    def __init__(self, end_s: float) -> None:
        super().__init__()
        self._made = partial(_connection, http.client.HTTPConnection, end_s)

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        """Ask."""
        return self.do_open(self._made, request)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, end_s: float, context: ssl.SSLContext | None) -> None:
        super().__init__(context=context)
        self._made, self._checked = partial(_connection, http.client.HTTPSConnection, end_s), context

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        """Ask, with the certificates that count here."""
        return self.do_open(self._made, request, context=self._checked)


class _NotElsewhere(urllib.request.HTTPRedirectHandler):
    """Follows nobody elsewhere: question and password are for this server."""

    def redirect_request(self, *_: object) -> None:
        """Refuse."""


def _connection(kind: type[http.client.HTTPConnection], end_s: float, host: str, **given: Any) -> Any:
    made = kind(host, **given)
    made.response_class = until(end_s)  # type: ignore[assignment]
    return made


def opener_until(end_s: float, *, context: ssl.SSLContext | None = None) -> urllib.request.OpenerDirector:
    """Return what asks a server of the site itself, through no proxy and no redirection, until a moment."""
    return urllib.request.build_opener(
        urllib.request.ProxyHandler({}), _NotElsewhere(), _Http(end_s), _Https(end_s, context)
    )

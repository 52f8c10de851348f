"""Limits HTTP requests to a total deadline, however slowly the server sends.

The timeout of a socket restarts with each byte: a server that sends one now and then, a head without an end, or a body
of a promised gigabyte would never run into it. Here every read gets the time that remains until one deadline.
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


class _DeadlineReader(io.RawIOBase):
    """Reads a socket until a deadline of the monotonic clock."""

    def __init__(self, connection: socket.socket, end_s: float) -> None:
        self._connection, self._end_s = connection, end_s
        self._raw = cast("io.RawIOBase", connection.makefile("rb", buffering=0))

    def readable(self) -> bool:
        """Return true."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read once; ``TimeoutError`` after the deadline."""
        left_s = self._end_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("no whole answer in time")
        self._connection.settimeout(left_s)
        return cast("int | None", self._raw.readinto(buffer))

    def close(self) -> None:
        """Close the socket's stream."""
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    """A response whose head and body arrive before the deadline, or raise ``TimeoutError``."""

    def __init__(self, sock: socket.socket, *given: Any, end_s: float, **more: Any) -> None:
        super().__init__(sock, *given, **more)
        self.fp.close()
        self.fp = io.BufferedReader(cast("io.RawIOBase", _DeadlineReader(sock, end_s)))


def build_response_class(end_s: float) -> Callable[..., http.client.HTTPResponse]:
    """Return a `http.client.HTTPConnection.response_class` whose reads end at a deadline."""
    return partial(_Response, end_s=end_s)


class _Http(urllib.request.HTTPHandler):
    def __init__(self, end_s: float) -> None:
        super().__init__()
        self._made = partial(_connection, http.client.HTTPConnection, end_s)

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        """Send the request."""
        return self.do_open(self._made, request)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, end_s: float, context: ssl.SSLContext | None) -> None:
        super().__init__(context=context)
        self._made, self._checked = partial(_connection, http.client.HTTPSConnection, end_s), context

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        """Send the request, with the site's certificates."""
        return self.do_open(self._made, request, context=self._checked)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: request and password are for this server only."""

    def redirect_request(self, *_: object) -> None:
        """Refuse."""


def _connection(kind: type[http.client.HTTPConnection], end_s: float, host: str, **given: Any) -> Any:
    made = kind(host, **given)
    made.response_class = build_response_class(end_s)  # type: ignore[assignment]
    return made


def build_opener(end_s: float, *, context: ssl.SSLContext | None = None) -> urllib.request.OpenerDirector:
    """Return an opener for servers of the site, without proxy and redirects, with a deadline."""
    return urllib.request.build_opener(
        urllib.request.ProxyHandler({}), _NoRedirect(), _Http(end_s), _Https(end_s, context)
    )

"""Sends HTTP requests to Prometheus and exporters with a deadline, using only the standard library.

The size of an answer is bounded, and redirections are not followed: passwords are sent only to the configured address.
"""

from __future__ import annotations

import base64
import http.client
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

from opsk.config import TopConfig
from opsk.errors import ConfigError, UnavailableError
from opsk.telemetry.http_deadline import build_response_class
from opsk.text import blank_controls
from opsk.units import MIB

_READ_BYTES = MIB
_FIRST_BYTES = 1 << 16
_HINT = "see [top] in opsk.toml: addresses, user and password_file, ca_file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """The certificates and the password for servers."""

    context: ssl.SSLContext | None = None
    authorization: str = ""


def build_access(config: TopConfig) -> Access:
    """Return the access to this site's servers.

    Raises
    ------
    ConfigError
        The certificates or the password cannot be read.
    """
    try:
        is_secure = config.tls or config.ca_file or (config.prometheus or "").startswith("https")
        # reading the system's certificates takes a while, and most sites have none to check
        context = (
            ssl.create_default_context(cafile=str(config.ca_file) if config.ca_file else None) if is_secure else None
        )
        if config.user is None or config.password_file is None:
            return Access(context=context)
        password = config.password_file.read_text(encoding="utf-8").rstrip("\n")
    except (OSError, UnicodeDecodeError, ssl.SSLError) as error:
        which = config.password_file if config.ca_file is None else f"{config.ca_file}, {config.password_file}"
        raise ConfigError(f"[top]: {which}: {error}", hint="see ca_file and password_file in opsk.toml") from error
    token = base64.b64encode(f"{config.user}:{password}".encode()).decode("ascii")
    return Access(context=context, authorization=f"Basic {token}")


class _Buffer(threading.local):
    """The receive buffer of a thread, as large as its largest answer so far."""

    def __init__(self) -> None:
        self.bytes = bytearray(_FIRST_BYTES)


_BUFFER = _Buffer()


class RefusedError(UnavailableError):
    """The server answers with an error."""


class Server:
    """One server, queried over one connection where it keeps it open.

    Parameters
    ----------
    url
        ``http://host:port`` or ``https://host:port``, and a path prefix.
    max_bytes
        The largest answer that is read [bytes].
    """

    def __init__(self, url: str, access: Access, *, deadline_s: float, max_bytes: int) -> None:
        parts = urlsplit(url)
        self.shown = f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")
        self._path = parts.path.rstrip("/")
        self._access = access
        self._deadline_s = deadline_s
        self._largest_bytes = max_bytes
        self._is_secure = parts.scheme == "https"
        self._host, self._port = parts.hostname or "", parts.port
        self._connection: http.client.HTTPConnection | None = None

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> bytes:
        """Return the body of an answer with status 200.

        Raises
        ------
        UnavailableError
            There is no answer in time, or one with another status.
        """
        end = time.monotonic() + self._deadline_s
        is_new = self._connection is None
        try:
            return self._exchange(method, path, body, headers, end)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if not is_new and isinstance(error, http.client.RemoteDisconnected | ConnectionError):
                return self._retry(method, path, body, headers, end)
            raise self._build_error(error) from error

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _retry(self, method: str, path: str, body: bytes | None, headers: dict[str, str], end: float) -> bytes:
        """Send the request once more: the connection had been closed since the last one."""
        try:
            return self._exchange(method, path, body, headers, end)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise self._build_error(error) from error

    def _exchange(self, method: str, path: str, body: bytes | None, headers: dict[str, str], end: float) -> bytes:
        remaining_s = max(0.05, end - time.monotonic())
        if self._connection is None:
            if self._is_secure:
                context = self._access.context
                self._connection = http.client.HTTPSConnection(
                    self._host, self._port, timeout=remaining_s, context=context
                )
            else:
                self._connection = http.client.HTTPConnection(self._host, self._port, timeout=remaining_s)
        connection = self._connection
        connection.timeout = remaining_s
        connection.response_class = build_response_class(end)  # type: ignore[assignment]
        if connection.sock is not None:
            connection.sock.settimeout(remaining_s)
        request_headers = {"User-Agent": "opsk-top", **headers}
        if self._access.authorization:
            request_headers["Authorization"] = self._access.authorization
        connection.request(method, self._path + path, body=body, headers=request_headers)
        # a truncated answer holds its socket for as long as the error is referenced
        with connection.getresponse() as answer:
            body = self._read_body(answer, end)
        if answer.status != 200:
            self.close()
            reason = blank_controls(answer.reason, max_chars=60)
            raise RefusedError(f"{self.shown}: answers {answer.status} {reason}", hint=_HINT)
        if answer.will_close:
            self.close()
        return body

    def _read_body(self, answer: http.client.HTTPResponse, end: float) -> bytes:
        """Read an answer into the thread's own buffer: joining pieces costs six times as much."""
        size = 0
        while True:
            if size == len(_BUFFER.bytes):
                # a new buffer, since a stored error may reference the old one, which could not grow then
                _BUFFER.bytes = _BUFFER.bytes + bytes(min(size, _READ_BYTES))
            got = answer.readinto(memoryview(_BUFFER.bytes)[size : size + _READ_BYTES])
            if not got and answer.length:
                raise http.client.HTTPException("an answer that is cut off")
            if not got:
                return bytes(memoryview(_BUFFER.bytes)[:size])
            size += got
            if size > self._largest_bytes:
                raise http.client.HTTPException(f"more than {self._largest_bytes} bytes")
            if time.monotonic() > end:
                raise TimeoutError("no whole answer in time")

    def _build_error(self, error: Exception) -> UnavailableError:
        reason = "no answer in time" if isinstance(error, TimeoutError | socket.timeout) else str(error)
        return UnavailableError(f"{self.shown}: {reason}", hint=_HINT)

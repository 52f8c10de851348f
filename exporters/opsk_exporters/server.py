"""How do scrapers reach the metrics? A small HTTP server: ``/metrics``, ``/healthz``, and a page that says what it is.

It answers many scrapers at once, drops clients that do not finish their request, and never keeps more connections
than `MOST_CONNECTIONS`. It has no encryption and no password: bind it to loopback, or to a network that may read it.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
from prometheus_client.core import InfoMetricFamily
from prometheus_client.registry import Collector as PrometheusCollector

from opsk import __version__
from opsk.errors import InputError, UnavailableError
from opsk_exporters.collector import Scraper

DEFAULT_LISTEN = "127.0.0.1:9876"
MOST_CONNECTIONS = 32
_REQUEST_TIMEOUT_S = 10

_LANDING = b"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>opsk exporter</title></head>
<body><h1>opsk exporter %s</h1><p>Metrics of this node: <a href="/metrics">/metrics</a></p></body></html>
"""

WsgiApp = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where to listen: an IP address or host name (empty for all addresses), and a port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> ListenAddress:
        """Read ``HOST:PORT``, ``:PORT`` or ``[IPV6]:PORT``.

        Raises
        ------
        InputError
            ``text`` has another form.
        """
        host, colon, port = text.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            colon = ""
        if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
            raise InputError(f"listen address {text!r} is no HOST:PORT", hint=f"for example {DEFAULT_LISTEN}")
        return cls(host, int(port))

    @property
    def family(self) -> socket.AddressFamily:
        """Address family to open the socket with."""
        try:
            version = ipaddress.ip_address(self.host).version
        except ValueError:
            return socket.AF_INET
        return socket.AF_INET6 if version == 6 else socket.AF_INET

    def __str__(self) -> str:
        """Return the address as a URL has it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class _About(PrometheusCollector):
    """The exporter's own version."""

    def collect(self) -> Iterable[InfoMetricFamily]:
        """Return one info metric."""
        yield InfoMetricFamily("opsk_exporter", "The exporter itself.", value={"version": __version__})


def registry(scraper: Scraper, *, process: bool = True) -> CollectorRegistry:
    """Return all that one scrape shows; with ``process`` also CPU, memory and files of the exporter itself."""
    all_metrics = CollectorRegistry(auto_describe=False)
    all_metrics.register(scraper)
    all_metrics.register(_About())
    if process:
        ProcessCollector(namespace="opsk_exporter", registry=all_metrics)
    return all_metrics


def application(metrics: CollectorRegistry) -> WsgiApp:
    """Return the WSGI application that serves a registry."""
    serve_metrics = make_wsgi_app(metrics)

    def serve(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "/")
        if path == "/metrics":
            return serve_metrics(environ, start_response)  # type: ignore[no-any-return]
        status, kind, body = "404 Not Found", "text/plain; charset=utf-8", b"not here; metrics are at /metrics\n"
        if path == "/":
            status, kind, body = "200 OK", "text/html; charset=utf-8", _LANDING % __version__.encode()
        elif path == "/healthz":
            status, body = "200 OK", b"ok\n"
        start_response(status, [("Content-Type", kind), ("Content-Length", str(len(body)))])
        return [b"" if environ.get("REQUEST_METHOD") == "HEAD" else body]

    return serve


class _Handler(WSGIRequestHandler):
    """Gives up on clients that do not finish their request, and logs no requests."""

    timeout = _REQUEST_TIMEOUT_S

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: every scrape would be a line."""


class _Server(ThreadingMixIn, WSGIServer):
    """One thread a connection, up to a limit."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__(*args, **kwargs)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own, or hang up when there are too many."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one client."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that hung up."""

    def server_bind(self) -> None:
        """Bind without asking a name server for this host's name."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()


def open_server(address: ListenAddress, metrics: CollectorRegistry) -> WSGIServer:
    """Open the socket and return the server, ready for ``serve_forever``.

    Raises
    ------
    UnavailableError
        The address cannot be listened on.
    """
    server_class = type("Server", (_Server,), {"address_family": address.family})
    try:
        return make_server(
            address.host, address.port, application(metrics), server_class=server_class, handler_class=_Handler
        )
    except (OSError, OverflowError) as error:
        raise UnavailableError(
            f"cannot listen on {address}: {error}", hint="another exporter may hold the port; choose one with --listen"
        ) from error

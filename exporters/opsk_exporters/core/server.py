"""Serves the metrics over HTTP: ``/metrics``, ``/healthz``, and a landing page with the state of each collector.

It answers many scrapers at once, and drops clients that do not finish their request; nobody can take all connections
(`connections`). Without a web configuration file it has no encryption and no password: bind it to loopback, or to a
network that may read it. Opening the landing page reads no device: it shows the result of the last scrape.
"""

from __future__ import annotations

import contextlib
import ipaddress
import math
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.message import Message
from html import escape as escape_html
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import ThreadingMixIn
from typing import Any

from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.core import InfoMetricFamily
from prometheus_client.registry import Collector as PrometheusCollector

from opsk import __version__
from opsk.errors import InputError, UnavailableError
from opsk.text import escape
from opsk_exporters.core.collector import CollectorStatus, Scraper, merge_families
from opsk_exporters.core.connections import Connections, identify_client
from opsk_exporters.core.exposition import Families, Writer, format_response
from opsk_exporters.core.web_access import NotAllowedError, WebAccess

CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1b1f24; }
h1 { font-size: 1.4rem; } table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .35rem .75rem .35rem 0; border-bottom: 1px solid #d0d7de; vertical-align: top; }
td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.works { color: #116329; } .fails, .hangs { color: #a40e26; font-weight: 600; } .none { color: #57606a; }
@media (prefers-color-scheme: dark) {
  body { background: #0d1117; color: #e6edf3; } a { color: #58a6ff; } th, td { border-color: #30363d; }
  .works { color: #3fb950; } .fails, .hangs { color: #ff7b72; } .none { color: #8b949e; }
}
"""
_CLASS = {"works": "works", "fails": "fails", "hangs": "hangs"}
DEFAULT_LISTEN = "127.0.0.1:9876"
_REQUEST_TIMEOUT_S = 10
_MIN_TIMEOUT_S = 0.5
"""No scraper's timeout counts as less: nothing would be ready, whatever the node does."""
_TEXT = "text/plain; charset=utf-8"
Headers = Mapping[str, str] | Message
Answer = tuple[int, list[tuple[str, str]], bytes]
"""Status, headers and body."""


def render_landing_page(standings: Iterable[CollectorStatus], node: str) -> bytes:
    """Return the page as HTML; every text in it is escaped."""
    rows = "".join(_render_row(standing) for standing in standings)
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>opsk exporter on {_escape(node)}</title><style>{_STYLE}</style></head>
<body><h1>opsk exporter {_escape(__version__)} on {_escape(node)}</h1>
<p><a href="/metrics">Metrics</a> · <a href="/healthz">health</a></p>
<table><thead><tr><th>Collector</th><th>State</th><th>Last run</th><th>Message</th></tr></thead>
<tbody>{rows}</tbody></table>
<p class="none">As of the last scrape; opening this page reads no device.</p>
</body></html>
"""
    return page.encode("utf-8", "replace")


def _render_row(standing: CollectorStatus) -> str:
    """Render the row of one collector."""
    took = "" if standing.duration_s is None else f"{standing.duration_s * 1e3:.1f} ms"
    message = "" if standing.state in ("works", "not run yet") else standing.message
    return (
        f"<tr><td>{_escape(standing.name)}</td>"
        f'<td class="{_CLASS.get(standing.state, "none")}">{_escape(standing.state)}</td>'
        f'<td class="n">{took}</td><td>{_escape(message)}</td></tr>\n'
    )


def _escape(text: str) -> str:
    """Escape a text for HTML; errors may contain text of a device."""
    return escape_html(escape(text)[:500])


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
    """The exporter's own version, and how its web configuration is."""

    def __init__(self, access: WebAccess | None = None) -> None:
        self._access = access

    def collect(self) -> Iterable[Metric]:
        """Return these metrics."""
        yield InfoMetricFamily("opsk_exporter", "The exporter itself.", value={"version": __version__})
        if self._access is None:
            return
        families = Families()
        families.gauge(
            "opsk_exporter_web_config_ok",
            "1 when the web configuration file is in force; 0 when it is wrong, and the one before stays in force.",
            0.0 if self._access.problem else 1.0,
        )
        for why, count in self._access.refused.items():
            families.counter(
                "opsk_exporter_refused_requests_total",
                "Requests that were refused: no right password, more than the rate limit allows, or no TLS connection.",
                count,
                why=why,
            )
        yield from families.all()


def build_registry(scraper: Scraper, *, process: bool = True, access: WebAccess | None = None) -> CollectorRegistry:
    """Return all that one scrape shows; with ``process`` also CPU, memory and files of the exporter itself."""
    all_metrics = CollectorRegistry(auto_describe=False)
    all_metrics.register(scraper)
    return _register_about(all_metrics, process=process, access=access)


def _register_about(metrics: CollectorRegistry, *, process: bool, access: WebAccess | None) -> CollectorRegistry:
    """Register the metrics of the exporter itself."""
    metrics.register(_About(access))
    if process:
        ProcessCollector(namespace="opsk_exporter", registry=metrics)
    return metrics


class Pages:
    """Answers requests.

    Parameters
    ----------
    scraper
        All collectors.
    access
        Authentication; none when it is not given.
    """

    def __init__(self, scraper: Scraper, access: WebAccess | None = None) -> None:
        self._scraper = scraper
        self._access = access
        self._about = _register_about(CollectorRegistry(auto_describe=False), process=True, access=access)
        self._writer = Writer()
        self._node = socket.gethostname()

    def metrics(self, limit_s: float | None = None) -> tuple[Metric, ...]:
        """Return all that one scrape shows, within a time [s]."""
        return merge_families((*self._scraper.scrape(limit_s).metrics, *self._about.collect()))

    def answer(self, method: str, path: str, headers: Headers) -> Answer:
        """Return the answer to a request; names of headers may be in any case."""
        status, page_headers, body = self._answer(method, path, headers)
        site = self._access.headers() if self._access else {}
        all_headers = {
            "X-Content-Type-Options": "nosniff",
            **dict(page_headers),
            **site,
            "Content-Length": str(len(body)),
        }
        return status, list(all_headers.items()), b"" if method == "HEAD" else body

    def _answer(self, method: str, path: str, headers: Headers) -> Answer:
        """Return the answer to a request, without the headers of every answer."""
        access = self._access
        if access and not access.within_rate_limit():
            return _build_plain_answer(429, "too many requests\n")
        if access and not access.is_authorised(headers.get("Authorization", "")):
            return _build_plain_answer(
                401, "Unauthorized\n", ("WWW-Authenticate", 'Basic realm="opsk exporter", charset="UTF-8"')
            )
        if method not in ("GET", "HEAD"):
            return _build_plain_answer(405, "only GET\n", ("Allow", "GET, HEAD"))
        if path == "/metrics":
            limit_s = compute_scrape_limit_s(headers.get("X-Prometheus-Scrape-Timeout-Seconds", ""))
            accept, encoding = headers.get("Accept", ""), headers.get("Accept-Encoding", "")
            return 200, *format_response(self._writer, self.metrics(limit_s), accept, encoding)
        if path == "/":
            kind = ("Content-Type", "text/html; charset=utf-8")
            page = render_landing_page(self._scraper.statuses(), self._node)
            return 200, [kind, ("Content-Security-Policy", CONTENT_SECURITY_POLICY)], page
        if path == "/healthz":
            return _build_plain_answer(200, "ok\n")
        return _build_plain_answer(404, "not here; metrics are at /metrics\n")


def compute_scrape_limit_s(header: str) -> float | None:
    """Return how long a scrape may take, from the timeout that the scraper states; ``None`` when it states none.

    A tenth, at most half a second, is left for writing and sending: what comes too late is lost as a whole.
    """
    try:
        timeout_s = float(header)
    except ValueError:
        return None
    if not math.isfinite(timeout_s) or timeout_s <= 0:
        return None
    timeout_s = max(_MIN_TIMEOUT_S, timeout_s)
    return timeout_s - min(0.5, 0.1 * timeout_s)


def _build_plain_answer(status: int, text: str, *headers: tuple[str, str]) -> Answer:
    """Return an answer in plain words."""
    return status, [("Content-Type", _TEXT), *headers], text.encode()


class _Handler(BaseHTTPRequestHandler):
    """Gives up on clients that do not finish their request, and logs no requests."""

    timeout = _REQUEST_TIMEOUT_S
    server: ExporterServer

    def version_string(self) -> str:
        """Return the name of the server, without the version of Python."""
        return "opsk-exporter"

    def do_GET(self) -> None:
        """Answer one request."""
        self.server.note_head()
        path = self.path.partition("?")[0]
        status, headers, body = self.server.pages.answer(self.command, path, self.headers)
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_HEAD = do_POST = do_PUT = do_DELETE = do_OPTIONS = do_PATCH = do_GET  # noqa: N815 - http.server's names

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: every scrape would be a line."""


class ExporterServer(ThreadingMixIn, HTTPServer):
    """One thread a connection, up to a limit.

    Parameters
    ----------
    address
        Where to listen.
    pages
        Answers the requests.
    access
        Decides who may connect.
    listening
        A socket that listens already, as systemd passes it.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(
        self,
        address: ListenAddress,
        pages: Pages,
        access: WebAccess | None = None,
        listening: socket.socket | None = None,
    ) -> None:
        self._connections = Connections()
        self._own = threading.local()
        """By thread, the connection that it serves."""
        self._access = access
        self.pages = pages
        self._alive_at = time.monotonic()
        self.address_family = listening.family if listening else address.family
        super().__init__((address.host, address.port), _Handler, bind_and_activate=False)
        try:
            if listening is None:
                self.server_bind()
                self.server_activate()
            else:
                self.socket.close()
                self.socket = listening
                self._take_address()
            # a client that is gone again before it is accepted must not hold up the loop, nor the end
            self.socket.setblocking(False)
        except BaseException:
            self.server_close()
            raise

    @property
    def shown_address(self) -> str:
        """Where it listens, as a URL begins."""
        scheme = "https" if self._access and self._access.secure else "http"
        if self.address_family == socket.AF_UNIX:
            return f"{scheme}+unix:{self.server_name}"
        return f"{scheme}://{ListenAddress(self.server_name, self.server_port)}"

    def is_alive(self, within_s: float) -> bool:
        """Return whether the server polled for connections within some seconds."""
        return time.monotonic() - self._alive_at < within_s

    def service_actions(self) -> None:
        """Note that connections are still accepted, and end those that take too long; the server's loop calls this."""
        self._alive_at = time.monotonic()
        self._connections.close_overdue()

    def note_head(self) -> None:
        """Extend the deadline of this thread's client, whose request has arrived."""
        self._connections.note_head(self._own.connection)

    def get_request(self) -> tuple[Any, Any]:
        """Take a connection; a Unix socket's has no address."""
        request, client = super().get_request()
        return request, client or ("local", 0)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own, or close the connection when there are too many."""
        connection = self._connections.admit(request, identify_client(client_address))
        if connection is None:
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, (client_address, connection))
        except BaseException:
            self._connections.remove(connection)
            raise

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Answer one client, after the TLS handshake where there is one: a slow client holds up its own thread only."""
        client_address, self._own.connection = client_address
        wrapped = request
        try:
            if not self._connections.wait_for_data(self._own.connection):
                return
            if self._access is not None:
                request.settimeout(_REQUEST_TIMEOUT_S)
                wrapped = self._access.accept(request)
            super().finish_request(wrapped, client_address)
        except (OSError, NotAllowedError):
            return
        finally:
            self._connections.remove(self._own.connection)
            if wrapped is not request:
                with contextlib.suppress(OSError):
                    wrapped.shutdown(socket.SHUT_WR)
                wrapped.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that closed its connection."""

    def server_bind(self) -> None:
        """Bind without asking a name server for this host's name."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self._take_address()

    def _take_address(self) -> None:
        """Remember where the socket listens."""
        self.server_address = self.socket.getsockname()
        if self.address_family == socket.AF_UNIX:
            self.server_name, self.server_port = str(self.server_address), 0
        else:
            self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])


def open_server(
    address: ListenAddress, pages: Pages, access: WebAccess | None = None, listening: socket.socket | None = None
) -> ExporterServer:
    """Open the socket and return the server, ready for ``serve_forever``.

    Raises
    ------
    UnavailableError
        The address cannot be listened on.
    """
    try:
        return ExporterServer(address, pages, access, listening)
    except (OSError, OverflowError) as error:
        raise UnavailableError(
            f"cannot listen on {address}: {error}", hint="another exporter may hold the port; choose one with --listen"
        ) from error

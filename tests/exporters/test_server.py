"""Does the server answer many scrapers, survive bad clients, and say what it is?"""

from __future__ import annotations

import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator

import pytest
from prometheus_client import Metric

from opsk import __version__
from opsk.errors import InputError, UnavailableError
from opsk_exporters.collector import Scraper
from opsk_exporters.families import Families
from opsk_exporters.server import MOST_CONNECTIONS, ListenAddress, open_server, registry


class One:
    name = "one"

    def collect(self) -> Iterable[Metric]:
        families = Families()
        families.gauge("opsk_one", "One.", 1)
        return families.all()


@pytest.fixture
def address() -> Iterator[ListenAddress]:
    """Serve on a free port of loopback, and stop."""
    server = open_server(ListenAddress("127.0.0.1", 0), registry(Scraper([One()])))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield ListenAddress("127.0.0.1", server.server_port)
    server.shutdown()
    thread.join()
    server.server_close()


def get(address: ListenAddress, path: str, **headers: str) -> tuple[int, str, str]:
    """Return status, content type and body."""
    request = urllib.request.Request(f"http://{address}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def test_metrics_of_the_node_the_collectors_and_the_exporter_itself(address: ListenAddress) -> None:
    status, kind, body = get(address, "/metrics")
    assert (status, kind.split(";")[0]) == (200, "text/plain")
    assert "\nopsk_one 1.0\n" in body
    assert 'opsk_collector_success{collector="one"} 1.0' in body
    assert f'opsk_exporter_info{{version="{__version__}"}} 1.0' in body
    assert "opsk_exporter_process_resident_memory_bytes " in body


def test_openmetrics_is_given_to_those_who_ask(address: ListenAddress) -> None:
    _, kind, body = get(address, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text")
    assert body.endswith("# EOF\n")


def test_the_landing_page_leads_to_the_metrics(address: ListenAddress) -> None:
    status, kind, body = get(address, "/")
    assert (status, kind.split(";")[0]) == (200, "text/html")
    assert 'href="/metrics"' in body
    assert __version__ in body


def test_other_pages_are_not_there(address: ListenAddress) -> None:
    assert get(address, "/healthz")[0] == 200
    assert get(address, "/metrics/../../etc/passwd")[0] == 404
    assert get(address, "/%3Cscript%3E")[2] == "not here; metrics are at /metrics\n"


def test_clients_that_send_rubbish_or_nothing_do_not_matter(address: ListenAddress) -> None:
    where = ("127.0.0.1", address.port)
    with socket.create_connection(where) as silent, socket.create_connection(where) as rubbish:
        rubbish.sendall(b"\x00\xff\x16\x03\x01 rubbish\r\n\r\n")
        assert get(address, "/metrics")[0] == 200
        silent.sendall(b"GET /metr")
        assert get(address, "/metrics")[0] == 200


def test_idle_clients_cannot_take_all_threads(address: ListenAddress) -> None:
    threads_before = threading.active_count()
    idle = [socket.create_connection(("127.0.0.1", address.port)) for _ in range(MOST_CONNECTIONS * 2)]
    try:
        # Those above the limit are hung up on: their recv ends, though nothing was sent.
        hung_up = idle[-1]
        hung_up.settimeout(30)
        assert hung_up.recv(1) == b""
        assert threading.active_count() - threads_before <= MOST_CONNECTIONS
    finally:
        for client in idle:
            client.close()


def test_a_port_in_use_is_one_clear_error(address: ListenAddress) -> None:
    with pytest.raises(UnavailableError, match=rf"cannot listen on 127.0.0.1:{address.port}: "):
        open_server(address, registry(Scraper([]), process=False))


@pytest.mark.parametrize(
    ("text", "host", "port", "family"),
    [
        ("127.0.0.1:9876", "127.0.0.1", 9876, socket.AF_INET),
        (":9876", "", 9876, socket.AF_INET),
        ("[::1]:80", "::1", 80, socket.AF_INET6),
        ("node7:1", "node7", 1, socket.AF_INET),
    ],
)
def test_listen_addresses_are_read_and_written(text: str, host: str, port: int, family: socket.AddressFamily) -> None:
    found = ListenAddress.parse(text)
    assert (found.host, found.port, found.family) == (host, port, family)
    assert str(found) == text


@pytest.mark.parametrize("text", ["", "9876", "host:", "host:port", "::1:80", "h:99999", "h:-1", "h:٣"])
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="HOST:PORT"):
        ListenAddress.parse(text)

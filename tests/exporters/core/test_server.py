"""Does the server answer many scrapers, survive bad clients, and say what it is?"""

from __future__ import annotations

import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator

import pytest
from prometheus_client import Metric

from opsk import __version__
from opsk.errors import InputError, TelemetryError, UnavailableError
from opsk_exporters.core import connections
from opsk_exporters.core.collector import Scraper
from opsk_exporters.core.connections import MAX_CONNECTIONS, MAX_PER_CLIENT
from opsk_exporters.core.exposition import Families
from opsk_exporters.core.server import (
    ExporterServer,
    ListenAddress,
    Pages,
    compute_scrape_limit_s,
    open_server,
    render_landing_page,
)


class One:
    name = "one"

    def collect(self) -> Iterable[Metric]:
        families = Families()
        families.gauge("opsk_one", "One.", 1)
        return families.all()


@pytest.fixture
def address() -> Iterator[ListenAddress]:
    """Serve on a free port of loopback, and stop."""
    running = open_server(ListenAddress("127.0.0.1", 0), Pages(Scraper([One()])))
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield ListenAddress("127.0.0.1", running.server_port)
    running.shutdown()
    thread.join()
    running.server_close()


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


def test_the_landing_page_tells_how_each_collector_is_and_nothing_in_it_is_markup() -> None:
    class Hostile:
        name = "hostile"

        def collect(self) -> Iterable[Metric]:
            raise TelemetryError('<script>alert("x")</script>\x1b[2J')

    scraper = Scraper([One(), Hostile()])
    scraper.scrape()
    page = render_landing_page(scraper.statuses(), "node<1>").decode("utf-8")
    assert '<td class="works">works</td>' in page
    assert '<td class="fails">fails</td>' in page
    assert "&lt;script&gt;alert(&quot;x&quot;)" in page
    assert "<script" not in page
    assert "\x1b" not in page
    assert "node&lt;1&gt;" in page


def test_opening_the_page_runs_no_collector(address: ListenAddress) -> None:
    get(address, "/")
    assert "not run yet" in get(address, "/")[2]
    get(address, "/metrics")
    assert "not run yet" not in get(address, "/")[2]


def test_only_reading_is_possible(address: ListenAddress) -> None:
    for method, status in (("HEAD", b"200"), ("POST", b"405"), ("DELETE", b"405")):
        with socket.create_connection(("127.0.0.1", address.port)) as client:
            client.sendall(method.encode() + b" /metrics HTTP/1.0\r\n\r\n")
            answer = client.makefile("rb").read()
        assert answer.split(b" ", 2)[1] == status
        assert (b"Allow: GET, HEAD" in answer) == (status == b"405")
        assert b"opsk_one" not in answer


@pytest.mark.parametrize(
    ("said", "limit_s"),
    [
        ("10", 9.5),
        ("1", 0.9),
        ("0.5", 0.45),
        ("0.001", 0.45),
        ("", None),
        ("x", None),
        ("nan", None),
        ("inf", None),
        ("-1", None),
    ],
)
def test_a_scrape_ends_before_its_scraper_gives_up(said: str, limit_s: float | None) -> None:
    assert compute_scrape_limit_s(said) == (None if limit_s is None else pytest.approx(limit_s))


def test_nobody_learns_which_python_answers(address: ListenAddress) -> None:
    with urllib.request.urlopen(f"http://{address}/", timeout=30) as answer:
        assert answer.headers["Server"] == "opsk-exporter"


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
    idle = [socket.create_connection(("127.0.0.1", address.port)) for _ in range(MAX_CONNECTIONS * 2)]
    try:
        # The oldest are hung up on: their recv ends, though nothing was sent.
        for hung_up in idle[: MAX_CONNECTIONS * 2 - MAX_PER_CLIENT]:
            hung_up.settimeout(30)
            assert hung_up.recv(1) == b""
        give_up = time.monotonic() + 30
        while threading.active_count() - threads_before > MAX_PER_CLIENT and time.monotonic() < give_up:
            time.sleep(0.01)
        assert threading.active_count() - threads_before <= MAX_PER_CLIENT
    finally:
        for client in idle:
            client.close()


def test_idle_sockets_of_this_node_shut_no_scraper_of_this_node_out(
    address: ListenAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MAX_HEAD_S", 60.0)
    idle = [socket.create_connection(("127.0.0.1", address.port)) for _ in range(MAX_PER_CLIENT)]
    try:
        assert get(address, "/healthz")[0] == 200
        assert get(address, "/metrics")[0] == 200
    finally:
        for client in idle:
            client.close()


def test_one_client_leaves_room_for_the_others(address: ListenAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    idle = [socket.create_connection(("127.0.0.1", address.port)) for _ in range(MAX_CONNECTIONS)]
    try:
        idle[0].settimeout(30)
        assert idle[0].recv(1) == b""  # it gave way to others of this node
        real = ExporterServer.get_request
        monkeypatch.setattr(ExporterServer, "get_request", lambda self: (real(self)[0], ("192.0.2.7", 1)))
        assert get(address, "/metrics")[0] == 200
    finally:
        for client in idle:
            client.close()


def test_idle_clients_are_hung_up_on_and_make_room(address: ListenAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_HEAD_S", 0.1)
    idle = [socket.create_connection(("127.0.0.1", address.port)) for _ in range(MAX_PER_CLIENT)]
    try:
        for client in idle:
            client.settimeout(5)
            assert client.recv(1) == b""
        monkeypatch.undo()
        give_up = time.monotonic() + 30
        while (status := status_of(address)) != 200 and time.monotonic() < give_up:
            time.sleep(0.01)
        assert status == 200
    finally:
        for client in idle:
            client.close()


def status_of(address: ListenAddress) -> int | None:
    try:
        return get(address, "/healthz")[0]
    except OSError:
        return None


def test_an_answer_may_take_longer_than_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(One):
        def collect(self) -> Iterable[Metric]:
            time.sleep(0.5)
            return super().collect()

    monkeypatch.setattr(connections, "MAX_HEAD_S", 0.2)
    running = open_server(ListenAddress("127.0.0.1", 0), Pages(Scraper([Slow()], deadline_s=30.0)))
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        assert "\nopsk_one 1.0\n" in get(ListenAddress("127.0.0.1", running.server_port), "/metrics")[2]
    finally:
        running.shutdown()
        thread.join()
        running.server_close()


def test_who_feeds_us_byte_by_byte_is_hung_up_on(address: ListenAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_HEAD_S", 0.2)
    with socket.create_connection(("127.0.0.1", address.port)) as dripping:
        dripping.settimeout(0.05)
        ended = False
        give_up = time.monotonic() + 30
        while not ended and time.monotonic() < give_up:
            try:
                dripping.sendall(b"G")
                ended = dripping.recv(1) == b""
            except TimeoutError:
                continue
            except OSError:
                ended = True
        assert ended
    monkeypatch.undo()
    assert get(address, "/healthz")[0] == 200


def test_a_client_that_is_gone_before_it_is_accepted_holds_up_nothing() -> None:
    running = open_server(ListenAddress("127.0.0.1", 0), Pages(Scraper([])))
    try:
        with pytest.raises(BlockingIOError):  # as after select said that there is one
            running.get_request()
    finally:
        running.server_close()


def test_a_port_in_use_is_one_clear_error(address: ListenAddress) -> None:
    with pytest.raises(UnavailableError, match=rf"cannot listen on 127.0.0.1:{address.port}: "):
        open_server(address, Pages(Scraper([])))


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

"""Can a node that was stolen keep whoever looks at it waiting, by sending a byte now and then?"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from opsk.app.events import read_pages
from opsk.app.site_pages import fetch
from opsk.config import TopConfig
from opsk.errors import UnavailableError
from opsk_tui.data.sources.prometheus.http import Access, Server

DEADLINE_S = 0.6
HEADS = {
    "the first line": b"HTTP/1.1 200 ",
    "the head": b"HTTP/1.1 200 OK\r\nX-",
    "the body": b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n",
    "a body of no length": b"HTTP/1.0 200 OK\r\n\r\n",
    "a chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n",
}


@pytest.fixture(params=HEADS.values(), ids=HEADS)
def dripping(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server that begins an answer, and sends a byte of the rest every 50 ms until nobody listens."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)

        def serve() -> None:
            try:
                connection, _ = listener.accept()
                with connection:
                    connection.sendall(request.param)
                    while not over.wait(0.05):
                        connection.sendall(b"x")
            except OSError:
                return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        over.set()
        thread.join(20)


def by_doctor(url: str) -> str:
    return fetch(f"{url}/metrics", TopConfig(), deadline_s=DEADLINE_S).problem


def by_events(url: str) -> str:
    return read_pages({"n1": f"{url}/metrics"}, (), deadline_s=DEADLINE_S)[0].problem


def by_top(url: str) -> str:
    server = Server(url, Access(), deadline_s=DEADLINE_S, max_bytes=1 << 20)
    try:
        server.ask("GET", "/metrics")
    except UnavailableError as error:
        return error.message
    finally:
        server.close()
    return ""


@pytest.mark.parametrize("ask", [by_doctor, by_events, by_top])
def test_who_drips_is_left_at_the_deadline(ask: Callable[[str], str], dripping: str) -> None:
    said: list[str] = []
    thread = threading.Thread(target=lambda: said.append(ask(dripping)), daemon=True)
    began = time.monotonic()
    thread.start()
    thread.join(20 * DEADLINE_S)
    assert not thread.is_alive(), "it still waits, twenty deadlines later"
    assert time.monotonic() - began >= 0.8 * DEADLINE_S, "it did not wait at all"
    assert "in time" in said[0] or "timed out" in said[0]

"""Are answers whole, whatever way and however slowly they come?"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsk.errors import UnavailableError
from opsk_tui.data.sources.prometheus.http import Access, RefusedError, Server

LARGEST_BYTES = 3 << 20


class Speaker(BaseHTTPRequestHandler):
    """Says what the test has put into ``says``: the whole at once, in chunks, or less than it promised."""

    protocol_version = "HTTP/1.1"
    says, way = b"", "whole"

    def do_GET(self) -> None:
        said = type(self).says
        if self.way == "elsewhere":
            self.send_response(302)
            self.send_header("Location", "http://127.0.0.1:1/")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        if self.way == "chunks":
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for begin in range(0, len(said), 70_000):
                part = said[begin : begin + 70_000]
                self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")
            return
        if self.way == "hangs":
            self.send_header("Connection", "close")
        self.send_header("Content-Length", str(len(said) + (1000 if self.way in {"cut", "hangs"} else 0)))
        self.end_headers()
        self.wfile.write(said)
        self.close_connection = self.way in {"cut", "hangs"}
        if self.way == "hangs":
            self.rfile.read(1)

    def log_message(self, format: str, *args: object) -> None:
        return


@contextmanager
def speaking() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Speaker)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


@pytest.fixture(scope="module")
def asked() -> Iterator[Server]:
    with speaking() as url:
        server = Server(url, Access(), deadline_s=10.0, max_bytes=LARGEST_BYTES)
        yield server
        server.close()


@pytest.fixture(autouse=True)
def speaks_as_it_is() -> Iterator[None]:
    yield
    Speaker.says, Speaker.way = b"", "whole"


@given(sizes=st.lists(st.integers(0, 300_000), min_size=1, max_size=4), way=st.sampled_from(["whole", "chunks"]))
def test_answers_are_what_was_said_whatever_came_before(asked: Server, sizes: list[int], way: str) -> None:
    Speaker.way = way
    for number, size in enumerate(sizes):
        Speaker.says = bytes([65 + number]) * size
        assert asked.ask("GET", "/") == Speaker.says


@pytest.mark.parametrize("way", ["whole", "chunks"])
def test_the_largest_answer_is_read_and_a_larger_one_is_not(asked: Server, way: str) -> None:
    Speaker.way, Speaker.says = way, b"x" * LARGEST_BYTES
    assert len(asked.ask("GET", "/")) == LARGEST_BYTES
    Speaker.says = b"x" * (LARGEST_BYTES + 1)
    with pytest.raises(UnavailableError, match="more than"):
        asked.ask("GET", "/")


def test_an_answer_that_is_cut_off_harms_no_later_one_though_its_error_is_kept(asked: Server) -> None:
    kept = []
    for size in (10, 100_000):
        Speaker.says, Speaker.way = b"y" * size, "cut"
        with pytest.raises(UnavailableError, match="cut off") as caught:
            asked.ask("GET", "/")
        kept.append(caught.value)
        Speaker.says, Speaker.way = b"z" * 20 * size, "whole"
        assert asked.ask("GET", "/") == Speaker.says


def test_servers_that_stop_in_the_middle_leave_no_socket_behind_though_their_errors_are_kept() -> None:
    """They are thousands after an hour with a busy node, and are only closed when somebody looks for lost objects."""
    Speaker.says, Speaker.way = b"y" * 10, "hangs"
    kept = []
    with speaking() as url:
        server = Server(url, Access(), deadline_s=0.1, max_bytes=LARGEST_BYTES)
        for _ in range(5):
            with pytest.raises(UnavailableError, match="in time") as caught:
                server.ask("GET", "/")
            kept.append(caught.value)
        port = url.rpartition(":")[2]
        ours = [each for each in psutil.Process().net_connections("tcp") if each.raddr and str(each.raddr.port) == port]
    assert not [each for each in ours if each.status == psutil.CONN_ESTABLISHED]


def test_passwords_do_not_follow_a_redirection(asked: Server) -> None:
    Speaker.way = "elsewhere"
    with pytest.raises(RefusedError, match="302"):
        asked.ask("GET", "/")

"""Is there room for a client as long as it is not itself who takes it, and does only who has said nothing give way?"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from opsk_exporters.core import connections
from opsk_exporters.core.connections import MAX_CONNECTIONS, MAX_PER_CLIENT, Connection, Connections, identify_client

Connect = Callable[[str], tuple[socket.socket, Connection | None]]


@pytest.fixture
def held() -> Connections:
    return Connections()


@pytest.fixture
def connect(held: Connections) -> Iterator[Connect]:
    """Connect a client; gives its own end and what was made of it."""
    ends: list[socket.socket] = []
    entered: list[Connection] = []

    def connect_one(client: str) -> tuple[socket.socket, Connection | None]:
        ours, theirs = socket.socketpair()
        ends.extend((ours, theirs))
        connection = held.admit(ours, client)
        if connection is not None:
            entered.append(connection)
        return theirs, connection

    yield connect_one
    for connection in entered:
        held.remove(connection)
    for end in ends:
        end.close()


def is_hung_up_on(end: socket.socket) -> bool:
    try:
        return end.recv(1, socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False


def test_the_oldest_that_sent_nothing_gives_way(connect: Connect) -> None:
    ends = [connect("a")[0] for _ in range(MAX_PER_CLIENT)]
    ends[0].sendall(b"G")
    ends[2].sendall(b"G")
    for _ in range(2):
        assert connect("a")[1] is not None
    assert [number for number, end in enumerate(ends) if is_hung_up_on(end)] == [1, 3]


def test_who_has_begun_to_ask_keeps_the_place(connect: Connect) -> None:
    for _ in range(MAX_PER_CLIENT):
        connect("a")[0].sendall(b"G")
    assert connect("a")[1] is None
    assert connect("b")[1] is not None


def test_who_was_heard_keeps_the_place_though_all_of_it_was_read(held: Connections, connect: Connect) -> None:
    for _ in range(MAX_PER_CLIENT):
        end, connection = connect("a")
        assert connection is not None
        end.sendall(b"G")
        assert held.wait_for_data(connection)
        assert connection.handle.recv(1) == b"G"
    assert connect("a")[1] is None


def test_one_that_hung_up_gives_way(connect: Connect) -> None:
    ends = [connect("a")[0] for _ in range(MAX_PER_CLIENT)]
    for end in ends:
        end.shutdown(socket.SHUT_WR)
    assert connect("a")[1] is not None


def test_where_all_places_are_taken_who_has_the_most_gives_way(connect: Connect) -> None:
    modest = [connect(f"modest-{number}")[0] for number in range(4)]
    greedy = [connect("greedy")[0] for _ in range(MAX_PER_CLIENT)]
    for number in range(MAX_CONNECTIONS - len(modest) - len(greedy)):
        connect(f"other-{number % 11}")
    assert connect("new")[1] is not None
    assert is_hung_up_on(greedy[0])
    assert not any(is_hung_up_on(end) for end in (*modest, *greedy[1:]))


def test_nobody_drives_out_who_has_no_more_than_himself(connect: Connect) -> None:
    ends = [connect(f"client-{number}")[0] for number in range(MAX_CONNECTIONS)]
    assert connect("client-0")[1] is None
    assert not any(is_hung_up_on(end) for end in ends)
    assert connect("new")[1] is not None
    assert is_hung_up_on(ends[0])


def test_there_are_never_more_than_the_limits(held: Connections, connect: Connect) -> None:
    for number in range(4 * MAX_CONNECTIONS):
        connect(f"client-{number % 7}")
        clients = [connection.client for connection in held._open]
        assert len(clients) <= MAX_CONNECTIONS
        assert max(map(clients.count, clients)) <= MAX_PER_CLIENT


def test_who_gave_way_is_not_heard_any_more(held: Connections, connect: Connect) -> None:
    _, first = connect("a")
    assert first is not None
    heard: list[bool] = []
    waiting = threading.Thread(target=lambda: heard.append(held.wait_for_data(first)))
    waiting.start()
    for _ in range(MAX_PER_CLIENT):
        connect("a")
    waiting.join(30)
    assert heard == [False]


def test_nobody_is_waited_for_longer_than_a_head_may_take(
    held: Connections, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MAX_HEAD_S", 0.05)
    end, connection = connect("a")
    assert connection is not None
    assert not held.wait_for_data(connection)
    threading.Event().wait(0.05)
    held.close_overdue()
    assert is_hung_up_on(end)


def test_who_left_makes_room(held: Connections, connect: Connect) -> None:
    found = [connect("a") for _ in range(MAX_PER_CLIENT)]
    for end, _ in found:
        end.sendall(b"G")
    _, first = found[0]
    assert first is not None
    held.remove(first)
    connect("a")[0].sendall(b"G")
    assert connect("a")[1] is None


@pytest.mark.parametrize(
    ("host", "client"),
    [
        ("127.0.0.1", "this node"),
        ("127.9.9.9", "this node"),
        ("::1", "this node"),
        ("::ffff:127.0.0.1", "this node"),
        ("local", "this node"),
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:0:1::7", "2001:db8:0:1::/64"),
        ("fe80::7%eth0", "fe80::/64"),
    ],
)
def test_whose_connections_count_together(host: str, client: str) -> None:
    assert identify_client((host, 4711)) == client

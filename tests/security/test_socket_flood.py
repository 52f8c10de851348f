"""Can one user keep others from the advisor, by opening connections, or by saying nothing on them?"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from opsk.config import SiteConfig
from opsk_jobcheck.records.record_queue import OF_ONE_USER_BYTES_A_MINUTE, RecordQueue
from opsk_jobcheck.service import connections
from opsk_jobcheck.service.answering import PONG
from opsk_jobcheck.service.connections import Connections, Limits
from opsk_jobcheck.service.session import AnswerResult, Peer, Session
from opsk_jobcheck.submission.protocol import HEADER_BYTES, MAX_QUESTION_BYTES, Answer, Question, frame

PING = frame(b'{"v":1,"kind":"ping"}')
LIMITS = Limits(connections=8, connections_per_user=3, quiet_s=1.0, held_bytes=3 << 20, held_bytes_per_user=1 << 20)


class Ponging:
    """Answers at once."""

    def answer(self, question: Question, session: Session) -> AnswerResult:
        return PONG

    def note(self, question: Question, answer: Answer | None, session: Session, took_s: float) -> None:
        """Keep nothing."""

    def note_refused(self, session: Session, why: str) -> None:
        """Keep nothing."""


@pytest.fixture
def uid(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Whose the next connections are: the kernel would say, of other processes."""
    now = [1000]
    monkeypatch.setattr(connections, "read_peer", lambda _: Peer(pid=os.getpid(), uid=now[0], gid=now[0]))
    return now


@pytest.fixture
def connect(tmp_path: Path, uid: list[int]) -> Iterator[Callable[[], socket.socket]]:
    path = tmp_path / "advisor.sock"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    listener.bind(str(path))
    listener.listen(64)
    loop = asyncio.new_event_loop()
    served = Connections(Ponging(), LIMITS)
    loop.call_soon(served.accept_from, listener)
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    opened: list[socket.socket] = []

    def one() -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.settimeout(20)
        made.connect(str(path))
        opened.append(made)
        return made

    yield one
    loop.call_soon_threadsafe(lambda: (served.refuse_from(listener), served.close(), loop.stop()))
    thread.join(20)
    loop.close()
    listener.close()
    for each in opened:
        each.close()


def is_answered(connection: socket.socket) -> bool:
    try:
        connection.sendall(PING)
        return bool(connection.recv(4))
    except (BrokenPipeError, ConnectionResetError):
        return False


def test_who_holds_all_his_connections_gets_no_more_and_others_do(
    connect: Callable[[], socket.socket], uid: list[int]
) -> None:
    mine = [connect() for _ in range(LIMITS.connections_per_user)]
    assert all(is_answered(each) for each in mine)
    assert not is_answered(connect())
    uid[0] = 1001
    assert is_answered(connect())
    mine[0].close()
    uid[0] = 1000
    assert is_answered(connect())


def test_who_drips_and_who_is_silent_is_hung_up_on(connect: Callable[[], socket.socket]) -> None:
    silent, begun = connect(), connect()
    begun.sendall(PING[:5])
    for connection in (silent, begun):
        with closing(connection):
            assert connection.recv(1) == b""
    assert is_answered(connect())


def test_who_promises_much_and_sends_little_uses_up_his_own_part(
    connect: Callable[[], socket.socket], uid: list[int]
) -> None:
    """A frame begins with its length, for which room is kept: three of a mebibyte would be all that there is."""
    promising = [connect() for _ in range(LIMITS.connections_per_user)]
    for connection in promising:
        connection.sendall((1 << 20).to_bytes(HEADER_BYTES, "big") + b"{")
    assert promising[1].recv(4)  # the second is told that it is too much
    uid[0] = 1001
    assert is_answered(connect())


def test_the_default_parts_hold_the_largest_question_and_leave_room_for_others() -> None:
    usual = Limits()
    assert MAX_QUESTION_BYTES <= usual.held_bytes_per_user <= usual.held_bytes // 2


def test_what_was_held_is_given_back(connect: Callable[[], socket.socket]) -> None:
    for _ in range(5):
        with closing(connect()) as connection:
            body = b'{"v":1,"kind":"ping","more":"' + b"x" * 900_000 + b'"}'
            connection.sendall(frame(body))
            assert connection.recv(4)


def taken(recording: RecordQueue, uid: int, size_bytes: int, most: int = 100) -> int:
    """Return how many questions of a size are taken before one is refused."""
    return next((number for number in range(most) if not recording.record(uid, ["x" * size_bytes])), most)


def test_a_flood_of_records_leaves_room_for_other_users_and_for_the_site() -> None:
    """The store is away: nothing is written, and all that is taken waits."""

    async def run() -> None:
        hangs = (sys.executable, "-c", "import time; time.sleep(600)")
        recording = RecordQueue(SiteConfig(), lambda uid: uid == 0, command=hangs)
        size_bytes = 200_000
        part = OF_ONE_USER_BYTES_A_MINUTE // (size_bytes + 100)
        assert taken(recording, 1000, size_bytes) in range(part, 2 * part + 1)  # a minute may just end
        assert taken(recording, 1001, size_bytes) >= 1, "one user's flood is no other's"
        for uid in range(1002, 1010):
            taken(recording, uid, size_bytes)
        assert not recording.record(2000, ["x" * size_bytes])
        assert taken(recording, 0, size_bytes) >= 10, "all users' flood is not the site's"
        await recording.close()

    asyncio.run(run())


def test_one_question_is_never_more_than_a_users_part() -> None:
    assert MAX_QUESTION_BYTES < OF_ONE_USER_BYTES_A_MINUTE

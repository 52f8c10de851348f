"""What can listen on the advisor's socket besides a healthy advisor?"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SETTLED_S = 0.02


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def read_question(connection: socket.socket) -> bytes:
    """Read one question, or what there is of it."""
    data = b""
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        part = connection.recv(1 << 16)
        if not part:
            break
        data += part
    return data[4:]


@dataclass
class Server:
    """A server in a thread that treats each connection as told, and counts them."""

    path: Path
    treat: Callable[[socket.socket], None]
    _accepted: int = 0

    def __post_init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(self.path))
        self._socket.listen(64)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def connections(self) -> int:
        """How many have connected; those that the kernel still holds are accepted first."""
        while select.select([self._socket], [], [], SETTLED_S)[0]:
            time.sleep(SETTLED_S)
        return self._accepted

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self._accepted += 1
            threading.Thread(target=self._treat, args=(connection,), daemon=True).start()

    def _treat(self, connection: socket.socket) -> None:
        try:
            with connection:
                self.treat(connection)
        except OSError:
            return

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(5)
        self.path.unlink()


Serve = Callable[[Callable[[socket.socket], None]], Server]
"""What starts a server on the hooks' socket that treats each connection as told."""


class AnswerWith:
    """Answers each question of a connection with the next body, and keeps what was asked."""

    def __init__(self, *bodies: bytes) -> None:
        self._bodies = bodies
        self._asked: list[bytes] = []
        self._open = 0

    def __call__(self, connection: socket.socket) -> None:
        self._open += 1
        try:
            for body in (*self._bodies, b""):
                asked = read_question(connection)
                if not asked:
                    return
                self._asked.append(asked)
                if body:
                    connection.sendall(framed(body))
        finally:
            self._open -= 1

    @property
    def questions(self) -> list[bytes]:
        """What was asked, once the conversations that were begun are over."""
        time.sleep(SETTLED_S)
        while self._open:
            time.sleep(SETTLED_S)
        return self._asked


def hang(connection: socket.socket) -> None:
    time.sleep(5)


def drip(connection: socket.socket) -> None:
    """Answer well-formed, a byte every 20 ms: about 2.5 s for the whole."""
    read_question(connection)
    for byte in framed(b"opsk 1 advice\ncomment opsk:v1\nline " + b"x" * 80 + b"\n"):
        connection.sendall(bytes([byte]))
        time.sleep(0.02)


def say_and_hang(data: bytes) -> Callable[[socket.socket], None]:
    def treat(connection: socket.socket) -> None:
        read_question(connection)
        connection.sendall(data)
        time.sleep(5)

    return treat


def close_at_once(connection: socket.socket) -> None:
    connection.close()


BAD_SERVERS: dict[str, Callable[[socket.socket], None]] = {
    "accepts and says nothing": hang,
    "closes at once": close_at_once,
    "drips": drip,
    "garbage": say_and_hang(bytes(range(256)) * 400),
    "half a frame": say_and_hang(framed(b"opsk 1 advice\nline x\n")[:20]),
    "huge frame announced": say_and_hang(b"\xff\xff\xff\xff" + b"x" * 100_000),
    "empty frame": say_and_hang(b"\x00\x00\x00\x00"),
    "another language": say_and_hang(framed(b"hello, is this thing on?")),
    "JSON": say_and_hang(framed(b'{"v":1,"status":"advice","lines":["x"],"comment":"opsk:v1"}')),
    "no status": say_and_hang(framed(b"opsk 1 \nline x\naction reject\n")),
    "a row without end": say_and_hang(framed(b"opsk 1 advice")),
    "other version": say_and_hang(framed(b"opsk 2 advice\ncomment opsk:v1\nline x\n")),
    "raw control bytes": say_and_hang(framed(b"opsk 1 advice\ncomment \x1b\nline \x9b31m\xff\n")),
    "refuses": say_and_hang(framed(b"opsk 1 error\nerror not allowed\n")),
    "rows of no meaning": say_and_hang(framed(b"opsk 1 advice\nstatus x\nline \nline\ncolour red\n" + b"\n" * 5000)),
}
"""Every way we know in which what listens on the socket can be something else than a healthy advisor."""

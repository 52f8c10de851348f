"""Listens on the advisor's socket, and serves many connections at once with little work per request.

Sockets are read and written as they are ready, without streams or a task for each: a training job sends two or three
requests, most of which are answered at once from the cache.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import pwd
import socket
import stat
import struct
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from opsk.config import AdvisorConfig
from opsk.errors import ConfigError, UnavailableError
from opsk.units import KIB, MIB
from opsk_jobcheck.service.session import AnswerResult, Peer, PendingAnswer, RawFrame, Session
from opsk_jobcheck.submission.protocol import (
    HEADER_BYTES,
    Answer,
    ProtocolError,
    Question,
    parse_body_length,
    parse_question,
    render_answer,
)

log = logging.getLogger(__name__)

BACKLOG = 512
FIRST_PASSED_FD = 3
_CREDENTIALS = struct.Struct("3i")
ACCEPTED_AT_ONCE = 64
PAUSE_S = 0.1
"""How long no connection is accepted after a failure: there are no file descriptors left."""
READ_BYTES = 64 * KIB


def read_peer(connection: socket.socket) -> Peer:
    """Return the peer of a connection."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, gid = _CREDENTIALS.unpack(raw)
    return Peer(pid=pid, uid=uid, gid=gid)


def submit_uids(config: AdvisorConfig) -> frozenset[int]:
    """Return the uids that may ask on behalf of others: the configured users that exist, and this process's own."""
    uids = {os.geteuid()}
    for name in config.submit_users:
        try:
            uids.add(pwd.getpwnam(name).pw_uid)
        except KeyError:
            # a default need not exist; a configured name should
            if "submit_users" in config.model_fields_set:
                log.warning("submit_users: there is no user %r on this host: its requests for others are refused", name)
    return frozenset(uids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A listening socket; ``path`` and ``inode`` are ``None`` when systemd created and owns it."""

    socket: socket.socket
    path: Path | None = None
    inode: int | None = None

    def release(self) -> None:
        """Close the socket and remove its name, unless another advisor has replaced it."""
        self.socket.close()
        try:
            if self.path is not None and self.path.lstat().st_ino == self.inode:
                self.path.unlink()
        except OSError:
            return


def listen(config: AdvisorConfig, environ: Mapping[str, str] = os.environ) -> Listener:
    """Return the socket that systemd passed, else a new one.

    Raises
    ------
    ConfigError
        When the path is no socket, is too long, or its directory is missing or not writable.
    UnavailableError
        When another advisor answers there.
    """
    passed = environ.get("LISTEN_FDS", "")
    if environ.get("LISTEN_PID") == str(os.getpid()) and passed.isdigit() and int(passed) >= 1:
        ours = socket.socket(fileno=FIRST_PASSED_FD)
        ours.setblocking(False)
        return Listener(socket=ours)
    return _bind(config.socket, config.socket_mode)


def _bind(path: Path, mode: int) -> Listener:
    """Listen on a path.

    The socket is bound under another name, given its mode, and then renamed: nobody can connect to it too early, and
    the process's umask, which threads share, is left alone.
    """
    _remove_stale_socket(path)
    ours = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.unlink(missing_ok=True)
        ours.bind(str(draft))
        draft.chmod(mode)
        ours.listen(BACKLOG)
        draft.rename(path)
        return Listener(socket=ours, path=path, inode=path.lstat().st_ino)
    except OSError as error:
        ours.close()
        with suppress(OSError):
            draft.unlink()
        hint = f"the user that opsk advisor runs as must be able to write {path.parent}"
        raise ConfigError(f"{path}: cannot listen: {error.strerror or error}", hint=hint) from error


def _remove_stale_socket(path: Path) -> None:
    """Remove a stale socket: only a socket without a listener is removed."""
    try:
        facts = path.lstat()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return
        raise ConfigError(f"{path}: {error.strerror}", hint="check the directories above it") from error
    if not stat.S_ISSOCK(facts.st_mode):
        raise ConfigError(f"{path}: is not a socket", hint="name another path or remove it")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return
        except OSError as error:
            raise UnavailableError(f"{path}: {error.strerror or error}", hint="is another advisor stuck?") from error
    raise UnavailableError(f"{path}: another advisor answers there", hint="stop it first, or name another socket")


def notify(state: str, environ: Mapping[str, str] = os.environ) -> None:
    """Report the state to systemd (``READY=1``); does nothing where there is no systemd.

    Source: sd_notify(3), protocol of ``NOTIFY_SOCKET``.
    """
    address = environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    target = "\0" + address[1:] if address.startswith("@") else address
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        try:
            sender.sendto(state.encode(), target)
        except OSError:
            return


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one connection, of one user and of all together.

    Parameters
    ----------
    connections, connections_per_user
        Open at the same time; one more is closed at once, which a hook treats as "no advice".
    questions
        Questions on one connection.
    quiet_s
        How long a connection may be silent, or not read its answer [s].
    held_bytes, held_bytes_per_user
        Sum of the questions being received [bytes]: a sender that announces much and sends little uses up its own
        share.
    """

    connections: int = 1024
    connections_per_user: int = 256
    questions: int = 8
    quiet_s: float = 2.0
    held_bytes: int = 64 * MIB
    held_bytes_per_user: int = 16 * MIB


class RequestHandler(Protocol):
    """The handler of questions."""

    def answer(self, question: Question, session: Session) -> AnswerResult:
        """Return the answer where it is known at once, else a pending one."""

    def handle_end(self, session: Session) -> None:
        """Record that the client has read everything, and closed."""

    def note(self, question: Question, answer: Answer, session: Session, took_s: float) -> None:
        """Log one question and its answer."""

    def note_refused(self, session: Session, why: str) -> None:
        """Log an invalid question."""


class Connections:
    """All open connections."""

    def __init__(self, handler: RequestHandler, limits: Limits) -> None:
        self.handler = handler
        self.limits = limits
        self.held_bytes = 0
        self._open: set[Connection] = set()
        self._count_by_user: Counter[int] = Counter()
        self._held_by_user: Counter[int] = Counter()
        self._is_sweep_scheduled = False

    def accept_from(self, listener: socket.socket) -> None:
        """Accept connections from now on."""
        asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def refuse_from(self, listener: socket.socket) -> None:
        """Accept no more."""
        asyncio.get_running_loop().remove_reader(listener)

    def close(self) -> None:
        """End all of them."""
        for connection in tuple(self._open):
            connection.close()

    def remove(self, connection: Connection) -> None:
        """Remove a connection that was closed."""
        self._open.discard(connection)
        uid = connection.session.peer.uid
        self._count_by_user[uid] -= 1
        if not self._count_by_user[uid]:
            del self._count_by_user[uid], self._held_by_user[uid]

    def hold(self, uid: int, size_bytes: int) -> bool:
        """Reserve memory for a user's question; return whether there is room. A negative size releases it."""
        held_bytes, user_bytes = self.held_bytes + size_bytes, self._held_by_user[uid] + size_bytes
        if size_bytes > 0 and (held_bytes > self.limits.held_bytes or user_bytes > self.limits.held_bytes_per_user):
            return False
        self.held_bytes, self._held_by_user[uid] = held_bytes, user_bytes
        return True

    def _accept(self, listener: socket.socket) -> None:
        """Accept all waiting connections; running out of file descriptors only delays the next one."""
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                connected, _ = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                log.warning("cannot accept: %s", error.strerror)
                loop = asyncio.get_running_loop()
                loop.remove_reader(listener)
                loop.call_later(PAUSE_S, self._accept_again, listener)
                return
            self._open_connection(connected)

    def _accept_again(self, listener: socket.socket) -> None:
        """Continue after a pause, unless the advisor has ended."""
        if listener.fileno() >= 0:
            self.accept_from(listener)

    def _open_connection(self, connected: socket.socket) -> None:
        """Serve one connection, or close it."""
        try:
            connected.setblocking(False)
            peer = read_peer(connected)
        except OSError:
            connected.close()
            return
        if (
            len(self._open) >= self.limits.connections
            or self._count_by_user[peer.uid] >= self.limits.connections_per_user
        ):
            connected.close()
            return
        connection = Connection(self, connected, peer)
        self._open.add(connection)
        self._count_by_user[peer.uid] += 1
        # not at once: an earlier connection may have sent data that this question depends on
        asyncio.get_running_loop().call_soon(connection.readable)
        self._schedule_sweep()

    def _schedule_sweep(self) -> None:
        """Schedule a check of the silent connections."""
        if self._open and not self._is_sweep_scheduled:
            self._is_sweep_scheduled = True
            asyncio.get_running_loop().call_later(self.limits.quiet_s / 4, self._sweep)

    def _sweep(self) -> None:
        """Close the connections that have been silent for too long."""
        oldest = time.monotonic() - self.limits.quiet_s
        for connection in [
            open_connection
            for open_connection in self._open
            if not open_connection.is_pending and open_connection.since < oldest
        ]:
            connection.close()
        self._is_sweep_scheduled = False
        self._schedule_sweep()


class Connection:
    """One connection of a hook: a few questions, one after the other.

    Attributes
    ----------
    session
        The peer, and the state so far.
    since
        Start of the present wait for the other end [s].
    is_pending
        A worker has the last question; nothing is read until it is answered.
    """

    __slots__ = (
        *(
            "session",
            "since",
            "is_pending",
            "_all",
            "_socket",
            "_number",
            "_received",
            "_length",
            "_held",
            "_unsent",
        ),
        *("_began", "_remaining", "_is_reading", "_is_closed"),
    )

    def __init__(self, connections: Connections, connected: socket.socket, peer: Peer) -> None:
        self._all = connections
        self._socket = connected
        self._number = connected.fileno()  # asyncio formats a socket object with four system calls at each event
        self.session = Session(peer=peer)
        self.since = self._began = time.monotonic()
        self.is_pending = False
        self._received = bytearray()
        self._length: int | None = None
        self._held = 0
        self._unsent: bytes | memoryview = b""
        self._remaining = connections.limits.questions
        self._is_reading = self._is_closed = False

    def readable(self) -> None:
        """Read available data, and answer it; no error leaves this."""
        if self._is_closed:
            return
        try:
            self._read()
        except Exception:
            log.exception("a connection failed")
            self.close()

    def writable(self) -> None:
        """Send the rest of an answer, then continue."""
        unsent, self._unsent = self._unsent, b""
        asyncio.get_running_loop().remove_writer(self._number)
        self._send(unsent)
        self._resume()

    def close(self) -> None:
        """End this connection."""
        if self._is_closed:
            return
        self._is_closed = True
        loop = asyncio.get_running_loop()
        if self._is_reading:
            loop.remove_reader(self._number)
        if self._unsent:
            loop.remove_writer(self._number)
        self._socket.close()
        self._release()
        self._all.remove(self)

    @property
    def _is_free(self) -> bool:
        """Whether the next question may be processed."""
        return not (self._is_closed or self.is_pending or self._unsent)

    def _read(self) -> None:
        """Read once, and answer complete questions."""
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            data = None
        except OSError:  # the client has closed without reading the answer
            self.close()
            return
        if data == b"":
            self._all.handler.handle_end(self.session)
            self.close()
            return
        if data:
            self._received += data
            self._answer_complete()
        self._wait()

    def _resume(self) -> None:
        """Process data that arrived while this connection was busy, and wait for more."""
        try:
            self._answer_complete()
            self._wait()
        except Exception:
            log.exception("a connection failed")
            self.close()

    def _wait(self) -> None:
        """Register for reading, only while data may be processed."""
        is_free = self._is_free
        if is_free and not self._is_reading:
            asyncio.get_running_loop().add_reader(self._number, self.readable)
        elif self._is_reading and not is_free and not self._is_closed:
            asyncio.get_running_loop().remove_reader(self._number)
        self._is_reading = is_free

    def _answer_complete(self) -> None:
        """Answer the questions that are complete."""
        while self._is_free:
            try:
                question = self._next_question()
            except ProtocolError as error:
                self._refuse(error)
                return
            if question is None:
                return
            answer = self._all.handler.answer(question, self.session)
            if isinstance(answer, Answer):
                self._send_answer(question, answer)
            elif isinstance(answer, RawFrame):
                self._remaining -= 1
                self._send(memoryview(answer.frame))
            else:
                self._analyze(question, answer)

    def _next_question(self) -> Question | None:
        """Return the next question, ``None`` where it is incomplete.

        Raises
        ------
        ProtocolError
            When the data is no question, or exceeds the limits.
        """
        if self._length is None:
            if len(self._received) < HEADER_BYTES:
                return None
            self._began = self.since = time.monotonic()
            length = parse_body_length(bytes(self._received[:HEADER_BYTES]))
            if not self._all.hold(self.session.peer.uid, length):
                raise ProtocolError("too much at once, try later")
            self._length = self._held = length
        end = HEADER_BYTES + self._length
        if len(self._received) < end:
            return None
        body = bytes(self._received[HEADER_BYTES:end])
        del self._received[:end]
        self._length = None
        self._release()
        return parse_question(body)

    def _release(self) -> None:
        """Release the memory of a question that was received."""
        self._all.hold(self.session.peer.uid, -self._held)
        self._held = 0

    def _refuse(self, error: ProtocolError) -> None:
        """Answer that the question is invalid, and end."""
        self._all.handler.note_refused(self.session, str(error))
        self._remaining = 0
        self._send(render_answer(Answer(status="error", error=str(error))))

    def _send_answer(self, question: Question, answer: Answer) -> None:
        """Send an answer, and log it."""
        self._remaining -= 1
        self._send(render_answer(answer, as_text=getattr(question, "as_text", False)))
        self._all.handler.note(question, answer, self.session, time.monotonic() - self._began)

    def _send(self, data: bytes | memoryview) -> None:
        """Send what fits now, the rest when there is room; end after the last answer."""
        self.since = time.monotonic()
        if self._is_closed:
            return
        try:
            sent = self._socket.send(data) if data else 0
        except BlockingIOError:
            sent = 0
        except OSError:
            self.close()
            return
        if sent < len(data):
            self._unsent = data[sent:]
            asyncio.get_running_loop().add_writer(self._number, self.writable)
        elif not self._remaining:
            self.close()

    def _analyze(self, question: Question, pending: PendingAnswer) -> None:
        """Answer when an analysis is ready; later data waits."""
        self.is_pending = True
        pending.add_done_callback(partial(self._take_result, question))

    def _take_result(self, question: Question, pending: PendingAnswer) -> None:
        """Send the result of an analysis; no error leaves this."""
        self.is_pending = False
        try:
            self._send_answer(question, pending.result())
        except Exception:
            log.exception("a connection failed")
            self.close()
        self._resume()

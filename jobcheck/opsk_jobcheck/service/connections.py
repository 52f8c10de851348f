"""How are many connections served at once, for little work a question?

Sockets are read and written as they are ready, without streams or a task for each: a training job asks two or three
questions, of which most are answered at once from what is stored.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from opsk.units import KIB, MIB
from opsk_jobcheck.service.answering import Answered, Conversation, Handed, PendingAnswer
from opsk_jobcheck.service.listening import Peer, peer_of
from opsk_jobcheck.submission.protocol import (
    HEADER_BYTES,
    Answer,
    ProtocolError,
    Question,
    body_length,
    parse_question,
    render_answer,
)

ACCEPTED_AT_ONCE = 64
PAUSE_S = 0.1
"""How long none is accepted after that failed: there are no file descriptors left."""
READ_BYTES = 64 * KIB

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one connection, one user and all together may take.

    Parameters
    ----------
    connections, connections_per_user
        Open at the same time; one more is closed at once, which a hook takes as "no advice".
    questions
        Asked on one connection.
    quiet_s
        How long a connection may be silent, or not read what it is sent [s].
    held_bytes, held_bytes_per_user
        Sum of the questions being received [bytes]: who promises much and sends little uses up his own part.
    """

    connections: int = 1024
    connections_per_user: int = 256
    questions: int = 8
    quiet_s: float = 2.0
    held_bytes: int = 64 * MIB
    held_bytes_per_user: int = 16 * MIB


class Answering(Protocol):
    """Who answers."""

    def answer(self, question: Question, talk: Conversation) -> Answered:
        """Return the answer where it is known at once, else what thinks about it."""

    def ended(self, talk: Conversation) -> None:
        """Take note that who asked has read all, and hung up."""

    def note(self, question: Question, answer: Answer, talk: Conversation, took_s: float) -> None:
        """Write down one question and its answer."""

    def note_refused(self, talk: Conversation, why: str) -> None:
        """Write down that what came was no question."""


class Connections:
    """All open connections."""

    def __init__(self, answering: Answering, limits: Limits) -> None:
        self.answering = answering
        self.limits = limits
        self.held_bytes = 0
        self._open: set[Connection] = set()
        self._of_user: Counter[int] = Counter()
        self._held_of_user: Counter[int] = Counter()
        self._is_swept = False

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

    def gone(self, connection: Connection) -> None:
        """Forget a connection that was closed."""
        self._open.discard(connection)
        uid = connection.talk.peer.uid
        self._of_user[uid] -= 1
        if not self._of_user[uid]:
            del self._of_user[uid], self._held_of_user[uid]

    def hold(self, uid: int, size_bytes: int) -> bool:
        """Count what a user's question will take; tell whether there is room for it. Less than 0 gives back."""
        held, of_user = self.held_bytes + size_bytes, self._held_of_user[uid] + size_bytes
        if size_bytes > 0 and (held > self.limits.held_bytes or of_user > self.limits.held_bytes_per_user):
            return False
        self.held_bytes, self._held_of_user[uid] = held, of_user
        return True

    def _accept(self, listener: socket.socket) -> None:
        """Take all connections that wait; running out of file descriptors only makes the next one wait."""
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                ours, _ = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                log.warning("cannot accept: %s", error.strerror)
                loop = asyncio.get_running_loop()
                loop.remove_reader(listener)
                loop.call_later(PAUSE_S, self._accept_again, listener)
                return
            self._take_in(ours)

    def _accept_again(self, listener: socket.socket) -> None:
        """Go on after a pause, unless the advisor has ended."""
        if listener.fileno() >= 0:
            self.accept_from(listener)

    def _take_in(self, ours: socket.socket) -> None:
        """Serve one connection, or close it."""
        try:
            ours.setblocking(False)
            peer = peer_of(ours)
        except OSError:
            ours.close()
            return
        if len(self._open) >= self.limits.connections or self._of_user[peer.uid] >= self.limits.connections_per_user:
            ours.close()
            return
        connection = Connection(self, ours, peer)
        self._open.add(connection)
        self._of_user[peer.uid] += 1
        # not at once: a connection that was open before may have said something that this question depends on
        asyncio.get_running_loop().call_soon(connection.readable)
        self._sweep_later()

    def _sweep_later(self) -> None:
        """Look at the silent ones in a while."""
        if self._open and not self._is_swept:
            self._is_swept = True
            asyncio.get_running_loop().call_later(self.limits.quiet_s / 4, self._sweep)

    def _sweep(self) -> None:
        """Close the connections that have been silent for too long."""
        oldest = time.monotonic() - self.limits.quiet_s
        for connection in [each for each in self._open if not each.is_pending and each.since < oldest]:
            connection.close()
        self._is_swept = False
        self._sweep_later()


class Connection:
    """One connection of a hook: a few questions, one after the other.

    Attributes
    ----------
    talk
        Who asks, and what it has been about so far.
    since
        When the other end was last waited for [s].
    is_pending
        A worker has the last question; nothing is read until it is answered.
    """

    __slots__ = (
        *(
            "talk",
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
        *("_began", "_left", "_is_reading", "_is_closed"),
    )

    def __init__(self, connections: Connections, ours: socket.socket, peer: Peer) -> None:
        self._all = connections
        self._socket = ours
        self._number = ours.fileno()  # asyncio would describe a socket in words, with four system calls, at each turn
        self.talk = Conversation(peer=peer)
        self.since = self._began = time.monotonic()
        self.is_pending = False
        self._received = bytearray()
        self._length: int | None = None
        self._held = 0
        self._unsent: bytes | memoryview = b""
        self._left = connections.limits.questions
        self._is_reading = self._is_closed = False

    def readable(self) -> None:
        """Read what has come, and answer it; no error leaves this."""
        if self._is_closed:
            return
        try:
            self._read()
        except Exception:
            log.exception("a conversation failed")
            self.close()

    def writable(self) -> None:
        """Send what is left of an answer, then go on."""
        unsent, self._unsent = self._unsent, b""
        asyncio.get_running_loop().remove_writer(self._number)
        self._send(unsent)
        self._go_on()

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
        self._all.gone(self)

    @property
    def _is_free(self) -> bool:
        """Whether the next question may be looked at."""
        return not (self._is_closed or self.is_pending or self._unsent)

    def _read(self) -> None:
        """Read once, and answer what has come as a whole."""
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            data = None
        except OSError:  # it has hung up without reading what it was told
            self.close()
            return
        if data == b"":
            self._all.answering.ended(self.talk)
            self.close()
            return
        if data:
            self._received += data
            self._answers()
        self._wait()

    def _go_on(self) -> None:
        """Look at what else has come while this connection was busy, and wait for more."""
        try:
            self._answers()
            self._wait()
        except Exception:
            log.exception("a conversation failed")
            self.close()

    def _wait(self) -> None:
        """Be called when more comes, and only while it may be looked at."""
        is_free = self._is_free
        if is_free and not self._is_reading:
            asyncio.get_running_loop().add_reader(self._number, self.readable)
        elif self._is_reading and not is_free and not self._is_closed:
            asyncio.get_running_loop().remove_reader(self._number)
        self._is_reading = is_free

    def _answers(self) -> None:
        """Answer the questions that are complete."""
        while self._is_free:
            try:
                question = self._next_question()
            except ProtocolError as error:
                self._refuse(error)
                return
            if question is None:
                return
            answer = self._all.answering.answer(question, self.talk)
            if isinstance(answer, Answer):
                self._say(question, answer)
            elif isinstance(answer, Handed):
                self._left -= 1
                self._send(memoryview(answer.frame))
            else:
                self._analyze(question, answer)

    def _next_question(self) -> Question | None:
        """Return the next question, ``None`` where it has not come as a whole.

        Raises
        ------
        ProtocolError
            When what comes is no question, or all together would be too much.
        """
        if self._length is None:
            if len(self._received) < HEADER_BYTES:
                return None
            self._began = self.since = time.monotonic()
            length = body_length(bytes(self._received[:HEADER_BYTES]))
            if not self._all.hold(self.talk.peer.uid, length):
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
        """Count no bytes any more of a question that has come."""
        self._all.hold(self.talk.peer.uid, -self._held)
        self._held = 0

    def _refuse(self, error: ProtocolError) -> None:
        """Say that this was no question, and end."""
        self._all.answering.note_refused(self.talk, str(error))
        self._left = 0
        self._send(render_answer(Answer(status="error", error=str(error))))

    def _say(self, question: Question, answer: Answer) -> None:
        """Send an answer, and write it down."""
        self._left -= 1
        self._send(render_answer(answer, as_text=getattr(question, "as_text", False)))
        self._all.answering.note(question, answer, self.talk, time.monotonic() - self._began)

    def _send(self, data: bytes | memoryview) -> None:
        """Send what goes now, the rest when there is room; end after the last answer."""
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
        elif not self._left:
            self.close()

    def _analyze(self, question: Question, pending: PendingAnswer) -> None:
        """Answer when a question was thought about; what else comes waits."""
        self.is_pending = True
        pending.add_done_callback(partial(self._take_result, question))

    def _take_result(self, question: Question, pending: PendingAnswer) -> None:
        """Say what was thought; no error leaves this."""
        self.is_pending = False
        try:
            self._say(question, pending.result())
        except Exception:
            log.exception("a conversation failed")
            self.close()
        self._go_on()

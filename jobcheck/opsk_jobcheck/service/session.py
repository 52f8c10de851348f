"""Defines the state of one connection, the answers that it gets, and the services that the advisor offers on it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from opsk_jobcheck.history.program_history import Recognised
from opsk_jobcheck.service.advice_cache import CachedAdvice
from opsk_jobcheck.submission.protocol import AdviseQuestion, Answer
from opsk_jobcheck.submission.request import SlurmRequest
from opsk_jobcheck.workers.analysis import Analysis

PendingAnswer = asyncio.Future[Answer]
"""Will hold an answer, at the latest at the deadline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawFrame:
    """An answer that is no JSON: a frame that is sent unchanged."""

    frame: bytes


AnswerResult = Answer | RawFrame | PendingAnswer
"""The result of a question: an answer, or a pending one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The peer of a connection, as the kernel reports it (``SO_PEERCRED``)."""

    pid: int
    uid: int
    gid: int


@dataclass(slots=True, kw_only=True)
class Session:
    """The state of one connection.

    Parameters
    ----------
    peer
        The peer, from the kernel.
    rounds
        Number of ``advise`` questions so far: files are requested in the first ones only.
    requested_files
        Files that were requested so far.
    last
        The advice in the last answer, which the client shows.
    notes
        Facts for the audit log.
    analysis
        The analysis behind the last answer.
    recognised
        The program of the last question, and its history.
    """

    peer: Peer
    rounds: int = 0
    requested_files: tuple[str, ...] = ()
    last: CachedAdvice | None = None
    notes: dict[str, object] = field(default_factory=dict)
    analysis: Analysis | None = None
    recognised: Recognised | None = None


class SideServices(Protocol):
    """What answers need of the advisor besides its workers; nothing here may take time."""

    def state_version(self) -> str:
        """Return the version of the cluster's live state: advice is stored for as long as that is the same."""

    def cluster(self, uid: int, have: str) -> bytes | None:
        """Return the frame of the jobs and nodes that a user may see; ``None`` while they are unknown."""

    def record(self, uid: int, records: Sequence[str]) -> bool:
        """Accept records for the store; return whether there was room for them."""

    def recognise(self, uid: int, question: AdviseQuestion, request: SlurmRequest) -> Recognised | None:
        """Return the program that a submission starts, and its history; ``None`` where nobody records runs."""

    def note_late(self, notes: dict[str, object]) -> None:
        """Log the result of an analysis after its client's deadline."""


class NoSideServices:
    """Knows nothing of the cluster, and accepts nothing."""

    def state_version(self) -> str:
        """Return "": advice does not depend on any state."""
        return ""

    def cluster(self, uid: int, have: str) -> bytes | None:
        """Return ``None``."""

    def record(self, uid: int, records: Sequence[str]) -> bool:
        """Accept nothing."""
        return False

    def recognise(self, uid: int, question: AdviseQuestion, request: SlurmRequest) -> Recognised | None:
        """Return ``None``."""

    def note_late(self, notes: dict[str, object]) -> None:
        """Log nothing."""

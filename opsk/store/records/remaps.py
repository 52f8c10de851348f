"""Stores and queries remaps: what was proposed, who approved it, what was run, and how it ended.

A remap moves from state to state, and each move has an author; of two concurrent moves one is refused. Its journal has
a line before and one after each command, so that a program that was interrupted knows where it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, cast, get_args

from sqlmodel import Session

from opsk.errors import InputError
from opsk.store.database.tables import RemapMoveRow, RemapRow, RemapStepRow
from opsk.store.records.record import (
    STRICT,
    Count,
    Document,
    Given,
    LongText,
    Time,
    Word,
    hash_parts,
    lock_row,
    store_record,
)

RemapState = Literal[
    "proposed", "approved", "applying", "applied", "failed", "undoing", "undone", "refused", "outdated"
]
"""``refused`` by a person, ``outdated`` because the world has changed since; ``failed`` half way through."""

STATES = cast("tuple[RemapState, ...]", get_args(RemapState))
MOVES: dict[RemapState, frozenset[RemapState]] = {
    "proposed": frozenset({"approved", "refused", "outdated"}),
    "approved": frozenset({"applying", "refused", "outdated"}),
    "applying": frozenset({"applied", "failed", "applying"}),
    "applied": frozenset({"undoing"}),
    "failed": frozenset({"applying", "undoing", "refused"}),
    "undoing": frozenset({"undone", "failed", "undoing"}),
    "undone": frozenset(),
    "refused": frozenset(),
    "outdated": frozenset(),
}
"""What a remap can become. ``applying`` again is another program that goes on with what one left."""

FINAL: tuple[RemapState, ...] = ("applied", "undone", "refused", "outdated")
"""Where nothing is left to be done; what was applied can still be undone."""


def parse_state(text: str) -> RemapState:
    """Return the state that a row names; an unknown one counts as final."""
    return next((state for state in STATES if state == text), "outdated")


StepState = Literal["started", "done", "failed", "skipped", "undone"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemapProposed:
    """One option of ``opsk remap`` that is to be decided on.

    Parameters
    ----------
    remap
        A name that its proposer gives it, never used again: a UUID.
    failed, option
        What failed, as ``--failed`` takes it, and the option's kind.
    world
        Hash of what the option was worked out from: who applies it compares it with the world as it is then.
    document
        The option: predicted throughput, moves, downtime, commands.
    """

    IDENTITY: ClassVar[tuple[str, ...]] = ("cluster", "remap")
    __pydantic_config__: ClassVar = STRICT

    kind: Literal["remap"] = "remap"
    cluster: Given
    remap: Word
    at: Time
    by: Given
    job: Word
    failed: Given
    option: Word
    title: LongText | None = None
    world: Word | None = None
    document: Document | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemapMoved:
    """A move of a remap to another state; ``text`` is why, or how it ended."""

    IDENTITY: ClassVar[tuple[str, ...]] = ("cluster", "remap", "state", "at", "by")
    __pydantic_config__: ClassVar = STRICT

    kind: Literal["remap_move"] = "remap_move"
    cluster: Given
    remap: Word
    at: Time
    state: RemapState
    by: Given
    text: LongText | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemapStep:
    """A line of the journal: command ``number`` of a remap is about to run, or what became of it."""

    IDENTITY: ClassVar[tuple[str, ...]] = ("cluster", "remap", "number", "state", "at")
    __pydantic_config__: ClassVar = STRICT

    kind: Literal["remap_step"] = "remap_step"
    cluster: Given
    remap: Word
    number: Count
    state: StepState
    at: Time
    command: LongText
    said: LongText | None = None


def store_remap(session: Session, record: RemapProposed) -> bool:
    """Store a proposed remap."""
    return store_record(session, RemapRow, record, state="proposed", state_at=record.at, state_by=record.by)


def store_move(session: Session, record: RemapMoved) -> bool:
    """Move a remap to another state, if its present state allows it.

    Raises
    ------
    InputError
        There is no such remap, or it is in another state by now: the message names who moved it.
    """
    remap = _lock_remap(session, record.cluster, record.remap)
    if not store_record(session, RemapMoveRow, record):
        return False
    if record.state not in MOVES[parse_state(remap.state)]:
        raise InputError(
            f"remap {record.remap} cannot become {record.state}: it is {remap.state} by {remap.state_by} since "
            f"{remap.state_at:%F %T} UTC",
            hint="look at it again",
        )
    remap.state, remap.state_at, remap.state_by = record.state, record.at, record.by
    return True


def store_step(session: Session, record: RemapStep) -> bool:
    """Write a line into the journal of a remap.

    Raises
    ------
    InputError
        There is no such remap.
    """
    _lock_remap(session, record.cluster, record.remap)
    return store_record(session, RemapStepRow, record)


def _lock_remap(session: Session, cluster: str, remap: str) -> RemapRow:
    """Return the row of a remap, locked until the transaction ends."""
    key = hash_parts("remap", cluster, remap)
    row = lock_row(session, RemapRow, key)
    if row is None:
        raise InputError(f"the store knows no remap {remap} of cluster {cluster}", hint="it has to be proposed first")
    return row

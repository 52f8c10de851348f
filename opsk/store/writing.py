"""Writes records into the store, and encodes them as JSON for programs that write through a socket.

Many programs on many nodes write: through a server's database, or through one program that owns the SQLite file. A
record may be sent again after a failure, since it is stored once. `DirectWriter` writes into a database; a program that
cannot reach the database sends ``encode(record)`` to one that can.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, Protocol, cast

from pydantic import Field, TypeAdapter, ValidationError
from sqlalchemy import Engine
from sqlmodel import Session

from opsk.errors import InputError
from opsk.store.database.transactions import write
from opsk.store.records.advice import AdviceGiven, store_advice
from opsk.store.records.clusters import ClusterSeen, store_cluster
from opsk.store.records.failures import FailureSeen, store_failure
from opsk.store.records.jobs import JobSeen, store_job
from opsk.store.records.measurements import Measured, store_measured
from opsk.store.records.remaps import RemapMoved, RemapProposed, RemapStep, store_move, store_remap, store_step
from opsk.store.records.reports import Report, store_report
from opsk.store.records.snapshots import SnapshotSeen, store_snapshot
from opsk.store.records.use import JobSubmitted, JobUsed, store_submitted, store_used
from opsk.store.text import sanitise_texts

Record = (
    ClusterSeen
    | SnapshotSeen
    | JobSeen
    | AdviceGiven
    | Measured
    | JobSubmitted
    | JobUsed
    | FailureSeen
    | RemapProposed
    | RemapMoved
    | RemapStep
    | Report
)
"""All that can be written."""

MAX_LINE_BYTES = 1 << 27
"""More is no record: that of a fabric of 100,000 cables has some 10 MB."""

_STORE: dict[type[Any], Callable[[Session, Any], bool]] = {
    ClusterSeen: store_cluster,
    SnapshotSeen: store_snapshot,
    JobSeen: store_job,
    AdviceGiven: store_advice,
    Measured: store_measured,
    JobSubmitted: store_submitted,
    JobUsed: store_used,
    FailureSeen: store_failure,
    RemapProposed: store_remap,
    RemapMoved: store_move,
    RemapStep: store_step,
    Report: store_report,
}
_MAX_REPORTED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """The result of a write: ``new`` records changed something, ``known`` ones were stored already."""

    new: int
    known: int


class Writer(Protocol):
    """Accepts records, for a database or for a program that has one."""

    def write(self, records: Sequence[Record]) -> WriteResult:
        """Store all of the records, or none.

        Raises
        ------
        InputError
            A record is invalid or inconsistent: none is stored, and it must not be sent again.
        StoreError
            They are not stored now; all of them may be sent again.
        """


class DirectWriter:
    """Writes into a database.

    Parameters
    ----------
    engine
        An open store.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def write(self, records: Sequence[Record]) -> WriteResult:
        """Store all of the records in one transaction, in their order, or none; see `Writer`."""
        checked = [decode(encode(record)) for record in records]

        def keep_all(session: Session) -> int:
            return sum(_STORE[type(record)](session, record) for record in checked)

        new = write(self._engine, keep_all) if checked else 0
        return WriteResult(new=new, known=len(checked) - new)


def encode(record: Record) -> str:
    """Return a record as one line of JSON, in ASCII; fields that are not known are left out.

    Raises
    ------
    InputError
        A field holds a value that JSON cannot represent.
    """
    values = {item.name: getattr(record, item.name) for item in fields(record)}
    known = {name: _plain(value) for name, value in values.items() if value is not None}
    try:
        return json.dumps(sanitise_texts(known), separators=(",", ":"), allow_nan=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise InputError(f"record of {values['kind']}: {error}") from error


def decode(line: str | bytes) -> Record:
    """Return the record that a line of JSON is; nothing that is not known is let through.

    Raises
    ------
    InputError
        It is none; every violation is named.
    """
    if len(line) > MAX_LINE_BYTES:
        raise InputError(f"a record of {len(line)} bytes; at most {MAX_LINE_BYTES}")
    try:
        return cast("Record", _reader().validate_json(line))
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, item['loc'])) or 'record'}: {item['msg']}" for item in error.errors()]
        more = f"; and {len(wrong) - _MAX_REPORTED} more" if len(wrong) > _MAX_REPORTED else ""
        raise InputError("no record for the store: " + "; ".join(wrong[:_MAX_REPORTED]) + more) from error


@cache
def _reader() -> TypeAdapter[Any]:
    return TypeAdapter(Annotated[Record, Field(discriminator="kind")])


def _plain(value: Any) -> Any:
    if not isinstance(value, datetime):
        return value
    if value.tzinfo is None:
        raise InputError("a time without a time zone cannot be kept")
    try:
        return value.astimezone(UTC).isoformat()
    except OverflowError as error:
        raise InputError(f"no time that can be kept: {value}") from error

"""How does what a program has to say reach the store? As records, which are the same in JSON on a socket.

Many programs on many nodes write: through a server's database, or through one program that owns the SQLite file. A
record may be sent again after a failure, for it is kept once. `DirectWriter` writes into a database; who cannot reach
one sends ``encode(record)`` to who can.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, Protocol, cast

from pydantic import Field, TypeAdapter, ValidationError
from sqlalchemy import Engine
from sqlmodel import Session

from opsk.errors import InputError
from opsk.store.database.transactions import write
from opsk.store.records.advice import AdviceGiven, keep_advice
from opsk.store.records.clusters import ClusterSeen, keep_cluster
from opsk.store.records.failures import FailureSeen, keep_failure
from opsk.store.records.jobs import JobSeen, keep_job
from opsk.store.records.measured import Measured, keep_measured
from opsk.store.records.remaps import RemapMoved, RemapProposed, RemapStep, keep_move, keep_remap, keep_step
from opsk.store.records.reports import Report, keep_report
from opsk.store.records.snapshots import SnapshotSeen, keep_snapshot
from opsk.store.text import kept_texts

Record = (
    ClusterSeen
    | SnapshotSeen
    | JobSeen
    | AdviceGiven
    | Measured
    | FailureSeen
    | RemapProposed
    | RemapMoved
    | RemapStep
    | Report
)
"""All that can be written."""

LONGEST_LINE_BYTES = 1 << 27
"""More is no record: that of a fabric of 100,000 cables has some 10 MB."""

_KEEP: dict[type[Any], Callable[[Session, Any], bool]] = {
    ClusterSeen: keep_cluster,
    SnapshotSeen: keep_snapshot,
    JobSeen: keep_job,
    AdviceGiven: keep_advice,
    Measured: keep_measured,
    FailureSeen: keep_failure,
    RemapProposed: keep_remap,
    RemapMoved: keep_move,
    RemapStep: keep_step,
    Report: keep_report,
}
_MOST_TOLD = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What became of records: ``new`` ones changed something, ``known`` said nothing that was not kept."""

    new: int
    known: int


class Writer(Protocol):
    """Takes records; whether to a database or to somebody who has one."""

    def write(self, records: Sequence[Record]) -> Written:
        """Keep all of the records, or none.

        Raises
        ------
        InputError
            A record is none, or says what cannot be: none is kept, and there is no use in sending it again.
        StoreError
            They are not kept now; they may be sent again, all of them.
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

    def write(self, records: Sequence[Record]) -> Written:
        """Keep all of the records in one transaction, in their order, or none; see `Writer`."""
        checked = [decode(encode(record)) for record in records]

        def keep_all(session: Session) -> int:
            return sum(_KEEP[type(record)](session, record) for record in checked)

        new = write(self._engine, keep_all) if checked else 0
        return Written(new=new, known=len(checked) - new)


def encode(record: Record) -> str:
    """Return a record as one line of JSON, in ASCII; fields that are not known are left out.

    Raises
    ------
    InputError
        A field holds what JSON cannot say.
    """
    said = {item.name: getattr(record, item.name) for item in fields(record)}
    told = {name: _plain(value) for name, value in said.items() if value is not None}
    try:
        return json.dumps(kept_texts(told), separators=(",", ":"), allow_nan=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise InputError(f"record of {said['kind']}: {error}") from error


def decode(line: str | bytes) -> Record:
    """Return the record that a line of JSON is; nothing that is not known is let through.

    Raises
    ------
    InputError
        It is none; every violation is named.
    """
    if len(line) > LONGEST_LINE_BYTES:
        raise InputError(f"a record of {len(line)} bytes; at most {LONGEST_LINE_BYTES}")
    try:
        return cast("Record", _reader().validate_json(line))
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, item['loc'])) or 'record'}: {item['msg']}" for item in error.errors()]
        more = f"; and {len(wrong) - _MOST_TOLD} more" if len(wrong) > _MOST_TOLD else ""
        raise InputError("no record for the store: " + "; ".join(wrong[:_MOST_TOLD]) + more) from error


def decode_all(lines: Iterable[str | bytes]) -> list[Record]:
    """Return the records of lines of JSON, empty lines left out.

    Raises
    ------
    InputError
        Names the first line that is none.
    """
    found = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                found.append(decode(line))
            except InputError as error:
                raise InputError(f"line {number}: {error.message}", hint=error.hint) from error
    return found


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

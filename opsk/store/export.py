"""Exports the store as lines of JSON, the records that it was written with, and imports them into another store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from sqlalchemy import Engine
from sqlmodel import Session, SQLModel, col, select

from opsk.errors import InputError
from opsk.store.compression import decompress
from opsk.store.database import tables
from opsk.store.database.transactions import read
from opsk.store.records.advice import AdviceGiven
from opsk.store.records.clusters import ClusterSeen
from opsk.store.records.failures import FailureSeen
from opsk.store.records.jobs import JobSeen
from opsk.store.records.measurements import Measured
from opsk.store.records.record import build_record
from opsk.store.records.remaps import RemapMoved, RemapProposed, RemapStep
from opsk.store.records.reports import build_report
from opsk.store.records.snapshots import SnapshotSeen
from opsk.store.records.use import JobSubmitted, JobUsed
from opsk.store.writing import Record, Writer, WriteResult, decode, encode

_AT_ONCE = 500


def _read_snapshot(row: tables.TopologySnapshot) -> SnapshotSeen:
    content = decompress(row.content, f"snapshot {row.id}").decode("ascii", errors="replace")
    return SnapshotSeen(
        cluster=row.cluster, at=row.last_seen_at, since=row.taken_at, source=row.source, content=content
    )


_TABLES: dict[str, tuple[tuple[type[SQLModel], Callable[[Any], Record]], ...]] = {
    "clusters": ((tables.ClusterRow, lambda row: build_record(ClusterSeen, row)),),
    "snapshots": ((tables.TopologySnapshot, _read_snapshot),),
    "jobs": ((tables.JobRow, lambda row: build_record(JobSeen, row)),),
    "advice": ((tables.AdviceRow, lambda row: build_record(AdviceGiven, row)),),
    "measured": ((tables.MeasuredRow, lambda row: build_record(Measured, row)),),
    "submitted": ((tables.SubmissionRow, lambda row: build_record(JobSubmitted, row)),),
    "used": ((tables.JobUseRow, lambda row: build_record(JobUsed, row)),),
    "failures": ((tables.FailureRow, lambda row: build_record(FailureSeen, row)),),
    "remaps": (
        (tables.RemapRow, lambda row: build_record(RemapProposed, row)),
        (tables.RemapMoveRow, lambda row: build_record(RemapMoved, row)),
        (tables.RemapStepRow, lambda row: build_record(RemapStep, row)),
    ),
    "reports": ((tables.ReportRow, build_report),),
}


def export(engine: Engine, kinds: Iterable[str] = (), *, damaged: Callable[[str], None] | None = None) -> Iterator[str]:
    """Yield every record of some kinds, or of all, as a line of JSON; in the order in which they were written.

    Parameters
    ----------
    damaged
        Is called for each row that cannot be read; the rows after it are still yielded.

    Raises
    ------
    StoreError
        The database does not answer.
    """
    selected = set(kinds) or set(_TABLES)
    for kind, places in _TABLES.items():
        for table, as_record in places if kind in selected else ():
            for row in _rows(engine, table):
                try:
                    yield encode(as_record(row))
                except InputError as error:
                    if damaged is not None:
                        damaged(error.message)


def import_lines(writer: Writer, lines: Iterable[str | bytes]) -> WriteResult:
    """Write lines of an export into a store; existing records are not changed.

    Raises
    ------
    InputError
        Names the first line that is no record; those before it are stored.
    StoreError
        The database cannot be written.
    """
    new = known = 0
    waiting: list[Record] = []

    def hand_over() -> None:
        nonlocal new, known
        done = writer.write(waiting)
        new, known = new + done.new, known + done.known
        waiting.clear()

    for number, line in enumerate(lines, start=1):
        try:
            if line.strip():
                waiting.append(decode(line))
        except InputError as error:
            hand_over()
            raise InputError(f"line {number}: {error.message}", hint=error.hint) from error
        if len(waiting) >= _AT_ONCE:
            hand_over()
    hand_over()
    return WriteResult(new=new, known=known)


def _rows(engine: Engine, table: type[SQLModel]) -> Iterator[Any]:
    """Yield all rows, some at a time: others write meanwhile, and memory stays small."""
    last = 0
    number = col(table.id)  # type: ignore[attr-defined]
    while True:
        query = select(table).where(number > last).order_by(number).limit(_AT_ONCE)
        rows = read(engine, lambda session, query=query: _fetch_detached(session, query))  # type: ignore[misc]
        if not rows:
            return
        yield from rows
        last = rows[-1].id


def _fetch_detached(session: Session, query: Any) -> list[Any]:
    rows = list(session.exec(query))
    session.expunge_all()
    return rows

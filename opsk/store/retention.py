"""Removes records that are older than their retention, in small transactions so that writers are not blocked."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Engine, delete, func, tuple_
from sqlmodel import Session, col, select

from opsk.store.database.errors import store_error
from opsk.store.database.tables import RemapRow
from opsk.store.database.transactions import read, write
from opsk.store.records.kinds import KINDS, Kind

_AT_ONCE = 2000
"""Rows in one transaction: writers wait no longer than it takes to remove so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneResult:
    """The result for one kind: how many remain, how many were removed, and since when all are retained."""

    kind: str
    before: datetime | None
    removed: int
    kept: int


def prune(engine: Engine, days: Mapping[str, int], *, now: datetime, dry: bool = False) -> list[PruneResult]:
    """Remove finished records that are older than the retention of their kind; return the result by kind.

    Parameters
    ----------
    days
        Retention of each kind; 0, and kinds that are not named, are kept for ever.
    dry
        Only count.

    Raises
    ------
    StoreError
        The database cannot be written; what was removed by then stays so.
    """
    done = []
    for kind in KINDS:
        retention_days = days.get(kind.name, 0)
        before = now - timedelta(days=retention_days) if retention_days and kind.over is not None else None
        removed = 0
        if before is not None:
            removed = _count(engine, kind, before) if dry else _remove(engine, kind, before)
        query = select(func.count()).select_from(kind.table)
        total = read(engine, lambda session, query=query: session.exec(query).one())  # type: ignore[misc]
        done.append(PruneResult(kind=kind.name, before=before, removed=removed, kept=total - (removed if dry else 0)))
    return done


def reclaim_space(engine: Engine) -> None:
    """Return the space of removed records to the disk: SQLite copies its file for that, while no writer is active.

    Raises
    ------
    StoreError
        The database cannot be written, or there is no room for the copy.
    """
    if engine.dialect.name != "sqlite":
        return  # servers use the room again, and do this by themselves
    raw = engine.raw_connection()
    try:
        cursor = raw.cursor()
        for statement in ("VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"):
            cursor.execute(statement)
        cursor.close()
    except sqlite3.Error as error:
        raise store_error(error, engine.url) from error
    finally:
        raw.close()


def _count(engine: Engine, kind: Kind, before: datetime) -> int:
    over = kind.over
    assert over is not None
    query = select(func.count()).select_from(kind.table).where(over(before))
    return read(engine, lambda session: session.exec(query).one())


def _remove(engine: Engine, kind: Kind, before: datetime) -> int:
    """Remove rows, some at a time, until none is left."""
    removed = 0
    while some := write(engine, lambda session: _remove_some(session, kind, before)):
        removed += some
    return removed


def _remove_some(session: Session, kind: Kind, before: datetime) -> int:
    over, table = kind.over, kind.table
    assert over is not None
    ids = session.exec(select(table.id).where(over(before)).limit(_AT_ONCE)).all()  # type: ignore[attr-defined]
    if not ids:
        return 0
    if kind.parts:
        names = session.exec(select(RemapRow.cluster, RemapRow.remap).where(col(RemapRow.id).in_(ids))).all()
        for part in kind.parts:
            mine = tuple_(part.cluster, part.remap).in_(names)  # type: ignore[attr-defined]
            session.exec(delete(part).where(mine))
    session.exec(delete(table).where(table.id.in_(ids)))  # type: ignore[attr-defined]
    return len(ids)

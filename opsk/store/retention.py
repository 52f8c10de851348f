"""What is old enough to be removed, and how is it removed without holding up those who write?"""

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
class Pruned:
    """What became of one kind: how many are kept, how many were removed, and from when on all are kept."""

    kind: str
    before: datetime | None
    removed: int
    kept: int


def prune(engine: Engine, days: Mapping[str, int], *, now: datetime, dry: bool = False) -> list[Pruned]:
    """Remove what is over for longer than its kind is kept; say of each kind what was removed.

    Parameters
    ----------
    days
        How long each kind is kept; 0, and kinds that are not named, for ever.
    dry
        Only count.

    Raises
    ------
    StoreError
        The database cannot be written; what was removed by then stays so.
    """
    done = []
    for kind in KINDS:
        kept_days = days.get(kind.name, 0)
        before = now - timedelta(days=kept_days) if kept_days and kind.over is not None else None
        removed = 0
        if before is not None:
            removed = _count(engine, kind, before) if dry else _remove(engine, kind, before)
        kept = read(engine, lambda session, kind=kind: session.exec(select(func.count()).select_from(kind.table)).one())  # type: ignore[misc]
        done.append(Pruned(kind=kind.name, before=before, removed=removed, kept=kept - (removed if dry else 0)))
    return done


def give_back(engine: Engine) -> None:
    """Give the room of what was removed back to the disk: SQLite copies its file for that, while nobody writes.

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

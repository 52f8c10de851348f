"""Reports the number of records of each kind, their time range, and the size of the store."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Engine, func, text
from sqlmodel import Session, select

from opsk.store.database.tables import METADATA
from opsk.store.database.transactions import read
from opsk.store.database.urls import find_sqlite_file
from opsk.store.records.kinds import KINDS, Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class KindSize:
    """How many records of a kind there are, and of which times."""

    kind: str
    records: int
    first_at: datetime | None
    last_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSize:
    """How much is in a store.

    Parameters
    ----------
    total_bytes
        Room that it takes, with indexes, and a SQLite file's write-ahead log.
    free_bytes
        How much of a SQLite file is free for what comes; ``None`` where the server knows.
    """

    kinds: tuple[KindSize, ...]
    total_bytes: int
    free_bytes: int | None


def compute_store_size(engine: Engine) -> StoreSize:
    """Return how much is in a store.

    Raises
    ------
    StoreError
        The database does not answer.
    """
    return read(
        engine,
        lambda session: StoreSize(
            kinds=tuple(_kind(session, kind) for kind in KINDS),
            total_bytes=_total_bytes(session, engine),
            free_bytes=_free_bytes(session, engine),
        ),
    )


def _kind(session: Session, kind: Kind) -> KindSize:
    query = select(func.count(), func.min(kind.at), func.max(kind.at)).select_from(kind.table)
    count, first, last = session.exec(query).one()
    return KindSize(kind=kind.name, records=count, first_at=first, last_at=last)


def _total_bytes(session: Session, engine: Engine) -> int:
    names = sorted(METADATA.tables)
    if engine.dialect.name == "postgresql":
        query = text(
            "SELECT sum(pg_total_relation_size(to_regclass(name))) FROM unnest(CAST(:names AS text[])) AS name"
        )
        return int(session.connection().execute(query, {"names": names}).scalar() or 0)
    if engine.dialect.name == "sqlite":
        path = find_sqlite_file(engine.url)
        files = [path, path.with_name(path.name + "-wal")] if path is not None else []
        return sum(file.stat().st_size for file in files if file.exists())
    query = text(
        "SELECT sum(data_length + index_length) FROM information_schema.tables WHERE table_schema = DATABASE()"
    )
    return int(session.connection().execute(query).scalar() or 0)


def _free_bytes(session: Session, engine: Engine) -> int | None:
    if engine.dialect.name != "sqlite":
        return None
    pages, size = (
        session.connection().exec_driver_sql(f"PRAGMA {name}").scalar() or 0 for name in ("freelist_count", "page_size")
    )
    return int(pages) * int(size)

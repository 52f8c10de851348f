"""Stores and queries snapshots of fabrics, one row for as long as a fabric stays the same."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from sqlalchemy import Engine, func
from sqlmodel import Session, col, select
from sqlmodel.sql.expression import SelectOfScalar

from opsk.errors import InputError, StoreError
from opsk.fabric.fabric import Fabric
from opsk.fabric.hb_domains import HbDomain
from opsk.fabric.snapshot import Snapshot, compute_content_hash, read_snapshot, serialise_snapshot
from opsk.store.compression import decompress
from opsk.store.database.tables import NAME_CHARACTERS, TopologySnapshot
from opsk.store.database.transactions import read, write
from opsk.store.records.record import STRICT, Given, Name, Time

LATEST, PREVIOUS = "latest", "previous"
"""Names of the snapshot that was seen last, and of the one before it."""

_MAX_CHARACTERS = 1 << 27
_MIN_HASH_CHARACTERS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSnapshot:
    """What a listing shows of a snapshot; ``new`` when it was not the newest of its cluster before."""

    id: int
    cluster: str
    taken_at: datetime
    last_seen_at: datetime
    source: str
    hash: str
    switches: int
    hcas: int
    nodes: int
    cables: int
    new: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSeen:
    """A fabric as it was ``at``, and from ``since`` on, where that is known.

    Parameters
    ----------
    source
        What it was read from.
    content
        Its canonical text (`opsk.fabric.snapshot`).
    """

    IDENTITY: ClassVar[tuple[str, ...]] = ("cluster", "at", "content")
    __pydantic_config__: ClassVar = STRICT

    kind: Literal["snapshot"] = "snapshot"
    cluster: Given
    at: Time
    since: Time | None = None
    source: Name
    content: Annotated[str, Field(max_length=_MAX_CHARACTERS)]


def save_snapshot(
    engine: Engine, fabric: Fabric, hb_domains: Iterable[HbDomain] = (), *, cluster: str, now: datetime
) -> StoredSnapshot:
    """Store a fabric; when it equals the latest one of the cluster, only update when it was seen.

    A fabric that went back to an earlier state is a row of its own: the history is complete.

    Raises
    ------
    StoreError
        When the database cannot be written.
    """
    content = serialise_snapshot(fabric, hb_domains)
    digest = compute_content_hash(content)
    if now.tzinfo is None:
        raise StoreError("a time without a time zone cannot be kept", hint="this is a mistake in opsk")

    def work(session: Session) -> StoredSnapshot:
        row, new = _store_seen(session, cluster, digest, content, fabric, since=now, at=now)
        return _build_stored(row, new=new)

    return write(engine, work)


def store_snapshot(session: Session, record: SnapshotSeen) -> bool:
    """Store a fabric that another program has read.

    Raises
    ------
    InputError
        It is none.
    """
    content = record.content.encode()
    snapshot = read_snapshot(content, source=record.source)
    digest, since = compute_content_hash(content), record.since or record.at
    mine = (col(TopologySnapshot.cluster) == record.cluster, col(TopologySnapshot.hash) == digest)
    known = select(TopologySnapshot).where(
        *mine, col(TopologySnapshot.taken_at) <= since, col(TopologySnapshot.last_seen_at) >= record.at
    )
    if session.exec(known.limit(1)).first() is not None:
        return False
    _store_seen(
        session, record.cluster, digest, content, snapshot.fabric, since=since, at=record.at, source=record.source
    )
    return True


def _store_seen(
    session: Session, cluster: str, digest: str, content: bytes, fabric: Fabric, *, since: datetime, at: datetime,
    source: str | None = None,
) -> tuple[TopologySnapshot, bool]:  # fmt: skip
    """Return the row of a fabric, and whether it was not the newest of its cluster before."""
    row = session.exec(_query_cluster(cluster[:NAME_CHARACTERS]).limit(1).with_for_update()).first()
    if row is not None and row.hash == digest:
        row.last_seen_at = max(at, row.last_seen_at)
        session.flush()
        return row, False
    hcas = [hca for hca in fabric.hcas.values() if not hca.sharp]
    row = TopologySnapshot(
        cluster=cluster[:NAME_CHARACTERS],
        taken_at=since,
        last_seen_at=at,
        source=(fabric.source if source is None else source)[:NAME_CHARACTERS],
        hash=digest,
        switches=len(fabric.switches),
        hcas=len(hcas),
        nodes=len({hca.node for hca in hcas if hca.node is not None}),
        cables=len(fabric.cables),
        content=gzip.compress(content, mtime=0),
    )
    session.add(row)
    session.flush()
    return row, True


def list_snapshots(engine: Engine, *, cluster: str | None = None, limit: int = 1000) -> list[StoredSnapshot]:
    """Return the snapshots of a cluster, or of all, those seen last first.

    Raises
    ------
    StoreError
        When the database cannot be read.
    """
    columns = [getattr(TopologySnapshot, name) for name in StoredSnapshot.__slots__ if name != "new"]
    query = select(*columns).order_by(*_ORDER).limit(limit)
    if cluster is not None:
        query = query.where(col(TopologySnapshot.cluster) == cluster)
    return read(engine, lambda session: [StoredSnapshot(**row._mapping) for row in session.exec(query)])


def load_snapshot(engine: Engine, which: str, *, cluster: str) -> tuple[StoredSnapshot, Snapshot]:
    """Return the snapshot that ``which`` names: an id, the start of a hash, ``latest`` or ``previous``.

    Raises
    ------
    InputError
        When there is none, several have a hash that begins so, or what is stored is damaged.
    StoreError
        When the database cannot be read.
    """
    rows = read(engine, lambda session: list(session.exec(_query_named(which, cluster))))
    if not rows or (which == PREVIOUS and len(rows) < 2):
        raise InputError(f"no snapshot {which} of cluster {cluster}", hint="opsk fabric --history lists them")
    if len({row.hash for row in rows}) > 1 and which not in (LATEST, PREVIOUS):
        raise InputError(f"several snapshots have a hash that begins with {which}", hint="give more of it")
    row = rows[1] if which == PREVIOUS else rows[0]
    source = f"snapshot {row.id}"
    return _build_stored(row), read_snapshot(decompress(row.content, source), source=source)


_ORDER = (
    col(TopologySnapshot.last_seen_at).desc(),
    col(TopologySnapshot.id).desc(),
)


def _query_cluster(cluster: str) -> SelectOfScalar[TopologySnapshot]:
    """Return the query for all snapshots of a cluster, those seen last first."""
    return select(TopologySnapshot).where(col(TopologySnapshot.cluster) == cluster).order_by(*_ORDER)


def _query_named(which: str, cluster: str) -> SelectOfScalar[TopologySnapshot]:
    """Return the query for what a person calls a snapshot."""
    if which in (LATEST, PREVIOUS):
        return _query_cluster(cluster).limit(2)
    if which.isdecimal() and len(which) < _MIN_HASH_CHARACTERS + 4:
        return select(TopologySnapshot).where(col(TopologySnapshot.id) == int(which))
    return _query_cluster(cluster).where(func.substr(TopologySnapshot.hash, 1, len(which)) == which.lower())


def _build_stored(row: TopologySnapshot, *, new: bool = False) -> StoredSnapshot:
    fields = {name: getattr(row, name) for name in StoredSnapshot.__slots__ if name != "new"}
    return StoredSnapshot(**fields, new=new)

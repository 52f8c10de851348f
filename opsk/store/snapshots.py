"""Which fabrics were seen, when? Snapshots of topology, one row for as long as a fabric stays the same."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Engine, func
from sqlalchemy.exc import SQLAlchemyError
from sqlmodel import Session, col, select
from sqlmodel.sql.expression import SelectOfScalar

from opsk.errors import InputError, StoreError
from opsk.store.tables import NAME_CHARACTERS, TopologySnapshot
from opsk.topology.fabric import Fabric
from opsk.topology.hb_domains import HbDomain
from opsk.topology.snapshot import Snapshot, as_snapshot, content_hash, read_snapshot

LATEST, PREVIOUS = "latest", "previous"
"""Words for the snapshot that was seen last, and the one before it."""

_MAX_CONTENT_BYTES = 1 << 29
_FEWEST_HASH_SIGNS = 6


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


def save_snapshot(
    engine: Engine, fabric: Fabric, hb_domains: Iterable[HbDomain] = (), *, cluster: str, now: datetime
) -> StoredSnapshot:
    """Keep a fabric; when it is what was seen last of the cluster, only note that it was seen again.

    A fabric that went back to an earlier state is a row of its own: history is told as it was.

    Raises
    ------
    StoreError
        When the database cannot be written.
    """
    content = as_snapshot(fabric, hb_domains)
    digest = content_hash(content)
    hcas = [hca for hca in fabric.hcas.values() if not hca.sharp]
    cluster, source = cluster[:NAME_CHARACTERS], fabric.source[:NAME_CHARACTERS]
    try:
        with Session(engine) as session:
            row = session.exec(_of(cluster).limit(1)).first()
            new = row is None or row.hash != digest
            if row is None or row.hash != digest:
                row = TopologySnapshot(
                    cluster=cluster,
                    taken_at=now,
                    last_seen_at=now,
                    source=source,
                    hash=digest,
                    switches=len(fabric.switches),
                    hcas=len(hcas),
                    nodes=len({hca.node for hca in hcas if hca.node is not None}),
                    cables=len(fabric.cables),
                    content=gzip.compress(content, mtime=0),
                )
            elif now > row.last_seen_at:
                row.last_seen_at = now
            session.add(row)
            session.commit()
            return _shown(row, new=new)
    except SQLAlchemyError as error:
        raise _failed(error) from error


def history(engine: Engine, *, cluster: str | None = None, limit: int = 1000) -> list[StoredSnapshot]:
    """Return the snapshots of a cluster, or of all, those seen last first.

    Raises
    ------
    StoreError
        When the database cannot be read.
    """
    try:
        with Session(engine) as session:
            columns = [getattr(TopologySnapshot, name) for name in StoredSnapshot.__slots__ if name != "new"]
            query = select(*columns).order_by(*_ORDER).limit(limit)
            if cluster is not None:
                query = query.where(col(TopologySnapshot.cluster) == cluster)
            return [StoredSnapshot(**row._mapping) for row in session.exec(query)]
    except SQLAlchemyError as error:
        raise _failed(error) from error


def load_snapshot(engine: Engine, which: str, *, cluster: str) -> tuple[StoredSnapshot, Snapshot]:
    """Return the snapshot that ``which`` names: an id, the start of a hash, ``latest`` or ``previous``.

    Raises
    ------
    InputError
        When there is none, several have a hash that begins so, or what is stored is damaged.
    StoreError
        When the database cannot be read.
    """
    try:
        with Session(engine) as session:
            rows = list(session.exec(_named(which, cluster)))
    except SQLAlchemyError as error:
        raise _failed(error) from error
    if not rows or (which == PREVIOUS and len(rows) < 2):
        raise InputError(f"no snapshot {which} of cluster {cluster}", hint="opsk fabric --history lists them")
    if len({row.hash for row in rows}) > 1 and which not in (LATEST, PREVIOUS):
        raise InputError(f"several snapshots have a hash that begins with {which}", hint="give more of it")
    row = rows[1] if which == PREVIOUS else rows[0]
    source = f"snapshot {row.id}"
    return _shown(row), read_snapshot(_unpacked(row.content, source), source=source)


_ORDER = (
    col(TopologySnapshot.last_seen_at).desc(),
    col(TopologySnapshot.id).desc(),
)


def _of(cluster: str) -> SelectOfScalar[TopologySnapshot]:
    """Return the query for all snapshots of a cluster, those seen last first."""
    return select(TopologySnapshot).where(col(TopologySnapshot.cluster) == cluster).order_by(*_ORDER)


def _named(which: str, cluster: str) -> SelectOfScalar[TopologySnapshot]:
    """Return the query for what a person calls a snapshot."""
    if which in (LATEST, PREVIOUS):
        return _of(cluster).limit(2)
    if which.isdecimal() and len(which) < _FEWEST_HASH_SIGNS + 4:
        return select(TopologySnapshot).where(col(TopologySnapshot.id) == int(which))
    return _of(cluster).where(func.substr(TopologySnapshot.hash, 1, len(which)) == which.lower())


def _shown(row: TopologySnapshot, *, new: bool = False) -> StoredSnapshot:
    fields = {name: getattr(row, name) for name in StoredSnapshot.__slots__ if name != "new"}
    return StoredSnapshot(**fields, new=new)


def _unpacked(content: bytes, source: str) -> bytes:
    """Return what gzip holds, without trust: the database may be anybody's."""
    stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        return stream.decompress(content, _MAX_CONTENT_BYTES)
    except zlib.error as error:
        raise InputError(f"{source}: damaged in the store: {error}", hint="save the fabric again") from error


def _failed(error: SQLAlchemyError) -> StoreError:
    text = str(getattr(error, "orig", None) or error).split("\n", 1)[0]
    return StoreError(f"the store does not answer: {text}", hint="see [store] in opsk.toml")

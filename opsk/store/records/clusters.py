"""Which clusters does the store know, since when, and of what size?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from sqlalchemy import Engine
from sqlmodel import Session, select

from opsk.store.database.tables import ClusterRow
from opsk.store.database.transactions import read
from opsk.store.records.record import STRICT, Count, Given, Time, Word, keep, newest_counts, record_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSeen:
    """A cluster as it was ``at``; ``since`` is when it was seen first, where that is known."""

    IDENTITY: ClassVar[tuple[str, ...]] = ("cluster",)
    __pydantic_config__: ClassVar = STRICT

    kind: Literal["cluster"] = "cluster"
    cluster: Given
    at: Time
    since: Time | None = None
    slurm_version: Word | None = None
    nodes: Count | None = None
    gpus: Count | None = None


def keep_cluster(session: Session, record: ClusterSeen) -> bool:
    """Keep what is known of a cluster."""
    return keep(session, ClusterRow, record, _merge, since=record.since or record.at)


def clusters(engine: Engine) -> list[ClusterSeen]:
    """Return all clusters, by name.

    Raises
    ------
    StoreError
        The database does not answer.
    """

    def find(session: Session) -> list[ClusterSeen]:
        rows = session.exec(select(ClusterRow).order_by(ClusterRow.cluster))
        return [record_of(ClusterSeen, row) for row in rows]

    return read(engine, find)


def _merge(row: ClusterRow, said: Mapping[str, Any]) -> bool:
    first = min(row.since, said["since"] or said["at"])
    earlier = first < row.since
    row.since = first
    return newest_counts(row, {**said, "since": None}) or earlier

"""Stores and queries clusters: since when they are known, and their size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from sqlalchemy import Engine
from sqlmodel import Session, select

from opsk.store.database.tables import ClusterRow
from opsk.store.database.transactions import read
from opsk.store.records.record import STRICT, Count, Given, Time, Word, build_record, merge_newest, store_record


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


def store_cluster(session: Session, record: ClusterSeen) -> bool:
    """Store what is known of a cluster."""
    return store_record(session, ClusterRow, record, _merge, since=record.since or record.at)


def find_clusters(engine: Engine) -> list[ClusterSeen]:
    """Return all clusters, by name.

    Raises
    ------
    StoreError
        The database does not answer.
    """

    def find(session: Session) -> list[ClusterSeen]:
        rows = session.exec(select(ClusterRow).order_by(ClusterRow.cluster))
        return [build_record(ClusterSeen, row) for row in rows]

    return read(engine, find)


def _merge(row: ClusterRow, values: Mapping[str, Any]) -> bool:
    first = min(row.since, values["since"] or values["at"])
    earlier = first < row.since
    row.since = first
    return merge_newest(row, {**values, "since": None}) or earlier

"""Which tables are there, and what is in their columns?

A change here needs a migration: ``alembic -c opsk/store/alembic.ini revision --autogenerate -m "..."``; a test compares
the two.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Column, Index, MetaData
from sqlalchemy.dialects.mysql import LONGBLOB
from sqlalchemy.engine import Dialect
from sqlalchemy.types import DateTime, LargeBinary, TypeDecorator
from sqlmodel import Field, SQLModel

SQLModel.metadata.naming_convention = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}
"""Constraints have names, without which SQLite cannot change them later."""

NAME_CHARACTERS = 255
"""Longest name of a cluster or a file that is kept; MariaDB indexes no longer ones."""


class UtcDateTime(TypeDecorator[datetime]):
    """A time with its zone, kept as UTC: SQLite and MariaDB keep none, and give it back without."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Refuse a time without a zone; keep any other as UTC."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a time without a time zone cannot be kept")
        return value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> datetime | None:
        """Return the time as UTC."""
        return None if value is None else value.replace(tzinfo=UTC)


BLOB = LargeBinary().with_variant(LONGBLOB(), "mysql", "mariadb")
"""Bytes of any length: MariaDB's plain BLOB ends at 64 KiB."""


class TopologySnapshot(SQLModel, table=True):
    """A fabric as it was from ``taken_at`` until ``last_seen_at``.

    ``content`` is gzipped, ``hash`` that of what is in it (``opsk.topology.snapshot``); the counts are for listings.
    """

    __tablename__ = "topology_snapshots"
    __table_args__ = (Index(None, "cluster", "last_seen_at"), Index(None, "hash"))

    id: int | None = Field(default=None, primary_key=True)
    cluster: str = Field(max_length=NAME_CHARACTERS)
    taken_at: datetime = Field(sa_type=UtcDateTime)
    last_seen_at: datetime = Field(sa_type=UtcDateTime)
    source: str = Field(max_length=NAME_CHARACTERS)
    hash: str = Field(max_length=64)
    switches: int
    hcas: int
    nodes: int
    cables: int
    content: bytes = Field(sa_column=Column(BLOB, nullable=False))


METADATA: MetaData = SQLModel.metadata

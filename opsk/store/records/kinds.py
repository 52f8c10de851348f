"""Defines the kinds of records, their tables, and when a record may be removed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, exists, func
from sqlalchemy.orm import aliased
from sqlmodel import SQLModel, col

from opsk.store.database import tables
from opsk.store.records.remaps import FINAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of records.

    Parameters
    ----------
    name
        The name that users see.
    table, at
        Where it is stored, and its time column.
    parts
        Tables that hold more of it.
    over
        Condition of rows that may be removed when they are old; ``None`` never removes one.
    """

    name: str
    table: type[SQLModel]
    at: Any
    parts: tuple[type[SQLModel], ...] = ()
    over: Callable[[datetime], ColumnElement[bool]] | None = field(default=None)


def _snapshots(before: datetime) -> ColumnElement[bool]:
    """Return the condition of snapshots that are old and not the newest of their cluster."""
    newer = aliased(tables.TopologySnapshot)
    here = tables.TopologySnapshot
    return and_(
        col(here.last_seen_at) < before,
        exists().where(col(newer.cluster) == col(here.cluster), col(newer.last_seen_at) > col(here.last_seen_at)),
    )


KINDS = (
    Kind(name="clusters", table=tables.ClusterRow, at=tables.ClusterRow.at),
    Kind(
        name="snapshots", table=tables.TopologySnapshot, at=tables.TopologySnapshot.last_seen_at, over=_snapshots
    ),
    Kind(
        name="jobs", table=tables.JobRow, at=tables.JobRow.submitted_at,
        # A job that has not ended is reported again and again.
        over=lambda before: func.coalesce(tables.JobRow.ended_at, tables.JobRow.at) < before,
    ),
    Kind(
        name="advice", table=tables.AdviceRow, at=tables.AdviceRow.at,
        over=lambda before: col(tables.AdviceRow.at) < before,
    ),
    Kind(
        name="measured", table=tables.MeasuredRow, at=tables.MeasuredRow.until_at,
        over=lambda before: col(tables.MeasuredRow.until_at) < before,
    ),
    Kind(
        name="submitted", table=tables.SubmissionRow, at=tables.SubmissionRow.at,
        over=lambda before: col(tables.SubmissionRow.at) < before,
    ),
    Kind(
        name="used", table=tables.JobUseRow, at=tables.JobUseRow.at,
        over=lambda before: func.coalesce(tables.JobUseRow.ended_at, tables.JobUseRow.at) < before,
    ),
    Kind(
        name="failures", table=tables.FailureRow, at=tables.FailureRow.at,
        over=lambda before: col(tables.FailureRow.cleared_at) < before,
    ),
    Kind(
        name="remaps", table=tables.RemapRow, at=tables.RemapRow.at,
        parts=(tables.RemapMoveRow, tables.RemapStepRow),
        over=lambda before: and_(
            col(tables.RemapRow.state_at) < before, col(tables.RemapRow.state).in_(FINAL)
        ),
    ),
    Kind(
        name="reports", table=tables.ReportRow, at=tables.ReportRow.at,
        over=lambda before: col(tables.ReportRow.at) < before,
    ),
)  # fmt: skip
"""All kinds; those of ``retention_days`` in opsk.toml are the ones that can be over."""

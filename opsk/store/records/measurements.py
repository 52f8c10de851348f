"""Stores and queries the measured speed of a job by interval and source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Literal

from sqlalchemy import Engine
from sqlmodel import Session, col, select

from opsk.store.database.tables import MeasuredRow
from opsk.store.database.transactions import read
from opsk.store.records.record import STRICT, Amount, Count, Given, Number, Time, Word, build_record, store_record


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was measured of a job from ``from_at`` until ``until_at``: medians of its steps, and the memory's peak.

    An interval that is told again with a later end has grown: the longest counts.

    Parameters
    ----------
    source
        Who says so: ``log:megatron`` and such for progress lines, ``report`` for a loop that reports by itself,
        ``counters`` for what was derived from GPU and fabric.
    memory_peak_bytes
        Of the fullest GPU.
    """

    IDENTITY: ClassVar[tuple[str, ...]] = ("cluster", "job", "source", "from_at")
    __pydantic_config__: ClassVar = STRICT

    kind: Literal["measured"] = "measured"
    cluster: Given
    job: Word
    source: Word
    from_at: Time
    until_at: Time
    steps: Count | None = None
    first_iteration: Count | None = None
    last_iteration: Count | None = None
    step_s: Amount | None = None
    tokens_per_s: Amount | None = None
    tokens_per_s_per_gpu: Amount | None = None
    tflops_per_gpu: Amount | None = None
    mfu: Amount | None = None
    memory_peak_bytes: Count | None = None
    loss: Number | None = None


def store_measured(session: Session, record: Measured) -> bool:
    """Store an interval, or its later end."""
    return store_record(session, MeasuredRow, record, _merge_longest)


def find_measured(
    engine: Engine,
    *,
    cluster: str | None = None,
    job: str | None = None,
    source: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int = 10_000,
) -> list[Measured]:
    """Return intervals in the order of time; where there are more than ``limit``, the last ones.

    Parameters
    ----------
    since, until
        Only those that end after ``since`` and begin before ``until``: of one run of a job that was requeued.

    Raises
    ------
    StoreError
        The database does not answer.
    """
    query = select(MeasuredRow).order_by(col(MeasuredRow.from_at).desc(), col(MeasuredRow.id).desc()).limit(limit)
    for column, value in ((MeasuredRow.cluster, cluster), (MeasuredRow.job, job), (MeasuredRow.source, source)):
        if value is not None:
            query = query.where(col(column) == value)
    if since is not None:
        query = query.where(col(MeasuredRow.until_at) > since)
    if until is not None:
        query = query.where(col(MeasuredRow.from_at) < until)
    return read(engine, lambda session: [build_record(Measured, row) for row in session.exec(query)][::-1])


def _merge_longest(row: MeasuredRow, values: Mapping[str, Any]) -> bool:
    if values["until_at"] <= row.until_at:
        return False
    for name, value in values.items():
        setattr(row, name, value)
    return True

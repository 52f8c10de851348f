"""Stores and queries failures: what broke, where and when, and when it was cleared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Literal

from sqlalchemy import Engine
from sqlmodel import Session, col, select

from opsk.store.database.tables import FailureRow
from opsk.store.database.transactions import read
from opsk.store.records.record import STRICT, Document, Given, LongText, Name, Time, Word, build_record, store_record


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureSeen:
    """A failure of a part or of a job; told again with ``cleared_at`` once it is well.

    What does not last, as a job that failed or an XID that asks for nothing, is well at once: ``cleared_at`` is ``at``.

    Parameters
    ----------
    failure
        What it is: ``xid``, ``ecc``, ``gpu_lost``, ``nic_down``, ``leaf_down``, ``job_failed``, a class of the
        post-mortem.
    what
        The part that failed, as ``opsk remap --failed`` takes it: ``gpu:NODE/INDEX``, ``leaf:NAME``, ``node:NAME``.
    source
        Where it was seen: ``kernel_log``, ``nvml``, ``fabric``, ``slurm``, ``postmortem``, ``person``.
    code
        Number of an XID, exit code, and such.
    action
        What it asks for: a class of ``opsk.hardware.xids``.
    """

    IDENTITY: ClassVar[tuple[str, ...]] = ("cluster", "at", "failure", "what", "job", "code")
    __pydantic_config__: ClassVar = STRICT

    kind: Literal["failure"] = "failure"
    cluster: Given
    at: Time
    failure: Word
    what: Given
    source: Word
    node: Name | None = None
    job: Word | None = None
    code: Word | None = None
    action: Word | None = None
    text: LongText | None = None
    cleared_at: Time | None = None
    document: Document | None = None


def store_failure(session: Session, record: FailureSeen) -> bool:
    """Store a failure, and when it was cleared."""
    return store_record(session, FailureRow, record, _merge_cleared)


def find_failures(
    engine: Engine,
    *,
    cluster: str | None = None,
    job: str | None = None,
    since: datetime | None = None,
    still: bool = False,
    limit: int = 1000,
) -> list[FailureSeen]:
    """Return failures, the last first.

    Parameters
    ----------
    still
        Only those that are not cleared.

    Raises
    ------
    StoreError
        The database does not answer.
    """
    query = select(FailureRow).order_by(col(FailureRow.at).desc(), col(FailureRow.id).desc()).limit(limit)
    for column, value in ((FailureRow.cluster, cluster), (FailureRow.job, job)):
        if value is not None:
            query = query.where(col(column) == value)
    if since is not None:
        query = query.where(col(FailureRow.at) >= since)
    if still:
        query = query.where(col(FailureRow.cleared_at).is_(None))
    return read(engine, lambda session: [build_record(FailureSeen, row) for row in session.exec(query)])


def _merge_cleared(row: FailureRow, values: Mapping[str, Any]) -> bool:
    """Add unknown values; the first ``cleared_at`` stays."""
    news = {name: value for name, value in values.items() if value is not None and getattr(row, name) is None}
    for name, value in news.items():
        setattr(row, name, value)
    return bool(news)

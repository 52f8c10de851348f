"""Stores and queries the advice that was given: to whom, and on which script."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Literal

from sqlalchemy import Engine
from sqlmodel import Session, col, select

from opsk.store.database.tables import AdviceRow
from opsk.store.database.transactions import read
from opsk.store.records.record import STRICT, Count, Document, Given, Name, Time, Word, build_record, store_record


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceGiven:
    """Advice on a script, as it was given ``at``.

    Parameters
    ----------
    uid, user
        Who asked.
    job
        Slurm's id, where the job had one already.
    action
        What the site's policy made of it: ``shadow``, ``annotate``, ``advise``, ``hold``, ``reject``.
    shown
        Whether the user got to see it.
    document
        The whole of it, as ``opsk check --json`` prints it.
    """

    IDENTITY: ClassVar[tuple[str, ...]] = ("cluster", "at", "uid", "script_hash")
    __pydantic_config__: ClassVar = STRICT

    kind: Literal["advice"] = "advice"
    cluster: Given
    at: Time
    uid: Count
    user: Name | None = None
    script_hash: Word
    job: Word | None = None
    verdict: Word
    action: Word | None = None
    shown: bool = True
    document: Document | None = None


def store_advice(session: Session, record: AdviceGiven) -> bool:
    """Store advice that was given."""
    return store_record(session, AdviceRow, record)


def find_advice(
    engine: Engine,
    *,
    cluster: str | None = None,
    script_hash: str | None = None,
    since: datetime | None = None,
    limit: int = 1000,
) -> list[AdviceGiven]:
    """Return advice, the last first.

    Raises
    ------
    StoreError
        The database does not answer.
    """
    query = select(AdviceRow).order_by(col(AdviceRow.at).desc(), col(AdviceRow.id).desc()).limit(limit)
    for column, value in ((AdviceRow.cluster, cluster), (AdviceRow.script_hash, script_hash)):
        if value is not None:
            query = query.where(col(column) == value)
    if since is not None:
        query = query.where(col(AdviceRow.at) >= since)
    return read(engine, lambda session: [build_record(AdviceGiven, row) for row in session.exec(query)])

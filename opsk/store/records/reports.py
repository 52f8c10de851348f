"""Stores and queries the reports that were written on a job."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from sqlalchemy import Engine
from sqlmodel import Session, col, select

from opsk.store.compression import decompress
from opsk.store.database.tables import ReportRow
from opsk.store.database.transactions import read
from opsk.store.records.record import STRICT, Given, LongText, Time, Word, build_record, store_record

_MAX_CHARACTERS = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A report on a job, as it was written.

    Parameters
    ----------
    report
        What it is: ``postmortem``, ``efficiency``, ``losses``.
    form
        How it is written: ``json``, ``html``, ``md``, ``text``.
    root_cause
        The class that a post-mortem found, or the main cause of lost time.
    """

    IDENTITY: ClassVar[tuple[str, ...]] = ("cluster", "job", "report", "form", "at")
    __pydantic_config__: ClassVar = STRICT

    kind: Literal["report"] = "report"
    cluster: Given
    job: Word
    at: Time
    report: Word
    form: Word
    title: LongText | None = None
    root_cause: Word | None = None
    content: Annotated[str, Field(max_length=_MAX_CHARACTERS)]


def store_report(session: Session, record: Report) -> bool:
    """Store a report."""
    return store_record(session, ReportRow, record, content=gzip.compress(record.content.encode(), mtime=0))


def find_reports(
    engine: Engine,
    *,
    cluster: str | None = None,
    job: str | None = None,
    report: str | None = None,
    without: str | None = None,
    since: datetime | None = None,
    limit: int = 100,
) -> list[Report]:
    """Return reports, the last first.

    Parameters
    ----------
    report, without
        Only reports of this kind, and of any other than this kind.

    Raises
    ------
    InputError
        What is stored is damaged.
    StoreError
        The database does not answer.
    """
    query = select(ReportRow).order_by(col(ReportRow.at).desc(), col(ReportRow.id).desc()).limit(limit)
    for column, value in ((ReportRow.cluster, cluster), (ReportRow.job, job), (ReportRow.report, report)):
        if value is not None:
            query = query.where(col(column) == value)
    if without is not None:
        query = query.where(col(ReportRow.report) != without)
    if since is not None:
        query = query.where(col(ReportRow.at) >= since)
    return read(engine, lambda session: [build_report(row) for row in session.exec(query)])


def build_report(row: ReportRow) -> Report:
    """Return the report of a row."""
    text = decompress(row.content, f"report {row.id}").decode(errors="replace")
    return build_record(Report, row, content=text)

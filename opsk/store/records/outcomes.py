"""Queries many jobs at once: what was predicted of them, how fast they were, and why they were slow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import Engine, or_
from sqlmodel import Session, col, select

from opsk.store.database.tables import AdviceRow, FailureRow, JobRow, MeasuredRow, ReportRow
from opsk.store.database.transactions import read
from opsk.store.records.jobs import IDS_PER_QUERY, JobSeen
from opsk.store.records.record import build_record

LOSSES = "losses"
"""Kind of the reports on where a job lost time; their titles are one sentence."""
Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepInterval:
    """A measured interval of a job, without its other rates; see `opsk.store.records.measurements.Measured`."""

    job: str
    source: str
    from_at: datetime
    until_at: datetime
    steps: int | None
    step_s: float | None
    memory_peak_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPlan:
    """The document of advice on a script, as it was given ``at``."""

    script_hash: str
    at: datetime
    document: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """What was reported about a job ``at`` a time, as one sentence.

    Parameters
    ----------
    cause
        The main cause of lost time, by `opsk.diagnosis.losses.values.Cause`; empty for a failure.
    """

    job: str
    at: datetime
    text: str
    cause: str = ""


def find_predicted_jobs(
    engine: Engine,
    *,
    since: datetime,
    cluster: str | None = None,
    user: str | None = None,
    limit: int = 20_000,
) -> list[JobSeen]:
    """Return the jobs whose time or memory was predicted, those submitted last first.

    Raises
    ------
    StoreError
        The database does not answer.
    """
    query = select(JobRow).where(
        col(JobRow.submitted_at) >= since,
        or_(col(JobRow.predicted_step_s) > 0, col(JobRow.predicted_memory_bytes) > 0),
    )
    for column, value in ((JobRow.cluster, cluster), (JobRow.user, user)):
        if value is not None:
            query = query.where(col(column) == value)
    query = query.order_by(col(JobRow.submitted_at).desc(), col(JobRow.id).desc()).limit(limit)
    return read(engine, lambda session: [build_record(JobSeen, row) for row in session.exec(query)])


def find_step_intervals(engine: Engine, cluster: str, jobs: Sequence[str], since: datetime) -> list[StepInterval]:
    """Return the measured intervals of jobs in the order of time.

    Raises
    ------
    StoreError
        The database does not answer.
    """
    columns = [getattr(MeasuredRow, name) for name in StepInterval.__slots__]
    query = select(*columns).where(col(MeasuredRow.cluster) == cluster, col(MeasuredRow.until_at) >= since)
    query = query.order_by(col(MeasuredRow.from_at), col(MeasuredRow.id))
    return _read_parts(
        engine, jobs, lambda part: query.where(col(MeasuredRow.job).in_(part)),
        lambda row: StepInterval(**row._mapping),
    )  # fmt: skip


def find_stored_plans(engine: Engine, cluster: str, script_hashes: Sequence[str]) -> list[StoredPlan]:
    """Return the documents of the advice on scripts, the last first.

    Raises
    ------
    StoreError
        The database does not answer.
    """
    columns = [getattr(AdviceRow, name) for name in StoredPlan.__slots__]
    query = select(*columns).where(col(AdviceRow.cluster) == cluster)
    query = query.order_by(col(AdviceRow.at).desc(), col(AdviceRow.id).desc())
    return _read_parts(
        engine, script_hashes, lambda part: query.where(col(AdviceRow.script_hash).in_(part)),
        lambda row: StoredPlan(**row._mapping),
    )  # fmt: skip


def find_incidents(engine: Engine, cluster: str, jobs: Sequence[str]) -> list[Incident]:
    """Return why jobs were slow, by reports on lost time, and then the failures that hit them.

    Raises
    ------
    StoreError
        The database does not answer.
    """
    losses = select(ReportRow.job, ReportRow.at, ReportRow.title, ReportRow.root_cause).where(
        col(ReportRow.cluster) == cluster, col(ReportRow.report) == LOSSES
    )
    failures = select(FailureRow.job, FailureRow.at, FailureRow.failure, FailureRow.what).where(
        col(FailureRow.cluster) == cluster
    )
    return [
        *_read_parts(
            engine, jobs, lambda part: losses.where(col(ReportRow.job).in_(part)),
            lambda row: Incident(job=row[0], at=row[1], text=row[2] or "", cause=row[3] or ""),
        ),
        *_read_parts(
            engine, jobs, lambda part: failures.where(col(FailureRow.job).in_(part)),
            lambda row: Incident(job=row[0], at=row[1], text=f"{row[2]} of {row[3]}"),
        ),
    ]  # fmt: skip


def _read_parts(
    engine: Engine, names: Sequence[str], build_query: Callable[[Sequence[str]], Any], build: Callable[[Any], Entry]
) -> list[Entry]:
    """Return the entries of queries that name a bounded number of values each."""

    def rows(session: Session) -> Iterator[Entry]:
        for start in range(0, len(names), IDS_PER_QUERY):
            for row in session.exec(build_query(names[start : start + IDS_PER_QUERY])):
                yield build(row)

    return read(engine, lambda session: list(rows(session)))

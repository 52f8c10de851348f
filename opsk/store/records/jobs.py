"""Stores and queries jobs, with their plan and what was predicted of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Literal

from sqlalchemy import Engine
from sqlmodel import Session, col, select

from opsk.store.database.tables import JobRow
from opsk.store.database.transactions import read
from opsk.store.records.record import (
    STRICT,
    Amount,
    Count,
    Document,
    Given,
    LongText,
    Name,
    Time,
    Word,
    build_record,
    merge_newest,
    store_record,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSeen:
    """A job as it was ``at``; each submission and each requeue is a job of its own, as in Slurm's accounting.

    Parameters
    ----------
    job
        Slurm's id as it is shown: ``4711``, ``4711_3`` of an array, ``4711+1`` of a heterogeneous job.
    submitted_at
        Slurm's SubmitTime, which a requeue changes; not the writer's clock.
    sluid
        Slurm's own name for it that is never used again, from 26.05 on.
    script_hash, fabric_hash
        Hash of the script that advice was given on, and of the snapshot of the fabric that was predicted with.
    plan, prediction
        As ``opsk check --json`` tells them under ``workload`` and ``memory``, ``time``.
    predicted_step_s, predicted_tokens_per_s_per_gpu, predicted_tflops_per_gpu, predicted_mfu, predicted_memory_bytes
        What is expected, from the prediction, to be compared with what was measured.
    """

    IDENTITY: ClassVar[tuple[str, ...]] = ("cluster", "job", "submitted_at")
    __pydantic_config__: ClassVar = STRICT

    kind: Literal["job"] = "job"
    cluster: Given
    job: Word
    submitted_at: Time
    at: Time
    sluid: Word | None = None
    user: Name | None = None
    account: Name | None = None
    partition: Name | None = None
    qos: Name | None = None
    name: Name | None = None
    state: Word | None = None
    exit_code: Word | None = None
    started_at: Time | None = None
    ended_at: Time | None = None
    node_list: LongText | None = None
    nodes: Count | None = None
    gpus: Count | None = None
    script_hash: Word | None = None
    fabric_hash: Word | None = None
    framework: Word | None = None
    model: Name | None = None
    verdict: Word | None = None
    predicted_step_s: Amount | None = None
    predicted_tokens_per_s_per_gpu: Amount | None = None
    predicted_tflops_per_gpu: Amount | None = None
    predicted_mfu: Amount | None = None
    predicted_memory_bytes: Amount | None = None
    plan: Document | None = None
    prediction: Document | None = None


def store_job(session: Session, record: JobSeen) -> bool:
    """Store what is known of a job."""
    return store_record(session, JobRow, record, merge_newest)


def find_jobs(
    engine: Engine,
    *,
    cluster: str | None = None,
    job: str | None = None,
    script_hash: str | None = None,
    since: datetime | None = None,
    running: bool = False,
    limit: int = 1000,
) -> list[JobSeen]:
    """Return jobs, those submitted last first.

    Parameters
    ----------
    since
        Only those submitted from then on.
    running
        Only those that have not ended, as far as is known.

    Raises
    ------
    StoreError
        The database does not answer.
    """
    query = select(JobRow).order_by(col(JobRow.submitted_at).desc(), col(JobRow.id).desc()).limit(limit)
    for column, value in ((JobRow.cluster, cluster), (JobRow.job, job), (JobRow.script_hash, script_hash)):
        if value is not None:
            query = query.where(col(column) == value)
    if since is not None:
        query = query.where(col(JobRow.submitted_at) >= since)
    if running:
        query = query.where(col(JobRow.ended_at).is_(None))
    return read(engine, lambda session: [build_record(JobSeen, row) for row in session.exec(query)])


IDS_PER_QUERY = 500
Key = tuple[str, datetime]
"""Id of a job and the time of its submission."""


def find_known_jobs(engine: Engine, cluster: str, ids: Sequence[str]) -> dict[Key, tuple[datetime, str | None]]:
    """Return what is known of all submissions of some jobs: as of when, and their state where they have ended.

    Raises
    ------
    StoreError
        The database does not answer.
    """
    query = select(JobRow.job, JobRow.submitted_at, JobRow.at, JobRow.state).where(col(JobRow.cluster) == cluster)
    parts = [ids[start : start + IDS_PER_QUERY] for start in range(0, len(ids), IDS_PER_QUERY)]

    def find(session: Session) -> dict[Key, tuple[datetime, str | None]]:
        rows: dict[Key, tuple[datetime, str | None]] = {}
        for part in parts:
            part_query = query.where(col(JobRow.job).in_(part))
            rows |= {row[:2]: row[2:] for row in session.exec(part_query.where(col(JobRow.ended_at).is_not(None)))}
            rows |= {row[:2]: (row[2], None) for row in session.exec(part_query.where(col(JobRow.ended_at).is_(None)))}
        return rows

    return read(engine, find)

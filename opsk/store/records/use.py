"""Stores and queries submissions that request GPUs, and what their jobs used."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Literal

from sqlalchemy import Engine
from sqlmodel import Session, col, select

from opsk.store.database.tables import JobUseRow, SubmissionRow
from opsk.store.database.transactions import read
from opsk.store.records.record import (
    STRICT,
    Amount,
    Count,
    Document,
    Given,
    Name,
    Time,
    Word,
    build_record,
    merge_newest,
    store_record,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSubmitted:
    """A submission as the advisor saw it ``at``, a moment before Slurm gave it a number.

    Parameters
    ----------
    uid
        The submitting user, as the kernel reports it.
    name
        Name of the job, as Slurm will show it.
    script_key, command_key, command, settings
        As in `opsk.history.submission.Submission`.
    gpus
        GPUs of the whole job.
    """

    IDENTITY: ClassVar[tuple[str, ...]] = ("cluster", "at", "uid", "script_key")
    __pydantic_config__: ClassVar = STRICT

    kind: Literal["submitted"] = "submitted"
    cluster: Given
    at: Time
    uid: Count
    script_key: Word
    command_key: Word
    name: Name | None = None
    command: Name | None = None
    settings: Document | None = None
    gpus: Count | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobUsed:
    """What a job has used until ``at``; told again, the newest values count.

    Parameters
    ----------
    submitted_at
        Slurm's SubmitTime, which a requeue changes.
    script_key, command_key, command, settings
        Those of its submission.
    gpu_type
        GRES type of its GPUs.
    observed_s
        For how long its GPUs were observed [s].
    capacity_bytes
        Memory of one GPU.
    memory_peak_bytes, memory_peaks
        Highest memory in use: on the fullest GPU, and on each by ``NODE/SLOT``.
    activity
        Share of the time in which its GPUs were busy, mean over GPUs and time [ratio].
    idle_gpus
        GPUs on which nothing ran.
    power_w
        Mean power of a GPU [W].
    host_memory_peak_bytes
        Highest resident memory of one task, by Slurm's accounting.
    """

    IDENTITY: ClassVar[tuple[str, ...]] = ("cluster", "job", "submitted_at")
    __pydantic_config__: ClassVar = STRICT

    kind: Literal["used"] = "used"
    cluster: Given
    job: Word
    submitted_at: Time
    at: Time
    uid: Count
    script_key: Word
    command_key: Word
    user: Name | None = None
    account: Name | None = None
    command: Name | None = None
    settings: Document | None = None
    gpu_type: Word | None = None
    gpus: Count | None = None
    nodes: Count | None = None
    started_at: Time | None = None
    ended_at: Time | None = None
    time_limit_s: Amount | None = None
    state: Word | None = None
    observed_s: Amount | None = None
    capacity_bytes: Amount | None = None
    memory_peak_bytes: Amount | None = None
    memory_peaks: Document | None = None
    activity: Amount | None = None
    idle_gpus: Count | None = None
    power_w: Amount | None = None
    host_memory_peak_bytes: Amount | None = None


def store_submitted(session: Session, record: JobSubmitted) -> bool:
    """Store a submission."""
    return store_record(session, SubmissionRow, record)


def store_used(session: Session, record: JobUsed) -> bool:
    """Store what a job has used so far."""
    return store_record(session, JobUseRow, record, merge_newest)


def find_submitted(engine: Engine, *, cluster: str, since: datetime) -> list[JobSubmitted]:
    """Return submissions in the order of time.

    Raises
    ------
    StoreError
        The database does not answer.
    """
    query = select(SubmissionRow).where(col(SubmissionRow.cluster) == cluster, col(SubmissionRow.at) >= since)
    query = query.order_by(col(SubmissionRow.at), col(SubmissionRow.id))
    return read(engine, lambda session: [build_record(JobSubmitted, row) for row in session.exec(query)])


def find_used(
    engine: Engine,
    *,
    cluster: str | None = None,
    jobs: Iterable[str] | None = None,
    uid: int | None = None,
    since: datetime | None = None,
    running: bool = False,
) -> list[JobUsed]:
    """Return what jobs used, those that were recorded first before the others.

    Parameters
    ----------
    since
        Only those that were recorded from then on.
    running
        Only those that have not ended, as far as is known.

    Raises
    ------
    StoreError
        The database does not answer.
    """
    query = select(JobUseRow).order_by(col(JobUseRow.at), col(JobUseRow.id))
    for column, value in ((JobUseRow.cluster, cluster), (JobUseRow.uid, uid)):
        if value is not None:
            query = query.where(col(column) == value)
    if jobs is not None:
        query = query.where(col(JobUseRow.job).in_(list(jobs)))
    if since is not None:
        query = query.where(col(JobUseRow.at) >= since)
    if running:
        query = query.where(col(JobUseRow.ended_at).is_(None))
    return read(engine, lambda session: [build_record(JobUsed, row) for row in session.exec(query)])

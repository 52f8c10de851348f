"""Reads earlier failures from the store, and writes reports into it."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

from sqlalchemy import Engine

from opsk import hostlist
from opsk.errors import InputError
from opsk.postmortem.evidence.recurrence import Known, KnownFailure, name_parts
from opsk.postmortem.values import Report
from opsk.store.records.clusters import find_clusters
from opsk.store.records.failures import FailureSeen, find_failures
from opsk.store.records.jobs import find_jobs
from opsk.store.records.reports import Report as StoredReport
from opsk.store.writing import DirectWriter, Record

_MAX_JOBS, _MAX_FAILURES = 20_000, 20_000
UNKNOWN_CLUSTER = "cluster"


def read_known_failures(engine: Engine, *, days: int, before_s: float, cluster: str | None = None) -> Known:
    """Return failures and jobs of the days before a time.

    Raises
    ------
    StoreError
        The store does not answer.
    """
    until = datetime.fromtimestamp(before_s, UTC)
    since = until - timedelta(days=days)
    known = tuple(
        KnownFailure(
            at_s=record.at.timestamp(), failure=record.failure, what=record.what, node=record.node or "",
            job=record.job or "",
            user=str(record.document.get("user", "")) if isinstance(record.document, dict) else "",
        )
        for record in find_failures(engine, cluster=cluster, since=since, limit=_MAX_FAILURES)
        if record.at <= until
    )  # fmt: skip
    of_node: Counter[str] = Counter()
    of_user: Counter[str] = Counter()
    seen = find_jobs(engine, cluster=cluster, since=since, limit=_MAX_JOBS)
    for job in seen:
        of_user[job.user or ""] += 1
        try:
            of_node.update(hostlist.expand(job.node_list) if job.node_list else ())
        except InputError:
            continue
    sizes = [record.nodes or 0 for record in find_clusters(engine) if cluster in (None, record.cluster)]
    return Known(
        failures=known, jobs_of_node=of_node, jobs_of_user=of_user, jobs=len(seen), nodes=max(sizes, default=0)
    )


def store_report(engine: Engine, report: Report, document: str, now_s: float) -> None:
    """Store a report and its failure.

    Raises
    ------
    InputError, StoreError
        It cannot be stored.
    """
    job = report.job
    cluster = (job.cluster if job is not None else "") or UNKNOWN_CLUSTER
    number = job.job_id if job is not None else ""
    now = datetime.fromtimestamp(now_s, UTC)
    records: list[Record] = []
    if number:
        records.append(StoredReport(
            cluster=cluster, job=number, at=now, report="postmortem", form="json", content=document,
            title=report.root.what[:400] if report.root is not None else None,
            root_cause=str(report.root.failure) if report.root is not None else None,
        ))  # fmt: skip
    root = report.root
    if root is not None and number:
        ended = job.end_s if job is not None and job.end_s is not None else now_s
        ended_at = datetime.fromtimestamp(ended, UTC)
        parts = name_parts(root.where)
        records.append(FailureSeen(
            cluster=cluster, at=ended_at, failure=str(root.failure), what=parts[0] if parts else f"job:{number}",
            source="postmortem", node=root.where.node or None, job=number, text=root.what[:400], cleared_at=ended_at,
            document={"user": job.user if job is not None else "", "confidence": round(root.confidence, 3)},
        ))  # fmt: skip
    DirectWriter(engine).write(records)

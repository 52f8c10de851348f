"""What does the store know of earlier failures, and how does a report get there?"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

from sqlalchemy import Engine

from opsk import hostlist
from opsk.errors import InputError
from opsk.postmortem.evidence.recurring import Known, KnownFailure, subjects_of
from opsk.postmortem.values import Report
from opsk.store.records.clusters import clusters
from opsk.store.records.failures import FailureSeen, failures
from opsk.store.records.jobs import jobs
from opsk.store.records.reports import Report as StoredReport
from opsk.store.writing import DirectWriter, Record

_MOST_JOBS, _MOST_FAILURES = 20_000, 20_000
UNKNOWN_CLUSTER = "cluster"


def known_failures(engine: Engine, *, days: int, before_s: float, cluster: str | None = None) -> Known:
    """Return failures and jobs of the days before a time.

    Raises
    ------
    StoreError
        The store does not answer.
    """
    until = datetime.fromtimestamp(before_s, UTC)
    since = until - timedelta(days=days)
    found = tuple(
        KnownFailure(
            at_s=each.at.timestamp(), failure=each.failure, what=each.what, node=each.node or "", job=each.job or "",
            user=str(each.document.get("user", "")) if isinstance(each.document, dict) else "",
        )
        for each in failures(engine, cluster=cluster, since=since, limit=_MOST_FAILURES)
        if each.at <= until
    )  # fmt: skip
    of_node: Counter[str] = Counter()
    of_user: Counter[str] = Counter()
    seen = jobs(engine, cluster=cluster, since=since, limit=_MOST_JOBS)
    for job in seen:
        of_user[job.user or ""] += 1
        try:
            of_node.update(hostlist.expand(job.node_list) if job.node_list else ())
        except InputError:
            continue
    sizes = [each.nodes or 0 for each in clusters(engine) if cluster in (None, each.cluster)]
    return Known(
        failures=found, jobs_of_node=of_node, jobs_of_user=of_user, jobs=len(seen), nodes=max(sizes, default=0)
    )


def store_report(engine: Engine, report: Report, document: str, now_s: float) -> None:
    """Keep a report, and the failure that it found.

    Raises
    ------
    InputError, StoreError
        It is not kept.
    """
    job = report.job
    cluster = (job.cluster if job is not None else "") or UNKNOWN_CLUSTER
    number = job.job_id if job is not None else ""
    now = datetime.fromtimestamp(now_s, UTC)
    kept: list[Record] = []
    if number:
        kept.append(StoredReport(
            cluster=cluster, job=number, at=now, report="postmortem", form="json", content=document,
            title=report.root.what[:400] if report.root is not None else None,
            root_cause=str(report.root.failure) if report.root is not None else None,
        ))  # fmt: skip
    root = report.root
    if root is not None and number:
        ended = job.end_s if job is not None and job.end_s is not None else now_s
        at = datetime.fromtimestamp(ended, UTC)
        parts = subjects_of(root.where)
        kept.append(FailureSeen(
            cluster=cluster, at=at, failure=str(root.failure), what=parts[0] if parts else f"job:{number}",
            source="postmortem", node=root.where.node or None, job=number, text=root.what[:400], cleared_at=at,
            document={"user": job.user if job is not None else "", "confidence": round(root.confidence, 3)},
        ))  # fmt: skip
    DirectWriter(engine).write(kept)

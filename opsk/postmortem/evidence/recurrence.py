"""Computes whether a node, GPU, link or user fails more often than chance explains, from reports in the store.

The lemon score is a ratio: how often a part failed, over how often it would have failed if all parts failed equally
often. Few failures prove little: the count enters with its lower 95 % confidence bound as a Poisson rate. One failure
gives 0.04 of its ratio, three give 0.27, and a part that fails ten times as often as others needs four failures to be
called a lemon (3 and more).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from sqlalchemy import Engine

from opsk import hostlist
from opsk.errors import InputError
from opsk.postmortem.values import FailureClass, Place, Recurrence, Report
from opsk.store.records.clusters import find_clusters
from opsk.store.records.failures import FailureSeen, find_failures
from opsk.store.records.jobs import find_jobs
from opsk.store.records.reports import Report as StoredReport
from opsk.store.writing import DirectWriter, Record

_Z = 1.6449
"""Of the 95 % quantile of a normal distribution."""
_MIN_EXPECTED = 0.01
"""No part is so good that less would be expected of it."""
HARDWARE = frozenset(
    str(each) for each in (FailureClass.GPU_HARDWARE, FailureClass.NVLINK, FailureClass.FABRIC, FailureClass.NODE)
) | {"xid", "ecc", "gpu_lost", "nic_down", "node_down", "link_down", "sxid"}
"""Failures of parts, as the store calls them; all others are of the job, and of its user."""
_MAX_JOBS, _MAX_FAILURES = 20_000, 20_000
UNKNOWN_CLUSTER = "cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFailure:
    """A failure in the store; ``what`` is ``gpu:NODE/INDEX``, ``nic:NODE/DEVICE``, ``node:NAME``, ..."""

    at_s: float
    failure: str
    what: str
    node: str = ""
    job: str = ""
    user: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The store's failures and jobs of some days.

    Parameters
    ----------
    jobs_of_node, jobs_of_user
        How many jobs there were on each node, and of each user; empty where jobs are not stored.
    jobs
        How many jobs in all.
    nodes
        How many nodes the cluster has; 0 where that is not known.
    """

    failures: tuple[KnownFailure, ...] = ()
    jobs_of_node: Counter[str] = field(default_factory=Counter)
    jobs_of_user: Counter[str] = field(default_factory=Counter)
    jobs: int = 0
    nodes: int = 0


def lower_bound(count: int) -> float:
    """Return the rate that is exceeded with 95 % certainty after ``count`` events (Wilson and Hilferty's formula).

    Examples
    --------
    >>> round(lower_bound(1), 2), round(lower_bound(4), 2), lower_bound(0)
    (0.04, 1.36, 0.0)
    """
    if count <= 0:
        return 0.0
    return max(0.0, count * (1 - 1 / (9 * count) - _Z / (3 * math.sqrt(count))) ** 3)


def lemon_score(observed: int, expected: float) -> float:
    """Return by how much, at least, a part fails more often than expected [ratio]."""
    return lower_bound(observed) / max(expected, _MIN_EXPECTED)


def name_parts(place: Place) -> tuple[str, ...]:
    """Return the parts that a place names, the smallest first, as the store names them."""
    if not place.node:
        return ()
    parts = []
    if place.gpu_index is not None:
        parts.append(f"gpu:{place.node}/{place.gpu_index}")
    if place.hca:
        parts.append(f"nic:{place.node}/{place.hca}")
    return (*parts, f"node:{place.node}")


def compute_recurrence(report: Report, known: Known, *, days: int) -> tuple[Recurrence, ...]:
    """Return how often place and user of a report were in failures before; this failure counts as one."""
    root = report.root
    if root is None:
        return ()
    job_id = report.job.job_id if report.job is not None else ""
    earlier = [each for each in known.failures if not job_id or each.job != job_id]
    recurrences = [
        _compute_part_recurrence(part, earlier, known, days)
        for part in name_parts(root.where)
        if str(root.failure) in HARDWARE
    ]
    user = report.job.user if report.job is not None else ""
    if user and str(root.failure) not in HARDWARE:
        recurrences.append(_compute_user_recurrence(user, str(root.failure), earlier, known, days))
    return tuple(each for each in recurrences if each.failures > 1)


def _compute_part_recurrence(part: str, earlier: Sequence[KnownFailure], known: Known, days: int) -> Recurrence:
    """Return the record of a part."""
    kind, _, name = part.partition(":")
    node = name.partition("/")[0]
    of_parts = [each for each in earlier if each.failure in HARDWARE]
    part_failures = [each for each in of_parts if each.what == part or (kind == "node" and _failure_node(each) == node)]
    count, total = _count_events(part_failures) + 1, _count_events(of_parts) + 1
    nodes = max(known.nodes, len(known.jobs_of_node), len({_failure_node(each) for each in of_parts} | {node}))
    slots = sum(known.jobs_of_node.values())
    share = known.jobs_of_node[node] / slots if slots and known.jobs_of_node[node] else 1 / nodes
    jobs = known.jobs_of_node[node]
    return _build_recurrence(part, count, jobs, days, total * share, _format_kinds(part_failures))


def _compute_user_recurrence(
    user: str, failure: str, earlier: Sequence[KnownFailure], known: Known, days: int
) -> Recurrence:
    """Return the record of a user: with the same kind of failure."""
    similar = [each for each in earlier if each.failure == failure]
    user_failures = [each for each in similar if each.user == user]
    count, total = _count_events(user_failures) + 1, _count_events(similar) + 1
    jobs = known.jobs_of_user[user]
    users = max(len(known.jobs_of_user), len({each.user for each in similar if each.user} | {user}))
    share = jobs / known.jobs if known.jobs and jobs else 1 / users
    return _build_recurrence(f"user:{user}", count, jobs, days, total * share, failure)


def _build_recurrence(subject: str, count: int, jobs: int, days: int, expected: float, kinds: str) -> Recurrence:
    text = f"{count} failures within {days} days ({kinds}), {expected:.1f} expected"
    score = lemon_score(count, expected)
    return Recurrence(subject=subject, failures=count, jobs=jobs, days=days, lemon=round(score, 3), text=text)


def _count_events(failures: Sequence[KnownFailure]) -> int:
    """Count failures: those of one job, or within one hour without a job, count as one."""
    return len({(each.job or int(each.at_s // 3600), _failure_node(each)) for each in failures})


def _failure_node(failure: KnownFailure) -> str:
    return failure.node or failure.what.partition(":")[2].partition("/")[0]


def _format_kinds(failures: Sequence[KnownFailure]) -> str:
    return ", ".join(sorted({each.failure for each in failures})) or "this one"


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

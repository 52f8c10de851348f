"""Reads the jobs of the store that were predicted before they ran, and compares them with what was measured.

A prediction counts that is in the job's record: the submit hook writes it before the job has a node. Its range and the
kind of job are in the stored advice on the same script.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from opsk.diagnosis.accuracy.comparison import (
    UNKNOWN,
    ComparedJob,
    Comparison,
    MeasuredSteps,
    compute_typical_step_s,
)
from opsk.diagnosis.losses.values import FAULTS_OF_A_RUN
from opsk.history.runs import MIN_OBSERVED_S, WHOLE_STATES
from opsk.store.records.jobs import JobSeen
from opsk.store.records.outcomes import (
    Incident,
    StepInterval,
    StoredPlan,
    find_incidents,
    find_predicted_jobs,
    find_step_intervals,
    find_stored_plans,
)
from opsk.store.records.use import JobUsed, find_used

if TYPE_CHECKING:
    from sqlalchemy import Engine

ADVICE_BEFORE, ADVICE_AFTER = timedelta(days=30), timedelta(minutes=1)
"""Advice is given a moment before its job exists; a job that was requeued counts as submitted then."""
SAME_PREDICTION = 1e-3
"""A range belongs to a prediction that differs by less [ratio]: records are rounded."""
JOBS_AT_ONCE = 100
"""A job of a week has 2,000 measured intervals."""
DERIVED = "counters"
"""The source of step times that are derived from GPU and fabric: they count where nothing else was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedJobs:
    """The jobs of a time span.

    Parameters
    ----------
    jobs
        Those that were predicted and measured.
    predicted
        Number of those that were predicted.
    """

    jobs: tuple[ComparedJob, ...]
    predicted: int


def read_compared_jobs(
    engine: Engine, *, since: datetime, cluster: str | None = None, user: str | None = None
) -> ComparedJobs:
    """Return the jobs that were submitted since a time, the last first.

    Parameters
    ----------
    cluster, user
        Only those of this cluster, and of this user.

    Raises
    ------
    StoreError
        The store does not answer.
    """
    predicted = find_predicted_jobs(engine, since=since, cluster=cluster, user=user)
    compared: list[ComparedJob] = []
    for start in range(0, len(predicted), JOBS_AT_ONCE):
        by_cluster: dict[str, list[JobSeen]] = defaultdict(list)
        for job in predicted[start : start + JOBS_AT_ONCE]:
            by_cluster[job.cluster].append(job)
        for name, jobs in by_cluster.items():
            outcomes = _read_outcomes(engine, name, jobs, since)
            compared += [result for job in jobs if (result := _compare(job, outcomes)) is not None]
    return ComparedJobs(jobs=tuple(compared), predicted=len(predicted))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcomes:
    """What the store has of some jobs, by Slurm's id, and of their scripts, by hash."""

    intervals: Mapping[str, Sequence[StepInterval]] = field(default_factory=dict)
    used: Mapping[str, Sequence[JobUsed]] = field(default_factory=dict)
    incidents: Mapping[str, Sequence[Incident]] = field(default_factory=dict)
    plans: Mapping[str, Sequence[StoredPlan]] = field(default_factory=dict)


def _read_outcomes(engine: Engine, cluster: str, jobs: Sequence[JobSeen], since: datetime) -> _Outcomes:
    """Return what the store has of some jobs of one cluster."""
    names = list(dict.fromkeys(job.job for job in jobs))
    hashes = list(dict.fromkeys(job.script_hash for job in jobs if job.script_hash))
    outcomes: tuple[dict[str, list[Any]], ...] = (defaultdict(list), defaultdict(list), defaultdict(list))
    rows: tuple[Iterable[StepInterval | JobUsed | Incident], ...] = (
        find_step_intervals(engine, cluster, names, since),
        find_used(engine, cluster=cluster, jobs=names),
        find_incidents(engine, cluster, names),
    )
    for by_job, of_jobs in zip(outcomes, rows, strict=True):
        for row in of_jobs:
            by_job[row.job].append(row)
    plans: dict[str, list[StoredPlan]] = defaultdict(list)
    for plan in find_stored_plans(engine, cluster, hashes):
        plans[plan.script_hash].append(plan)
    return _Outcomes(intervals=outcomes[0], used=outcomes[1], incidents=outcomes[2], plans=plans)


def _compare(job: JobSeen, outcomes: _Outcomes) -> ComparedJob | None:
    """Return one job with its comparisons; ``None`` where nothing was measured."""
    intervals = [interval for interval in outcomes.intervals.get(job.job, ()) if _is_of_run(interval, job)]
    used = next((row for row in outcomes.used.get(job.job, ()) if row.submitted_at == job.submitted_at), None)
    document = _find_document(job, outcomes.plans.get(job.script_hash or "", ()))
    step_s = _measure_step_s(intervals)
    memory_bytes = _measure_memory_bytes(job, used, intervals)
    time = _build_comparison(job.predicted_step_s, step_s, document, "time", "step_s")
    memory = _build_comparison(job.predicted_memory_bytes, memory_bytes, document, "memory", "total_bytes")
    if time is None and memory is None:
        return None
    incidents = [incident for incident in outcomes.incidents.get(job.job, ()) if incident.at >= job.submitted_at]
    gpu = _read_text(document, "cluster", "gpu") or (used.gpu_type if used is not None else None)
    return ComparedJob(
        job=job.job,
        submitted_at=job.submitted_at.astimezone(UTC),
        user=job.user or "",
        account=job.account or "",
        name=job.name or "",
        framework=_read_text(document, "workload", "framework") or job.framework or UNKNOWN,
        gpu=gpu or UNKNOWN,
        kind=_read_text(document, "prediction", "kind") or "",
        reason=next((incident.text for incident in incidents if incident.text), ""),
        is_held_up=any(not incident.cause or incident.cause in FAULTS_OF_A_RUN for incident in incidents),
        time=time,
        memory=memory,
    )


def _is_of_run(interval: StepInterval, job: JobSeen) -> bool:
    """Return whether an interval is of this submission of the job."""
    begins = interval.until_at > (job.started_at or job.submitted_at)
    return begins and (job.ended_at is None or interval.from_at < job.ended_at)


def _measure_step_s(intervals: Sequence[StepInterval]) -> float | None:
    """Return the step time by the source with the most intervals; derived values only where there are no others."""
    by_source: dict[str, list[MeasuredSteps]] = defaultdict(list)
    for interval in intervals:
        if interval.step_s:
            by_source[interval.source].append(MeasuredSteps(step_s=interval.step_s, steps=interval.steps))
    source = max(by_source, key=lambda name: (not name.startswith(DERIVED), len(by_source[name])), default=None)
    return compute_typical_step_s(by_source[source]) if source is not None else None


def _measure_memory_bytes(job: JobSeen, used: JobUsed | None, intervals: Sequence[StepInterval]) -> float | None:
    """Return the memory peak of a job that worked until it ended; ``None`` for others."""
    if job.state not in WHOLE_STATES:
        return None
    if used is not None and used.memory_peak_bytes and (used.observed_s or 0.0) >= MIN_OBSERVED_S:
        return used.memory_peak_bytes
    return max((interval.memory_peak_bytes for interval in intervals if interval.memory_peak_bytes), default=None)


def _find_document(job: JobSeen, plans: Sequence[StoredPlan]) -> Mapping[str, Any]:
    """Return the last advice with a plan that was given on a job's script before it was submitted; else nothing."""
    for plan in plans:
        lead = job.submitted_at - plan.at
        is_timely = -ADVICE_AFTER <= lead <= ADVICE_BEFORE
        if is_timely and isinstance(plan.document, Mapping) and isinstance(plan.document.get("workload"), Mapping):
            return plan.document
    return {}


def _build_comparison(
    predicted: float | None, measured: float | None, document: Mapping[str, Any], table: str, name: str
) -> Comparison | None:
    """Return a comparison, with the range of the stored advice; ``None`` where one of the two is not known."""
    if not predicted or not measured:
        return None
    values = document.get(table)
    entry = values.get(name) if isinstance(values, Mapping) else None
    values_of_range = [entry.get(bound) for bound in ("low", "expected", "high")] if isinstance(entry, Mapping) else []
    bounds = [float(bound) for bound in values_of_range if isinstance(bound, int | float)]
    if len(bounds) < 3 or not math.isclose(bounds[1], predicted, rel_tol=SAME_PREDICTION):
        return Comparison(predicted=predicted, measured=measured)
    return Comparison(predicted=predicted, measured=measured, low=bounds[0], high=bounds[2])


def _read_text(document: Mapping[str, Any], table: str, name: str) -> str | None:
    """Return a text of a document that a user's script may have filled; ``None`` where it is none."""
    values = document.get(table)
    value = values.get(name) if isinstance(values, Mapping) else None
    return value if isinstance(value, str) and value else None

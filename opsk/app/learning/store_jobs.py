"""Selects jobs of the site's store that a calibration can use: with advice, steady, and undisturbed."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from opsk.app.inputs.named_inputs import resolve_cluster
from opsk.calibration.learning.evidence import MeasuredJob
from opsk.calibration.runs.run_writer import (
    COLUMNS,
    MIN_INTERVALS,
    MIN_STEPS,
    MeasuredInterval,
    build_row_from_advice,
    compute_steady_step_s,
)
from opsk.calibration.runs.runs import Run, Runs, parse_runs
from opsk.diagnosis.losses.values import FAULTS_OF_A_RUN
from opsk.errors import InputError, OpskError
from opsk.hardware.spec import ClusterSpec
from opsk.history.runs import MIN_OBSERVED_S, WHOLE_STATES
from opsk.hostlist import expand

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from opsk.store.records.failures import FailureSeen
    from opsk.store.records.jobs import JobSeen
    from opsk.store.records.outcomes import StepInterval
    from opsk.store.records.reports import Report
    from opsk.store.records.use import JobUsed

MAX_JOBS = 10_000
MAX_ADVICE = 20
MAX_FAILURES = 100_000
MAX_LOSSES = 100_000
_MIN_LOST_SHARE = 0.05
"""Part of the step from which a cause keeps a job from teaching [ratio]."""
_FIRST_LINE = 2
"""Line of the first row of a table, below its header."""
_FAILED = frozenset({"FAILED", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL", "DEADLINE"})
"""Final states of jobs that did not run well."""


@dataclass(frozen=True, kw_only=True)
class StoreJobs:
    """The jobs of a store that a calibration can use.

    Parameters
    ----------
    runs
        As rows of a table of runs.
    jobs
        The same jobs with their owners, and their peaks of memory.
    ended_at
        When each of ``jobs`` ended, or was last seen.
    left_out
        Number of other jobs, by reason.
    """

    runs: Runs
    jobs: tuple[MeasuredJob, ...]
    ended_at: tuple[datetime, ...]
    left_out: Mapping[str, int]

    def describe_left_out(self) -> str:
        """Return the reasons why jobs were left out, the most frequent first; empty where none was."""
        return ", ".join(f"{count} {why}" for why, count in Counter(self.left_out).most_common())


def require_jobs(jobs: StoreJobs) -> StoreJobs:
    """Return the jobs of a store.

    Raises
    ------
    InputError
        There is none.
    """
    if not jobs.runs.runs and not jobs.runs.unpredictable:
        reasons = jobs.describe_left_out()
        raise InputError(
            "the store has no job that was advised, steady and without failure" + (f": {reasons}" if reasons else ""),
            hint="opsk top --record fills it; opsk losses --as-run adds a job by its logs",
        )
    return jobs


@dataclass(slots=True)
class _Selected:
    """The row of a selected job, and what is learned beyond it."""

    row: dict[str, str]
    seen: JobSeen
    step_s: float | None
    peak_bytes: float | None

    @property
    def ended_at(self) -> datetime:
        """When it ended, or was last seen."""
        return self.seen.ended_at or self.seen.at


def read_store_jobs(
    engine: Engine, *, since: datetime | None = None, new_since: datetime | None = None, with_memory: bool = True
) -> StoreJobs:
    """Return the jobs of the site's store that are suitable for calibration; there may be none.

    Parameters
    ----------
    since
        Only jobs submitted from then on.
    new_since
        Jobs that ended later are new.
    with_memory
        Whether jobs count whose memory alone was measured.

    Raises
    ------
    StoreError
        The store does not answer.
    """
    left_out: Counter[str] = Counter()
    selected = _select(engine, left_out, since=since, with_memory=with_memory)
    stream = io.StringIO()
    writer = csv.DictWriter(stream, fieldnames=COLUMNS, restval="")
    writer.writeheader()
    writer.writerows(item.row for item in selected)
    runs = parse_runs(stream.getvalue(), origin="the store")
    items = [selected[run.line - _FIRST_LINE] for run in runs.runs]  # a requeued job has several rows of one id
    jobs = tuple(_build_job(run, item, new_since) for run, item in zip(runs.runs, items, strict=True))
    ended_at = tuple(item.ended_at for item in items)
    return StoreJobs(runs=runs, jobs=jobs, ended_at=ended_at, left_out=left_out)


def _build_job(run: Run, item: _Selected, new_since: datetime | None) -> MeasuredJob:
    return MeasuredJob(
        id=item.seen.job,
        model=run.model,
        plan=run.plan,
        cluster=run.cluster,
        owner=item.seen.user or "",
        step_s=item.step_s if run.is_time_scored else None,
        peak_bytes=item.peak_bytes,
        assumed=frozenset(entry.field for entry in run.assumed),
        is_new=new_since is not None and item.ended_at > new_since,
    )


def select_rows(
    engine: Engine, left_out: Counter[str] | None = None, *, since: datetime | None = None, with_memory: bool = False
) -> list[dict[str, str]]:
    """Return a row for each suitable job, the last submitted first.

    Parameters
    ----------
    left_out
        Counts the others, by reason.
    """
    counted = Counter() if left_out is None else left_out
    return [item.row for item in _select(engine, counted, since=since, with_memory=with_memory)]


def _select(engine: Engine, left_out: Counter[str], *, since: datetime | None, with_memory: bool) -> list[_Selected]:
    from opsk.store.records.jobs import find_jobs

    seen = find_jobs(engine, since=since, limit=MAX_JOBS)
    context = _read_context(engine, seen)
    selected = []
    for job in seen:
        item = _select_job(engine, job, context, with_memory=with_memory)
        if isinstance(item, str):
            left_out[item] += 1
        else:
            selected.append(item)
    return selected


@dataclass(kw_only=True)
class _Context:
    """What disturbed jobs, and what they used: read once for all jobs."""

    by_node: Mapping[str, Sequence[FailureSeen]]
    failed_jobs: frozenset[tuple[str, str]]
    losses: Mapping[tuple[str, str], str]
    used: Mapping[tuple[str, str, datetime], JobUsed]
    intervals: Mapping[tuple[str, str], Sequence[StepInterval]]
    advice: dict[tuple[str, str], Mapping[str, Any] | None] = field(default_factory=dict)
    clusters: dict[str | None, ClusterSpec | None] = field(default_factory=dict)


def _read_context(engine: Engine, seen: Sequence[JobSeen]) -> _Context:
    from opsk.store.records.failures import find_failures
    from opsk.store.records.outcomes import LOSSES
    from opsk.store.records.reports import find_reports
    from opsk.store.records.use import find_used

    since = min((job.started_at or job.submitted_at for job in seen), default=None)
    by_node: defaultdict[str, list[FailureSeen]] = defaultdict(list)
    failed: set[tuple[str, str]] = set()
    for failure in find_failures(engine, limit=MAX_FAILURES):
        if failure.job:
            failed.add((failure.cluster, failure.job))
        if failure.node and failure.cleared_at != failure.at:
            by_node[failure.node].append(failure)
    losses = {
        (report.cluster, report.job): cause
        for report in find_reports(engine, report=LOSSES, since=since, limit=MAX_LOSSES)
        if (cause := _find_slowing_cause(report))
    }
    return _Context(
        by_node=by_node,
        failed_jobs=frozenset(failed),
        losses=losses,
        intervals=_read_intervals(engine, seen),
        used={(use.cluster, use.job, use.submitted_at): use for use in find_used(engine, since=since)},
    )


def _select_job(engine: Engine, job: JobSeen, context: _Context, *, with_memory: bool) -> _Selected | str:
    """Return a suitable job, or the reason why it is left out."""
    if not job.script_hash:
        return "without advice"
    step_s = compute_steady_step_s(_select_stretches(job, context.intervals.get((job.cluster, job.job), ())))
    use = context.used.get((job.cluster, job.job, job.submitted_at))
    peak_bytes = _get_peak(use) if with_memory else None
    if step_s is None and peak_bytes is None:
        return f"not steady over {MIN_INTERVALS + 1} measured intervals and {MIN_STEPS} steps"
    if why := _find_disturbance(job, use, context):
        return why
    document = _find_document(engine, job, context)
    if document is None:
        return "without a plan in the stored advice"
    named = document.get("cluster")
    name = named.get("name") if isinstance(named, Mapping) else None
    name = name if isinstance(name, str) else None
    if name not in context.clusters:
        context.clusters[name] = _find_cluster(name)
    cluster = context.clusters[name]
    if cluster is None:
        return "whose cluster is not known here"
    row = build_row_from_advice(document, cluster, name=f"{job.cluster}-{job.job}", step_s=step_s, gpus=job.gpus)
    one_line = {name: " ".join(text.split()) for name, text in row.items()}
    return _Selected(row=one_line, seen=job, step_s=step_s, peak_bytes=peak_bytes)


def _get_peak(use: JobUsed | None) -> float | None:
    """Return the peak of a job's memory; ``None`` where it is not that of the whole program."""
    if use is None or not use.memory_peak_bytes or (use.observed_s or 0.0) < MIN_OBSERVED_S:
        return None
    return use.memory_peak_bytes if use.state in WHOLE_STATES else None


def _find_disturbance(job: JobSeen, use: JobUsed | None, context: _Context) -> str:
    """Return why a job did not run well; empty where nothing is known."""
    if (job.cluster, job.job) in context.failed_jobs or job.state in _FAILED:
        return "with a failure"
    if cause := context.losses.get((job.cluster, job.job)):
        return f"slowed by {cause.replace('_', ' ')}"
    # Where all seem idle while steps were measured, their activity is not known.
    if use is not None and use.idle_gpus and use.idle_gpus != use.gpus:
        return "with idle GPUs"
    if any(_overlaps(failure, job) for node in _list_nodes(job) for failure in context.by_node.get(node, ())):
        return "on a node with a failure"
    return ""


def _list_nodes(job: JobSeen) -> tuple[str, ...]:
    try:
        return expand(job.node_list or "")
    except OpskError:
        return ()


def _overlaps(failure: FailureSeen, job: JobSeen) -> bool:
    """Return whether a part of a node was broken while a job ran there."""
    if failure.cluster != job.cluster:
        return False
    began, ended = job.started_at or job.submitted_at, job.ended_at or datetime.now(UTC)
    return failure.at < ended and (failure.cleared_at is None or failure.cleared_at > began)


def _find_document(engine: Engine, job: JobSeen, context: _Context) -> Mapping[str, Any] | None:
    """Return the stored advice on a job's script that includes its workload; advice repeated at submit does not."""
    from opsk.store.records.advice import find_advice

    key = (job.cluster, job.script_hash or "")
    if key not in context.advice:
        given = find_advice(engine, cluster=job.cluster, script_hash=job.script_hash, limit=MAX_ADVICE)
        document = next((item.document for item in given if _has_plan(item.document)), None)
        context.advice[key] = document if isinstance(document, Mapping) else None
    return context.advice[key]


def _find_cluster(name: str | None) -> ClusterSpec | None:
    """Return the cluster of the advice: the site's where the name matches, else a catalogue cluster."""
    wrong: list[str] = []
    try:
        site = resolve_cluster(None, wrong)
        return site if site is not None and name in (None, site.name) else resolve_cluster(name, wrong)
    except OpskError:
        return None


def _has_plan(document: object) -> bool:
    """Return whether advice includes its workload."""
    return isinstance(document, Mapping) and isinstance(document.get("workload"), Mapping)


def _read_intervals(engine: Engine, seen: Sequence[JobSeen]) -> dict[tuple[str, str], list[StepInterval]]:
    """Return the measured intervals of all jobs, by cluster and job."""
    from opsk.store.records.outcomes import find_step_intervals

    intervals: defaultdict[tuple[str, str], list[StepInterval]] = defaultdict(list)
    for cluster in {job.cluster for job in seen}:
        members = [job for job in seen if job.cluster == cluster]
        since = min(job.started_at or job.submitted_at for job in members)
        for interval in find_step_intervals(engine, cluster, sorted({job.job for job in members}), since):
            intervals[cluster, interval.job].append(interval)
    return intervals


def _select_stretches(job: JobSeen, intervals: Sequence[StepInterval]) -> list[MeasuredInterval]:
    """Return the measured intervals of one run of a job, from the source with the most."""
    began = job.started_at or job.submitted_at
    by_source: defaultdict[str, list[MeasuredInterval]] = defaultdict(list)
    for item in intervals:
        is_of_run = item.until_at > began and (job.ended_at is None or item.from_at < job.ended_at)
        if is_of_run and item.step_s is not None and item.steps:
            by_source[item.source].append(MeasuredInterval(steps=item.steps, step_s=item.step_s))
    return max(by_source.values(), key=len, default=[])


def _find_slowing_cause(report: Report) -> str:
    """Return the largest cause in a report on lost time that keeps a job from teaching; empty where there is none."""
    try:
        findings = [(float(item["share"]), str(item["cause"])) for item in json.loads(report.content)["findings"]]
    except (ValueError, TypeError, KeyError, RecursionError):
        findings = [(1.0, report.root_cause or "")]
    slowing = [(share, cause) for share, cause in findings if cause in FAULTS_OF_A_RUN and share >= _MIN_LOST_SHARE]
    return max(slowing, default=(0.0, ""))[1]

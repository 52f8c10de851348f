"""Selects jobs of the site's store for calibration: with advice, steady, and without a failure."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from opsk.app.inputs.named_inputs import resolve_cluster
from opsk.app.site_store import open_site_store
from opsk.calibration.runs.run_writer import (
    COLUMNS,
    MIN_INTERVALS,
    MIN_STEPS,
    MeasuredInterval,
    build_advised_row,
    compute_steady_step_s,
)
from opsk.calibration.runs.runs import Runs, parse_runs
from opsk.errors import InputError, OpskError
from opsk.hardware.spec import ClusterSpec
from opsk.text import escape

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from opsk.store.records.jobs import JobSeen

MAX_JOBS = 10_000
MAX_ADVICE = 20


def read_store_runs() -> Runs:
    """Return the jobs of the site's store that are suitable for calibration.

    Raises
    ------
    InputError
        There is none.
    StoreError
        The store does not answer.
    """
    engine = open_site_store(writing=False)
    left_out: Counter[str] = Counter()
    rows = select_rows(engine, left_out)
    reasons = ", ".join(f"{count} {why}" for why, count in left_out.most_common())
    if not rows:
        raise InputError(
            "the store has no job that was advised, steady and without failure" + (f": {reasons}" if reasons else ""),
            hint="opsk top --record fills it; opsk losses --as-run adds a job by its logs",
        )
    stream = io.StringIO()
    writer = csv.DictWriter(stream, fieldnames=COLUMNS, restval="")
    writer.writeheader()
    writer.writerows(rows)
    runs = parse_runs(stream.getvalue(), origin="the store")
    click.echo(
        f"opsk: {len(runs.runs)} jobs of the store count" + (f"; left out: {reasons}" if reasons else ""), err=True
    )
    for run in runs.unpredictable:
        click.echo(escape(f"opsk: job {run.id} of the store cannot be predicted: {run.why}"), err=True)
    return runs


def select_rows(engine: Engine, left_out: Counter[str] | None = None) -> list[dict[str, str]]:
    """Return a row for each suitable job, the last submitted first.

    Parameters
    ----------
    left_out
        Counts the others, by reason.
    """
    from opsk.store.records.jobs import find_jobs

    rows: list[dict[str, str]] = []
    for job in find_jobs(engine, limit=MAX_JOBS):
        row = _build_row(engine, job)
        if not isinstance(row, str):
            rows.append(row)
        elif left_out is not None:
            left_out[row] += 1
    return rows


def _build_row(engine: Engine, job: JobSeen) -> dict[str, str] | str:
    """Return the row of a job, or the reason why it is left out."""
    from opsk.store.records.advice import find_advice
    from opsk.store.records.failures import find_failures

    if not job.script_hash:
        return "without advice"
    step_s = compute_steady_step_s(_read_stretches(engine, job))
    if step_s is None:
        return f"not steady over {MIN_INTERVALS + 1} measured intervals and {MIN_STEPS} steps"
    if find_failures(engine, cluster=job.cluster, job=job.job, limit=1):
        return "with a failure"
    given = find_advice(engine, cluster=job.cluster, script_hash=job.script_hash, limit=MAX_ADVICE)
    document = next((item.document for item in given if _has_plan(item.document)), None)
    if not isinstance(document, Mapping):
        return "without a plan in the stored advice"
    named = document.get("cluster")
    name = named.get("name") if isinstance(named, Mapping) else None
    cluster = _find_cluster(name if isinstance(name, str) else None)
    if cluster is None:
        return "whose cluster is not known here"
    return build_advised_row(document, cluster, name=f"{job.cluster}-{job.job}", step_s=step_s, gpus=job.gpus)


def _find_cluster(name: str | None) -> ClusterSpec | None:
    """Return the cluster of the advice: the site's where the name matches, else a catalogue cluster."""
    wrong: list[str] = []
    try:
        site = resolve_cluster(None, wrong)
        return site if site is not None and name in (None, site.name) else resolve_cluster(name, wrong)
    except OpskError:
        return None


def _has_plan(document: object) -> bool:
    """Return whether advice includes its workload; advice repeated at submit does not."""
    return isinstance(document, Mapping) and isinstance(document.get("workload"), Mapping)


def _read_stretches(engine: Engine, job: JobSeen) -> list[MeasuredInterval]:
    """Return the measured intervals of one run of a job, from the source with the most."""
    from opsk.store.records.measurements import find_measured

    by_source: dict[str, list[Any]] = {}
    for interval in find_measured(
        engine, cluster=job.cluster, job=job.job, since=job.started_at or job.submitted_at, until=job.ended_at
    ):
        if interval.step_s is not None and interval.steps:
            by_source.setdefault(interval.source, []).append(interval)
    longest = max(by_source.values(), key=len, default=[])
    return [MeasuredInterval(steps=interval.steps, step_s=interval.step_s) for interval in longest]

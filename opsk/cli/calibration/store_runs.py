"""Which jobs of the site's store ran well enough to calibrate with? Advised, steady, and without a failure."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from opsk.app.inputs.cluster import chosen_cluster
from opsk.app.store_opening import site_store
from opsk.calibration.runs.advised_runs import FEWEST_INTERVALS, FEWEST_STEPS, Stretch, advised_row, steady_step_s
from opsk.calibration.runs.runs import Runs, parse_runs
from opsk.calibration.runs.written_runs import COLUMNS
from opsk.errors import InputError, OpskError
from opsk.hardware.spec import ClusterSpec
from opsk.text import escape

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from opsk.store.records.jobs import JobSeen

MOST_JOBS = 10_000
MOST_ADVICE = 20


def runs_of_store() -> Runs:
    """Return the jobs of the site's store that are fit to calibrate with.

    Raises
    ------
    InputError
        There is none.
    StoreError
        The store does not answer.
    """
    engine = site_store(writing=False)
    left_out: Counter[str] = Counter()
    rows = rows_of(engine, left_out)
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


def rows_of(engine: Engine, left_out: Counter[str] | None = None) -> list[dict[str, str]]:
    """Return a row for each job that is fit to calibrate with, the last submitted first.

    Parameters
    ----------
    left_out
        Counts the others, by reason.
    """
    from opsk.store.records.jobs import jobs

    found: list[dict[str, str]] = []
    for job in jobs(engine, limit=MOST_JOBS):
        row = _row(engine, job)
        if not isinstance(row, str):
            found.append(row)
        elif left_out is not None:
            left_out[row] += 1
    return found


def _row(engine: Engine, job: JobSeen) -> dict[str, str] | str:
    """Return the row of a job, or why there is none."""
    from opsk.store.records.advice import advice
    from opsk.store.records.failures import failures

    if not job.script_hash:
        return "without advice"
    step_s = steady_step_s(_stretches(engine, job))
    if step_s is None:
        return f"not steady over {FEWEST_INTERVALS + 1} measured intervals and {FEWEST_STEPS} steps"
    if failures(engine, cluster=job.cluster, job=job.job, limit=1):
        return "with a failure"
    given = advice(engine, cluster=job.cluster, script_hash=job.script_hash, limit=MOST_ADVICE)
    document = next((each.document for each in given if _has_plan(each.document)), None)
    if not isinstance(document, Mapping):
        return "whose plan was not kept with the advice"
    named = document.get("cluster")
    name = named.get("name") if isinstance(named, Mapping) else None
    cluster = _cluster(name if isinstance(name, str) else None)
    if cluster is None:
        return "whose cluster is not known here"
    return advised_row(document, cluster, name=f"{job.cluster}-{job.job}", step_s=step_s, gpus=job.gpus)


def _cluster(name: str | None) -> ClusterSpec | None:
    """Return the cluster that advice was for: the site's own where it is called so, else one of the catalogue."""
    wrong: list[str] = []
    try:
        site = chosen_cluster(None, wrong)
        return site if site is not None and name in (None, site.name) else chosen_cluster(name, wrong)
    except OpskError:
        return None


def _has_plan(document: object) -> bool:
    """Tell whether a piece of advice says of what job it is: what is said again at submit does not."""
    return isinstance(document, Mapping) and isinstance(document.get("workload"), Mapping)


def _stretches(engine: Engine, job: JobSeen) -> list[Stretch]:
    """Return the measured intervals of one run of a job, by the source that tells most of them."""
    from opsk.store.records.measured import measured

    by_source: dict[str, list[Any]] = {}
    for each in measured(
        engine, cluster=job.cluster, job=job.job, since=job.started_at or job.submitted_at, until=job.ended_at
    ):
        if each.step_s is not None and each.steps:
            by_source.setdefault(each.source, []).append(each)
    told = max(by_source.values(), key=len, default=[])
    return [Stretch(steps=each.steps, step_s=each.step_s) for each in told]

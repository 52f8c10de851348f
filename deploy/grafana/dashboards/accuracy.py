"""Builds the dashboard of accuracy: how far step time and memory of jobs were from what opsk predicted at sbatch."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as models

from deploy.grafana.dashboards import style
from deploy.grafana.dashboards.style import BAD, GOOD, OF_GPU, WATCH, Look, Query, Steps

UID = "opsk-accuracy"
_CLUSTER = 'cluster=~"$cluster"'
_BY_JOB = "on (cluster, job)"
_ERROR_STEPS: Steps = ((None, GOOD), (0.1, WATCH), (0.25, BAD))
_WINDOW = "$__range"
_NO_JOBS = "no job measured"


def make() -> models.Dashboard:
    """Return the dashboard."""
    text = (
        "How good predictions were here: each job once, its median step time and its highest memory in the time range."
    )
    page = style.new(UID, "Accuracy", text, nodes=False).time("now-7d", "now")
    return style.fill(page, [*_figures(), *_over_time(), *_groups(), *_jobs()])


def _time(window: str) -> str:
    """Return measured over predicted step time of each job: the median over a window."""
    return f"quantile_over_time(0.5, opsk:job_step:ratio_of_predicted{{{_CLUSTER}}}[{window}])"


def _memory(window: str) -> str:
    """Return measured over predicted memory of each job: the highest of a window."""
    return f"max_over_time(opsk:job_gpu_memory:ratio_of_predicted{{{_CLUSTER}}}[{window}])"


def _error(ratio: str) -> str:
    """Return the absolute error, predicted / measured - 1, as `opsk accuracy` has it."""
    return f"abs(1 / {ratio} - 1)"


def _last(selector: str) -> str:
    """Return what was said last of each series in the time range, of jobs that have ended as well."""
    return f"last_over_time({selector}[{_WINDOW}])"


def _figures() -> list[style.Panel | style.Row]:
    """Return the numbers at the top."""
    error = style.small("percentunit", steps=_ERROR_STEPS, when_empty=_NO_JOBS)
    return [
        style.row("Jobs of the time range"),
        style.number(
            "Jobs compared",
            "Jobs with a prediction in their record whose log was read. Fewer than ten say little.",
            style.small(when_empty="0"),
            Query(expr=f"count({_time(_WINDOW)})", instant=True),
            curve=False,
        ),
        style.number(
            "Step time: median error",
            "Half of the jobs were missed by no more than this. Large: opsk accuracy names the jobs and the reasons.",
            error,
            Query(expr=f"quantile(0.5, {_error(_time(_WINDOW))})", instant=True),
            curve=False,
        ),
        style.number(
            "Step time: nine in ten",
            "Nine in ten jobs were missed by no more than this. Far above the median: some jobs ran badly.",
            error,
            Query(expr=f"quantile(0.9, {_error(_time(_WINDOW))})", instant=True),
            curve=False,
        ),
        style.number(
            "Step time: bias",
            "Median of predicted / measured - 1. Below 0, jobs take longer than predicted: calibrate opsk with them.",
            style.small("percentunit", when_empty=_NO_JOBS),
            Query(expr=f"quantile(0.5, 1 / {_time(_WINDOW)} - 1)", instant=True),
            curve=False,
        ),
        style.number(
            "Memory: median error",
            "Half of the jobs were missed by no more than this. Jobs that have just begun have not taken it all.",
            error,
            Query(expr=f"quantile(0.5, {_error(_memory(_WINDOW))})", instant=True),
            curve=False,
        ),
        style.number(
            "Memory: nine in ten",
            "Nine in ten jobs were missed by no more than this. Large: verdicts on memory are unsure.",
            error,
            Query(expr=f"quantile(0.9, {_error(_memory(_WINDOW))})", instant=True),
            curve=False,
        ),
    ]


def _over_time() -> list[style.Panel | style.Row]:
    """Return the errors as they were day by day."""
    look = Look(unit="percentunit", width=12, when_empty=_NO_JOBS)
    return [
        style.row("Over time"),
        *(
            style.lines(
                f"{name}: error of the day before",
                "Of the jobs that ran in the day before each point. A step up: a new driver, release or kind of job.",
                look,
                Query(expr=f"quantile(0.5, {_error(ratio('1d'))})", legend="median"),
                Query(expr=f"quantile(0.9, {_error(ratio('1d'))})", legend="nine in ten"),
            )
            for name, ratio in (("Step time", _time), ("Memory", _memory))
        ),
    ]


def _groups() -> list[style.Panel | style.Row]:
    """Return the errors by GPU, framework and user."""
    look = Look(unit="percentunit", width=8, steps=_ERROR_STEPS, when_empty=_NO_JOBS)
    gpus = (
        f"{_last(f'opsk_job_gpu{{{_CLUSTER}}}')} * {OF_GPU} group_left (model) "
        f"max by (cluster, node, gpu, model) ({_last(f'opsk_gpu_info{{{_CLUSTER}}}')})"
    )
    members = {
        "GPU": ("model", f"group by (cluster, job, model) ({gpus})"),
        "framework": ("framework", f"group by (cluster, job, framework) ({_last(_job_series('opsk_training_info'))})"),
        "user": ("user", _users()),
    }
    return [
        style.row("Step time by group"),
        *(
            style.bars(
                f"Median error by {name}",
                f"Half of the jobs of a {name} were missed by no more. One far above the others: calibrate for it.",
                look,
                Query(
                    expr=f"sort_desc(topk(10, quantile by ({label}) (0.5, "
                    f"{_error(_time(_WINDOW))} * {_BY_JOB} group_right () {jobs})))",
                    legend=f"{{{{{label}}}}}",
                    instant=True,
                ),
            )
            for name, (label, jobs) in members.items()
        ),
    ]


def _job_series(metric: str, more: str = "") -> str:
    return f"{metric}{{{_CLUSTER}{more}}}"


def _users() -> str:
    """Return one series for each job and its user."""
    named = _job_series("opsk_job_info", ',user!=""')
    return f"group by (cluster, job, user) ({_last(named)})"


def _jobs() -> list[style.Panel | style.Row]:
    """Return the jobs that were missed by the most."""
    worst = f"topk(10, {_error(_time(_WINDOW))})"
    return [
        style.row("Jobs missed by the most"),
        style.listing(
            "Worst ten jobs by step time",
            "Open a job by its number: its heat maps and stragglers mostly show why it was slower than predicted.",
            Look(unit="percentunit", width=24, height=10, when_empty=_NO_JOBS),
            [
                Query(expr=f"{worst} * {_BY_JOB} group_left (user) {_users()} or {worst}", instant=True),
                Query(expr=f"{_time(_WINDOW)} and {_BY_JOB} {worst}", instant=True),
            ],
            columns={
                "job": "Job",
                "user": "User",
                "Value #A": "Error",
                "Value #B": "Measured / predicted",
            },
            links={"Job": ("Open the job", style.to_job("${__value.raw}"))},
            sort="Error",
        ),
    ]

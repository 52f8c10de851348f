"""Implements the command ``opsk top``, and its ``--once`` and ``--json`` output without a screen."""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from typing import TYPE_CHECKING

import click
from rich.cells import cell_len, set_cell_size

from opsk.app.site_store import find_store_url
from opsk.config import load_site
from opsk.errors import InputError, SlurmError, UnavailableError
from opsk.slurm.adapter import ChosenClient, slurm_client
from opsk.slurm.records import JobRecord
from opsk.text import escape, format_bytes, format_duration, format_json
from opsk.workload.advice_record import AdviceRecord
from opsk_tui.data.values import Feed, FeedState, JobView, SlurmJobs
from opsk_tui.screens.columns import COLUMNS, Column, fitting, format_plan, ordered, percent

if TYPE_CHECKING:
    from opsk_tui.data import feed_port

NO_JOBS = "No jobs are pending or running."
NO_JOBS_HINT = "What opsk predicts for a job shows here as soon as one is submitted."
_MAX_NODES_SHOWN = 64


def headline(state: FeedState, shown: int | None = None) -> str:
    """Return the jobs in one line: how many, by state, on how many GPUs, and how many of them with a prediction."""
    if state.taken_at is None:
        return "asking Slurm …"
    running = [job for job in state.jobs if job.record.is_active]
    pending = sum(job.record.state == "PENDING" for job in state.jobs)
    advised = sum(job.advice is not None for job in state.jobs)
    gpus = sum(job.record.gpus for job in running)
    parts = [f"{len(running)} running on {gpus} GPUs", f"{pending} pending", f"{advised} with a prediction"]
    if shown is not None and shown != len(state.jobs):
        parts.insert(0, f"{shown} of {len(state.jobs)} shown")
    return " · ".join(parts)


def format_age(age_s: float | None) -> str:
    """Return the age of the data, ``now`` below two seconds."""
    if age_s is None:
        return "no data yet"
    return "now" if age_s < 2 else f"{format_duration(float(int(age_s)))} ago"


def format_problem(state: FeedState, age_s: float | None) -> str:
    """Return why Slurm did not answer, and the age of the shown data."""
    old = "nothing to show yet" if age_s is None else f"what is shown is of {format_age(age_s)}"
    hint = f" ({escape(state.hint)})" if state.hint else ""
    return f"Slurm does not answer: {escape(state.problem)}{hint}; {old}"


def advice_lines(job: JobView) -> list[tuple[str, str]]:
    """Return the prediction as pairs of a name and a value; one line says so when there is none."""
    advice = job.advice
    if advice is None:
        return [("prediction", "none: the job's comment carries no advice of opsk")]
    lines = [
        ("verdict", advice.verdict.value),
        ("chance to fit", advice.fit if advice.fit is None else percent(advice.fit)),
        ("memory", _format_memory(advice)),
        ("step time", None if advice.step_s is None else format_duration(advice.step_s)),
        ("tokens/s per GPU", advice.tokens_per_s_per_gpu),
        ("TFLOP/s per GPU", advice.tflops),
        ("MFU", advice.mfu if advice.mfu is None else percent(advice.mfu)),
        ("plan", format_plan(advice)),
        ("script hash", advice.hash),
    ]
    return [(name, f"{value:g}" if isinstance(value, float) else value) for name, value in lines if value is not None]


def _format_memory(advice: AdviceRecord) -> str | None:
    """Return the predicted memory and the capacity."""
    if advice.mem_bytes is None:
        return None
    used = format_bytes(advice.mem_bytes)
    if advice.mem_ratio is None or advice.capacity_bytes is None:
        return used
    return f"{used} of {format_bytes(advice.capacity_bytes)} per GPU ({percent(advice.mem_ratio)})"


def record_lines(job: JobRecord) -> list[tuple[str, str]]:
    """Return the fields of a job's record as pairs of a name and a value, without empty fields."""
    lines = []
    for field in fields(job):
        value = getattr(job, field.name)
        if value not in (None, "", (), {}):
            is_duration = field.name.endswith("_s")
            shown = format_duration(float(value)) if is_duration else _format_value(value)
            lines.append((field.name.removesuffix("_s").replace("_", " "), escape(shown)))
    return lines


def _format_value(value: object) -> str:
    """Return one value of a record as text."""
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="seconds")
    if isinstance(value, tuple):
        more = f" and {len(value) - _MAX_NODES_SHOWN} more" if len(value) > _MAX_NODES_SHOWN else ""
        return ", ".join(map(str, value[:_MAX_NODES_SHOWN])) + more
    return str(value)


def render_table(jobs: Sequence[JobView], columns: Sequence[Column]) -> str:
    """Return the jobs as lines of plain text, one a job, each column as wide as it needs."""
    if not jobs:
        return NO_JOBS
    rows = [[column.title for column in columns], *([column.cell(job).text for column in columns] for job in jobs)]
    widths = [max(cell_len(row[index]) for row in rows) for index in range(len(columns))]
    lines = []
    for row in rows:
        padded = [
            " " * (width - cell_len(text)) + text if column.right else set_cell_size(text, width)
            for text, width, column in zip(row, widths, columns, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


@click.command()
@click.option("--once", is_flag=True, help="Print the table of jobs on stdout and end.")
@click.option("--json", "as_json", is_flag=True, help="Print the jobs as one JSON document on stdout and end.")
@click.option(
    "--interval",
    type=click.FloatRange(min=1, max=3600),
    metavar="SECONDS",
    help="Look at measured values this often.  [default: the site's]",
)
@click.option("--prometheus", metavar="URL", help="Instead of the site's; '' asks the exporters themselves.")
@click.option("--record", is_flag=True, help="Show nothing: keep jobs, measured intervals and failures in the store.")
@click.option("--every", "every_s", type=click.FloatRange(1, 86400), default=300.0, show_default=True, metavar="S",
              help="With --record: length of a measured interval.")  # fmt: skip
@click.option("--for", "for_s", type=click.FloatRange(0, 1e7), metavar="S", help="With --record: end after this time.")
def top(
    once: bool, as_json: bool, interval: float | None, prometheus: str | None, record: bool, every_s: float,
    for_s: float | None,
) -> None:  # fmt: skip
    """Show the cluster on one screen: every GPU, jobs measured against predicted, the fabric, failures.

    Keys stand in the last line, and ? tells all of them. Nothing is changed before the exact command was shown and
    confirmed. NO_COLOR and OPSK_ASCII=1 do without colour and without signs outside ASCII.

    With --record it is the service that fills the store (opsk-recorder.service): one a cluster, as the advisor's user.
    """
    if record:
        _record(prometheus, every_s, for_s)
    elif as_json or once:
        slurm = slurm_client()
        state = _ask_once(Feed(SlurmJobs(slurm)))
        if as_json:
            _print_json(state, slurm)
        else:
            click.echo(render_table(ordered(state.jobs), _select_columns()))
    elif not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InputError("opsk top needs a terminal", hint="--once prints the table, --json prints it for programs")
    else:
        _show(interval, prometheus)


def _record(prometheus: str | None, every_s: float, for_s: float | None) -> None:
    """Fill the store.

    Raises
    ------
    StoreError
        It is not installed, or cannot be opened.
    """
    find_store_url()
    from opsk_tui.data.recorder import record  # SQLModel and all sources come with it

    logging.basicConfig(level=logging.WARNING, format="opsk top: %(message)s")
    record(load_site(), prometheus=prometheus, every_s=every_s, for_s=for_s)


def _ask_once(feed: Feed) -> FeedState:
    """Query Slurm once.

    Raises
    ------
    SlurmError
        There is no answer.
    """
    state = feed.refresh()
    if state.problem:
        raise SlurmError(state.problem, hint=state.hint)
    return state


def _select_columns() -> tuple[Column, ...]:
    """Return the columns that fit into the terminal, or all for a file or a pipe."""
    return fitting(shutil.get_terminal_size().columns) if sys.stdout.isatty() else COLUMNS


def _print_json(state: FeedState, slurm: ChosenClient) -> None:
    """Print every job with its advice, and the Slurm adapter."""
    jobs = [{"job": job.record, "advice": job.advice} for job in ordered(state.jobs)]
    click.echo(format_json({"slurm": {"adapter": slurm.adapter.value, "why": slurm.why}, "jobs": jobs}))


def _show(interval_s: float | None, prometheus: str | None) -> None:
    """Open the screen.

    Raises
    ------
    UnavailableError
        Textual is not installed.
    """
    try:
        # Only the screen needs Textual: --once and --json start without it.
        from opsk_tui.app import TopApp
    except ModuleNotFoundError as error:
        raise UnavailableError(f"opsk top: {error}", hint="pip install 'opsk[tui]', or use --once") from error
    from opsk_tui.data.lazy_actions import LateActions
    from opsk_tui.data.lazy_feed import LateFeed

    site = load_site()

    def feed() -> feed_port.Feed:
        # Loading it takes longer than the first paint.
        from opsk_tui.data.feed import ClusterFeed

        return ClusterFeed(site, prometheus=prometheus, refresh_s=interval_s)

    TopApp(LateFeed(feed), actions=LateActions()).run()

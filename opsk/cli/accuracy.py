"""Implements ``opsk accuracy``: shows how good predictions have been at this site."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from opsk.app.site_store import open_site_store
from opsk.cli.document import echo_json
from opsk.config import load_site
from opsk.errors import ExitStatus, InputError
from opsk.text import escape, format_bytes, format_count, format_duration, to_json_values

_WIDTH_WITHOUT_TERMINAL = 120
_GROUPS = {"by_week": "week", "by_user": "user", "by_framework": "framework", "by_gpu": "GPU"}
_FIGURES = ("jobs", "median", "P90", "bias", "in range")


@click.command()
@click.option("--days", type=click.IntRange(1, 3650), default=90, show_default=True, metavar="N",
              help="Count the jobs that were submitted in the last N days.")  # fmt: skip
@click.option("--cluster", metavar="NAME", help="Count only jobs of this cluster, where several share the store.")
@click.option("--user", metavar="NAME", help="Count only jobs of this user.")
@click.option("--worst", type=click.IntRange(0, 1000), default=10, show_default=True, metavar="N",
              help="Number of jobs shown that were missed by the most.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
def accuracy(*, days: int, cluster: str | None, user: str | None, worst: int, as_json: bool) -> int:
    """Show how good opsk has been here: predicted against measured step time and GPU memory of the site's jobs.

    A job counts if its time or memory was predicted at sbatch, before it ran, and measured by the recorder (opsk top
    --record). Jobs that ran badly count too. Errors are predicted / measured - 1; the range is the one that advice
    showed.

    Jobs of other users are named as Slurm's PrivateData allows.

    Exit status: 0 an answer, even without jobs; 2 another user's jobs are hidden; 3 the store does not answer.
    """
    engine = open_site_store(writing=False)
    from opsk.app.accuracy.document import build_accuracy_document, find_reader
    from opsk.app.accuracy.fit import find_fit_since
    from opsk.app.accuracy.jobs import read_compared_jobs

    reader = find_reader()
    if user is not None and user != reader.user and not reader.sees_all:
        raise InputError("Slurm hides the jobs of other users from you", hint="leave out --user for all jobs together")
    since = datetime.now(UTC) - timedelta(days=days)
    compared = read_compared_jobs(engine, since=since, cluster=cluster, user=user)
    fit_since = find_fit_since(load_site())
    document = build_accuracy_document(compared, reader, since=since, worst=worst, fit_since=fit_since)
    if as_json:
        echo_json(document)
    else:
        print_accuracy(to_json_values(document), days=days)
    return ExitStatus.ANSWER


def print_accuracy(document: Mapping[str, Any], *, days: int) -> None:
    """Print the answer of ``opsk accuracy`` for people."""
    console = Console(highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console.width = _WIDTH_WITHOUT_TERMINAL
    console.print(Text(format_headline(document, days=days), style="bold"), soft_wrap=True)
    if not document["compared"]:
        return
    if document["is_few"]:
        console.print(Text("few jobs: these figures say little yet", style="yellow"), soft_wrap=True)
    console.print()
    rows = {"all jobs": document["overall"]}
    if document["fit"]["since"] is not None:
        rows["with this fit"] = document["fit"]
    console.print(_build_group_table("", rows))
    console.print(Text(_format_fit(document["fit"]), style="dim"), soft_wrap=True)
    for name, title in _GROUPS.items():
        console.print()
        console.print(_build_group_table(title, document[name]))
    if document["worst"]:
        console.print()
        console.print(_build_worst_table(document["worst"]))
    if document["hides_others"]:
        console.print(Text("jobs of other users are counted and not named (PrivateData)", style="dim"), soft_wrap=True)


def format_headline(document: Mapping[str, Any], *, days: int) -> str:
    """Return the first line: how many jobs count, or what is missing for any to count."""
    predicted, compared = document["predicted"], document["compared"]
    span = f"in the last {format_count(days, 'day')}"
    if not predicted:
        return (
            f"no job with a prediction {span}: the submit hooks write it into the job, and opsk top --record stores it"
        )
    if not compared:
        return (
            f"{format_count(predicted, 'job')} predicted {span}, and none measured: opsk top --record measures jobs "
            "whose logs or GPUs the exporters read"
        )
    return f"{compared:,} of {predicted:,} predicted jobs were measured {span}"


def _format_fit(fit: Mapping[str, Any]) -> str:
    """Return which fit predicts here, and since when."""
    if fit["since"] is None:
        return "this site predicts with no fit of its own jobs: opsk calibrate --learn makes one"
    since = datetime.fromisoformat(fit["since"])
    return f"this fit: learned here, in use since {since:%Y-%m-%d %H:%M} UTC"


def _build_plain_table() -> Table:
    return Table(box=None, padding=(0, 1), pad_edge=False)


def _build_group_table(title: str, groups: Mapping[str, Any]) -> Table:
    """Return a table with the figures of time and memory of each group."""
    table = _build_plain_table()
    table.add_column(Text(f"by {title}" if title else ""), min_width=16, max_width=24, overflow="fold")
    for quantity in ("time", "memory"):
        for name in _FIGURES:
            table.add_column(quantity if name == "jobs" else name, justify="right")
    for name, figures in groups.items():
        table.add_row(Text(escape(name)), *_format_figures(figures["time"]), *_format_figures(figures["memory"]))
    return table


def _format_figures(figures: Mapping[str, Any] | None) -> Sequence[str]:
    """Return number of jobs, errors, bias and coverage; dashes where nothing was compared."""
    if figures is None:
        return ["–"] * len(_FIGURES)
    coverage = figures["coverage"]
    return [
        str(figures["jobs"]),
        f"{figures['median_absolute_error']:.0%}",
        f"{figures['p90_absolute_error']:.0%}",
        f"{figures['median_error']:+.0%}",
        "–" if coverage is None else f"{coverage:.0%}",
    ]


def _build_worst_table(worst: Sequence[Mapping[str, Any]]) -> Table:
    """Return the table of the jobs that were missed by the most."""
    table = _build_plain_table()
    for name in ("worst", "user", "framework", "GPU", "what"):
        table.add_column(name)
    for name in ("predicted", "measured", "error"):
        table.add_column(name, justify="right")
    table.add_column("reason", overflow="fold")
    for missed in worst:
        format_value = format_duration if missed["quantity"] == "time" else format_bytes
        table.add_row(
            *(Text(escape(missed[name] or "–")) for name in ("job", "user", "framework", "gpu")),
            missed["quantity"],
            format_value(missed["predicted"]),
            format_value(missed["measured"]),
            f"{missed['error']:+.0%}",
            Text(escape(missed["reason"] or "not known")),
        )
    return table

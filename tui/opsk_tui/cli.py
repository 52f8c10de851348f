"""Implements the command ``opsk top``, and its ``--once`` and ``--json`` output without a screen."""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from opsk.app.site_store import find_store_url
from opsk.config import load_site
from opsk.errors import InputError, OpskError, SlurmError, UnavailableError
from opsk.slurm.adapter import ChosenClient, slurm_client
from opsk.text import format_json
from opsk_tui.job_table import COLUMNS, Column, JobWithAdvice, read_jobs, render_table, select_columns

if TYPE_CHECKING:
    from opsk_tui.data import feed_port


@click.command()
@click.option("--once", is_flag=True, help="Print the table of jobs on stdout and end.")
@click.option("--json", "as_json", is_flag=True, help="Print the jobs as one JSON document on stdout and end.")
@click.option(
    "--interval",
    type=click.FloatRange(min=1, max=3600),
    metavar="SECONDS",
    help="Refresh measured values this often.  [default: the site's]",
)
@click.option(
    "--prometheus", metavar="URL", help="Prometheus to query instead of the site's; '' queries the exporters."
)
@click.option("--record", is_flag=True, help="No screen: write jobs, measured intervals and failures to the store.")
@click.option("--every", "every_s", type=click.FloatRange(1, 86400), default=300.0, show_default=True, metavar="S",
              help="With --record: length of a measured interval.")  # fmt: skip
@click.option("--for", "for_s", type=click.FloatRange(0, 1e7), metavar="S", help="With --record: end after this time.")
def top(
    once: bool, as_json: bool, interval: float | None, prometheus: str | None, record: bool, every_s: float,
    for_s: float | None,
) -> None:  # fmt: skip
    """Show the cluster on one screen: every GPU, jobs measured against predicted, the fabric, failures.

    The last line lists the main keys, ? lists all of them. No command runs before you have seen and confirmed it.
    NO_COLOR and OPSK_ASCII=1 turn off colour and symbols outside ASCII.

    --record runs the service that fills the store (opsk-recorder.service): one per cluster, as the advisor's user.
    """
    if record:
        _record(prometheus, every_s, for_s)
    elif as_json or once:
        slurm = slurm_client()
        jobs = _ask_slurm(slurm)
        if as_json:
            _print_json(jobs, slurm)
        else:
            click.echo(render_table(jobs, _list_columns()))
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


def _ask_slurm(slurm: ChosenClient) -> list[JobWithAdvice]:
    """Return the jobs that Slurm reports.

    Raises
    ------
    SlurmError
        There is no answer.
    """
    try:
        return read_jobs(slurm)
    except OpskError as error:
        raise SlurmError(error.message, hint=error.hint) from error


def _list_columns() -> tuple[Column, ...]:
    """Return the columns that fit into the terminal, or all for a file or a pipe."""
    return select_columns(shutil.get_terminal_size().columns) if sys.stdout.isatty() else COLUMNS


def _print_json(jobs: Sequence[JobWithAdvice], slurm: ChosenClient) -> None:
    """Print every job with its advice, and the Slurm adapter."""
    rows = [{"job": job.record, "advice": job.advice} for job in jobs]
    click.echo(format_json({"slurm": {"adapter": slurm.adapter.value, "why": slurm.why}, "jobs": rows}))


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
    from opsk_tui.data.lazy_loading import LateActions, LateFeed

    site = load_site()

    def feed() -> feed_port.Feed:
        # Loading it takes longer than the first paint.
        from opsk_tui.data.feed import ClusterFeed

        return ClusterFeed(site, prometheus=prometheus, refresh_s=interval_s)

    TopApp(LateFeed(feed), actions=LateActions()).run()

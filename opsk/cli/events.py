"""Implements ``opsk events``: shows failing hardware, the affected jobs, and what to do."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from textwrap import wrap
from typing import Any

import click

from opsk.app.events import Snapshot, find_exporters, observe
from opsk.cli.document import echo_json
from opsk.config import load_site
from opsk.diagnosis.events.detection import NOTHING, Known, detect, sort_events
from opsk.diagnosis.events.observations import Event, Observations, Severity
from opsk.errors import ExitStatus, UnavailableError
from opsk.slurm.adapter import slurm_client
from opsk.slurm.client import SlurmClient
from opsk.text import escape, read_fields, to_json_values

WIDTH = 100
_MAX_LISTED = 4


@click.command()
@click.option("--exporter", "exporters", multiple=True, metavar="NODE[=URL]",
              help="An exporter to read; repeatable, and NODE may be a host list (n[0-7]).")  # fmt: skip
@click.option("--exporters", "file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="File of exporters to read: one NODE, NODE=URL or URL per line.")  # fmt: skip
@click.option("--slurm/--no-slurm", default=True, show_default=True,
              help="Ask Slurm for nodes that are down and for affected jobs.")  # fmt: skip
@click.option("--follow", is_flag=True, help="Keep reading, and print when a failure begins or ends.")
@click.option("--every", "every_s", type=click.FloatRange(0.2, 3600), default=5.0, show_default=True, metavar="S",
              help="With --follow: time between readings.")  # fmt: skip
@click.option("--for", "for_s", type=click.FloatRange(0, 1e7), metavar="S", help="With --follow: stop after this time.")
@click.option("--json", "as_json", is_flag=True,
              help="Print one JSON document on stdout; with --follow one line per change.")  # fmt: skip
def events(
    exporters: tuple[str, ...], file: Path | None, slurm: bool, follow: bool, every_s: float, for_s: float | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Show failing GPUs, NICs, leaf switches, HB domains and nodes, from the nodes' exporters and from Slurm.

    Without --exporter and --exporters, opsk reads the exporters of exporter_targets under [top] in opsk.toml, or those
    of all Slurm nodes at exporter_port.

    Exit status: 0 no fatal failure; 1 a fatal failure; 3 no exporter answered.
    """
    client = slurm_client() if slurm else None
    urls = find_exporters(exporters, file, client, load_site().top)
    if follow:
        return _follow(urls, client, every_s=every_s, for_s=for_s, as_json=as_json)
    snapshot = observe(urls, client, time.time())
    shown = sort_events(detect(snapshot.observations, is_single_round=True))
    if as_json:
        echo_json({"at": _to_datetime(snapshot.observations.at_s), "events": [_build_row(event) for event in
        shown],
                   "problems": snapshot.problems})  # fmt: skip
    else:
        _print_events(shown, snapshot)
    return _choose_status(shown)


def _choose_status(shown: tuple[Event, ...]) -> int:
    is_bad = any(event.severity is Severity.FATAL and not event.is_over for event in shown)
    return ExitStatus.BAD_NEWS if is_bad else ExitStatus.ANSWER


def _follow(
    urls: Mapping[str, str], client: SlurmClient | None, *, every_s: float, for_s: float | None, as_json: bool
) -> int:
    """Repeat the scrape until the time is over or the caller interrupts."""
    known: Known = NOTHING
    shown: dict[str, tuple[object, ...]] = {}
    problems: tuple[str, ...] = ()
    end = time.monotonic() + for_s if for_s is not None else None
    while True:
        began = time.monotonic()
        try:
            snapshot = observe(urls, client, time.time())
        except UnavailableError as error:
            snapshot = Snapshot(observations=Observations(at_s=time.time()), problems=(error.message,))
        known = detect(snapshot.observations, known)
        if snapshot.problems != problems:
            problems = snapshot.problems
            for problem in problems[:_MAX_LISTED]:
                click.echo(escape(f"opsk: no answer: {problem}"), err=True)
        for event in sort_events(known):
            state = (event.first_seen_s, event.is_over, event.severity, event.jobs)
            if shown.get(event.key) != state:
                shown[event.key] = state
                _print_event(event, as_json=as_json)
        if end is not None and time.monotonic() >= end:
            return _choose_status(sort_events(known))
        time.sleep(max(every_s - (time.monotonic() - began), 0.05))


def _print_event(event: Event, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(to_json_values(_build_row(event))))
        return
    for line in _format_event(event):
        click.echo(line)


def _print_events(shown: tuple[Event, ...], snapshot: Snapshot) -> None:
    for event in shown:
        for line in _format_event(event):
            click.echo(line)
    if not shown:
        click.echo(f"no failures on {len(snapshot.observations.nodes)} nodes")
    for problem in snapshot.problems[:_MAX_LISTED]:
        click.echo(escape(f"no answer: {problem}"))
    if len(snapshot.problems) > _MAX_LISTED:
        click.echo(f"... and {len(snapshot.problems) - _MAX_LISTED} more without an answer")


def _format_event(event: Event) -> Iterator[str]:
    word = "over" if event.is_over else event.severity.value
    yield escape(f"{_to_datetime(event.first_seen_s):%F %T}Z  {word:<8}  {event.failed}  {event.text}")
    if event.is_over:
        return
    yield from wrap(escape(event.action), WIDTH, initial_indent="    ", subsequent_indent="    ")
    for job in event.jobs[:_MAX_LISTED]:
        yield escape(f"    job {job}: opsk remap {job} --failed {event.failed}")


def _build_row(event: Event) -> dict[str, Any]:
    """Return the JSON row of one event."""
    return {
        **read_fields(event, without=("first_seen_s", "last_seen_s", "was_there")),
        "first_seen": _to_datetime(event.first_seen_s),
        "last_seen": _to_datetime(event.last_seen_s),
    }


def _to_datetime(at_s: float) -> datetime:
    return datetime.fromtimestamp(at_s, tz=UTC)

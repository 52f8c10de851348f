"""Implements ``opsk events``: shows failing hardware, the affected jobs, and what to do."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from textwrap import wrap
from typing import Any

import click

from opsk.cli.document import echo_json
from opsk.cli.events.pages import Page, parse_exporter, read_pages
from opsk.config import TopConfig, load_site
from opsk.diagnosis.events.detection import NOTHING, Known, detect, sort_events
from opsk.diagnosis.events.from_samples import NAMES, NodeParts, build_job, build_node, build_node_parts
from opsk.diagnosis.events.observations import JobSeen, NodeSeen, Observations
from opsk.diagnosis.events.observations import Event, Severity
from opsk.errors import ExitStatus, InputError, OpskError, UnavailableError
from opsk.hostlist import expand
from opsk.slurm.adapter import slurm_client
from opsk.slurm.client import SlurmClient
from opsk.telemetry.exporter_targets import build_targets, read_targets
from opsk.text import escape, to_json_values
from opsk.units import MIB

WIDTH = 100
_MAX_LISTED = 4
_MAX_BYTES = MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class _Snapshot:
    """The observations at one time, and the exporters without an answer."""

    observations: Observations
    problems: tuple[str, ...]


@click.command()
@click.option("--exporter", "exporters", multiple=True, metavar="NODE[=URL]",
              help="An exporter to read; may be repeated, and NODE may be a list (n[0-7]).")  # fmt: skip
@click.option("--exporters", "file", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Exporters to read, one NODE, NODE=URL or URL a line.")  # fmt: skip
@click.option("--slurm/--no-slurm", default=True, show_default=True,
              help="Ask Slurm for nodes that are down, and for the jobs that are hit.")  # fmt: skip
@click.option("--follow", is_flag=True, help="Look again and again; tell what begins and what ends.")
@click.option("--every", "every_s", type=click.FloatRange(0.2, 3600), default=5.0, show_default=True, metavar="S",
              help="With --follow: time between two looks.")  # fmt: skip
@click.option("--for", "for_s", type=click.FloatRange(0, 1e7), metavar="S", help="With --follow: end after this time.")
@click.option("--json", "as_json", is_flag=True,
              help="One JSON document on stdout; with --follow one a line, for each change.")  # fmt: skip
def events(
    exporters: tuple[str, ...], file: Path | None, slurm: bool, follow: bool, every_s: float, for_s: float | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Show what fails: GPUs, NICs, leaves, HB domains and nodes, from the nodes' exporters and from Slurm.

    Without --exporter and --exporters those of exporter_targets under [top] in opsk.toml are read, else all nodes that
    Slurm knows, at its exporter_port.

    Exit status: 0 nothing fatal; 1 something is; 3 nobody answered.
    """
    client = slurm_client() if slurm else None
    urls = _find_urls(exporters, file, client, load_site().top)
    if follow:
        return _follow(urls, client, every_s=every_s, for_s=for_s, as_json=as_json)
    snapshot = _observe(urls, client, time.time())
    found_events = sort_events(detect(snapshot.observations, is_single_round=True))
    if as_json:
        echo_json({"at": _to_datetime(snapshot.observations.at_s), "events": [_build_row(event) for event in
        found_events],
                   "problems": snapshot.problems})  # fmt: skip
    else:
        _print_events(found_events, snapshot)
    return _choose_status(found_events)


def _choose_status(found_events: tuple[Event, ...]) -> int:
    is_bad = any(event.severity is Severity.FATAL and not event.is_over for event in found_events)
    return ExitStatus.BAD_NEWS if is_bad else ExitStatus.ANSWER


def _find_urls(words: tuple[str, ...], file: Path | None, client: SlurmClient | None, top: TopConfig) -> dict[str, str]:
    """Return the exporters by node.

    Raises
    ------
    InputError
        No exporter is named or known, a name is invalid, or the site's file of targets cannot be read.
    """
    requested = [*words, *(_read_lines(file) if file is not None else ())]
    if requested:
        nodes = [
            exporter for word in requested for exporter in ([word] if "=" in word or "://" in word else expand(word))
        ]
        return dict(parse_exporter(exporter) for exporter in nodes)
    if top.exporter_targets is not None:
        return {node: f"{url}/metrics" for node, url in read_targets(top.exporter_targets, tls=top.tls).items()}
    if client is None or not top.exporter_port:
        raise InputError("no exporter is named", hint="name them with --exporter n[0-7], or leave --no-slurm out")
    addresses = {node.name: node.address or "" for node in client.nodes()}
    return {node: f"{url}/metrics" for node, url in build_targets(addresses, top.exporter_port, tls=top.tls).items()}


def _read_lines(file: Path) -> Iterator[str]:
    try:
        text = file.read_bytes()[:_MAX_BYTES].decode("utf-8", errors="replace")
    except OSError as error:
        raise InputError(escape(f"{file}: {error.strerror}"), hint="a file with one exporter a line") from error
    for line in text.split("\n"):
        word = line.partition("#")[0].strip()
        if word:
            yield word


def _observe(urls: Mapping[str, str], client: SlurmClient | None, at_s: float) -> _Snapshot:
    """Return the observations of one scrape.

    Raises
    ------
    UnavailableError
        No exporter answers.
    """
    pages = read_pages(urls, NAMES)
    problems = [page.problem for page in pages if page.problem]
    nodes, jobs = _read_slurm(client, pages, problems)
    if not nodes and all(page.problem for page in pages):
        raise UnavailableError("; ".join(problems[:3]) or "nobody is there to ask", hint="are the exporters running?")
    parts = [_extract_parts(page) for page in pages if not page.problem]
    return _Snapshot(
        observations=Observations(
            at_s=at_s,
            nodes=nodes or tuple(_build_node(page) for page in pages),
            gpus=tuple(gpu for node_parts in parts for gpu in node_parts.gpus),
            ports=tuple(port for node_parts in parts for port in node_parts.ports),
            jobs=jobs,
        ),
        problems=tuple(problems),
    )


def _extract_parts(page: Page) -> NodeParts:
    return build_node_parts(page.node, page.samples)


def _build_node(page: Page) -> NodeSeen:
    parts = _extract_parts(page)
    return NodeSeen(name=page.node, is_read=not page.problem, sxids=parts.sxids, domain=parts.domain)


def _read_slurm(
    client: SlurmClient | None, pages: tuple[Page, ...], problems: list[str]
) -> tuple[tuple[NodeSeen, ...], tuple[JobSeen, ...]]:
    """Return Slurm's nodes and running jobs; none where it does not answer."""
    if client is None:
        return (), ()
    try:
        records, jobs = client.nodes(), client.jobs(details=True)
    except OpskError as error:
        problems.append(f"Slurm: {error.message}")
        return (), ()
    pages_by_node = {page.node: page for page in pages}
    nodes = []
    for record in records:
        page = pages_by_node.get(record.name)
        is_read = page is not None and not page.problem
        parts = _extract_parts(page) if page is not None and is_read else None
        nodes.append(build_node(record, is_read=is_read, parts=parts))
    known = {record.name for record in records}
    nodes += [_build_node(page) for page in pages if page.node not in known]
    return tuple(nodes), tuple(build_job(job) for job in jobs if job.is_active)


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
            snapshot = _observe(urls, client, time.time())
        except UnavailableError as error:
            snapshot = _Snapshot(observations=Observations(at_s=time.time()), problems=(error.message,))
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


def _print_events(found_events: tuple[Event, ...], snapshot: _Snapshot) -> None:
    for event in found_events:
        for line in _format_event(event):
            click.echo(line)
    if not found_events:
        click.echo(f"nothing fails on {len(snapshot.observations.nodes)} nodes")
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
        "key": event.key,
        "failed": event.failed,
        "part": event.part,
        "severity": event.severity,
        "is_over": event.is_over,
        "first_seen": _to_datetime(event.first_seen_s),
        "last_seen": _to_datetime(event.last_seen_s),
        "count": event.count,
        "text": event.text,
        "action": event.action,
        "source": event.source,
        "nodes": event.nodes,
        "jobs": event.jobs,
    }


def _to_datetime(at_s: float) -> datetime:
    return datetime.fromtimestamp(at_s, tz=UTC)

"""Checks that exporters answer, that their collectors work, and that they know Slurm's running jobs."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from opsk.app.doctor.finding import Finding, Site, note, sound, unknown, wrong
from opsk.app.doctor.slurm import DEADLINE_S, check_skew
from opsk.app.site_pages import Response, fetch
from opsk.config import TopConfig
from opsk.errors import ConfigError, InputError, OpskError
from opsk.hostlist import expand, fold
from opsk.metrics import names as metric_names
from opsk.metrics.exposition import read_line_samples
from opsk.slurm.commands.command import CommandClient
from opsk.slurm.records import JobRecord
from opsk.telemetry.exporter_targets import build_targets, read_targets

MAX_EXPORTERS = 64
"""Limit unless exporters are named: a check takes seconds on a cluster of any size."""
PROLOG_GRACE_S = 15.0
"""Time after which the prolog must have recorded a job; Slurm's start is before the prolog [s]."""
_NAMES = frozenset({
    metric_names.COLLECTOR_SUCCESS,
    metric_names.COLLECTOR_MISSING,
    metric_names.KERNEL_LOG_READABLE,
    metric_names.JOB_INFO,
    metric_names.JOB_BAD_FILES,
})  # fmt: skip
_MAX_PARALLEL = 16
_MAX_LISTED = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterScrape:
    """The answer of one exporter: labels and value by series, or the problem."""

    node: str
    url: str
    answer: Response
    window_s: tuple[float, float]
    series: Mapping[str, tuple[tuple[Mapping[str, str], float], ...]]


def find_exporter_urls(named: Iterable[str], top: TopConfig) -> tuple[dict[str, str], list[Finding]]:
    """Return the exporters to query: the named ones, those of the targets file, else of Slurm's first nodes."""
    scheme = "https" if top.tls else "http"
    words = list(named)
    if words:
        given = [word.partition("=") for word in words]
        pairs = ((node, url) for nodes, _, url in given for node in (expand(nodes) if not url else [nodes]))
        return {node: _build_page_url(url or f"{scheme}://{node}:{top.exporter_port}") for node, url in pairs}, []
    if not top.exporter_port and top.exporter_targets is None:
        return {}, [note("exporter", "none is queried: exporter_port = 0 under [top]")]
    if top.exporter_targets is not None:
        return _read_targets(top.exporter_targets, tls=top.tls)
    try:
        nodes = {node.name: node.address or "" for node in CommandClient(deadline_s=DEADLINE_S).nodes()}
    except OpskError:
        return {}, [unknown("exporter", "not queried: Slurm does not list its nodes", hint="give --exporter NODE")]
    more = len(nodes) - MAX_EXPORTERS
    findings = (
        [note("exporter", f"{more} of {len(nodes)} nodes are not queried", hint="give --exporter LIST")]
        if more > 0
        else []
    )
    first = dict(list(nodes.items())[:MAX_EXPORTERS])
    return {
        node: _build_page_url(url) for node, url in build_targets(first, top.exporter_port, tls=top.tls).items()
    }, findings


def _build_page_url(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise InputError(f"{url[:80]!r} is no URL", hint="--exporter n3=http://n3:9876")
    return url if url.rstrip("/").endswith("/metrics") else f"{url.rstrip('/')}/metrics"


def _read_targets(path: Path, *, tls: bool) -> tuple[dict[str, str], list[Finding]]:
    try:
        return {node: _build_page_url(url) for node, url in read_targets(path, tls=tls).items()}, []
    except ConfigError as error:
        return {}, [wrong("targets", error.message, path, error.hint)]


def scrape_exporters(site: Site) -> tuple[ExporterScrape, ...]:
    """Scrape all exporters in parallel."""

    def ask(node: str) -> ExporterScrape:
        before_s, url = time.time(), site.exporters[node]
        answer = fetch(url, site.config.top)
        samples: dict[str, list[tuple[Mapping[str, str], float]]] = defaultdict(list)
        for sample in read_line_samples(answer.body.split(b"\n"), _NAMES):
            samples[sample.name].append((sample.labels, sample.value))
        series = {name: tuple(rows) for name, rows in samples.items()}
        return ExporterScrape(node=node, url=url, answer=answer, window_s=(before_s, time.time()), series=series)

    if not site.exporters:
        return ()
    with ThreadPoolExecutor(max_workers=min(_MAX_PARALLEL, len(site.exporters)), thread_name_prefix="exporter") as pool:
        return tuple(pool.map(ask, site.exporters))


def check_exporters(scrapes: tuple[ExporterScrape, ...]) -> Iterator[Finding]:
    """Report exporters without an answer, blind collectors, and wrong clocks."""
    failed = [scrape for scrape in scrapes if scrape.answer.problem]
    for why, nodes in _group_by_message((scrape.answer.problem, scrape.node) for scrape in failed):
        hint = (
            "systemctl status opsk-exporter on the node; a firewall; exporter_port = 0 under [top] where there is none"
        )
        urls = [scrape.url for scrape in failed if scrape.answer.problem == why]
        yield wrong("exporter", f"no answer from {nodes}: {why}", urls[0], hint)
    answering = [scrape for scrape in scrapes if not scrape.answer.problem]
    if answering:
        yield sound("exporter", f"{len(answering)} of {len(scrapes)} answer")
    yield from _check_collectors(answering)
    for scrape in answering:
        if scrape.answer.date_s is not None:
            finding = check_skew("clock", f"the clock of {scrape.node}", scrape.answer.date_s, *scrape.window_s)
            if finding.level != "sound":
                yield finding


def _check_collectors(scrapes: Iterable[ExporterScrape]) -> Iterator[Finding]:
    """Report collectors that fail, are not installed, or lack permissions."""
    failed, missing, unreadable = [], [], []
    for scrape in scrapes:
        failed += [
            (row.get("collector", "?"), scrape.node)
            for row, value in _get_rows(scrape, metric_names.COLLECTOR_SUCCESS)
            if not value
        ]
        missing += [
            (row.get("collector", "?"), scrape.node)
            for row, value in _get_rows(scrape, metric_names.COLLECTOR_MISSING)
            if value
        ]
        unreadable += [
            ("kernel log", scrape.node) for _, value in _get_rows(scrape, metric_names.KERNEL_LOG_READABLE) if not value
        ]
    for name, nodes in _group_by_message(failed):
        hint = "journalctl -u opsk-exporter says why; opsk exporter --once --collectors NAME tries it"
        yield wrong("collector", f"collector {name} is blind on {nodes}: it fails or is too slow", nodes, hint)
    for name, nodes in _group_by_message(missing):
        yield wrong("collector", f"collector {name} is not installed on {nodes}", nodes, 'pip install "opsk[exporter]"')
    for _, nodes in _group_by_message(unreadable):
        hint = "the drop-in opsk-exporter.service.d/kernel-log.conf lets the exporter read it"
        yield note(
            "kernel-log",
            f"the exporters of {nodes} may not read the kernel log: XIDs come from NVML alone",
            nodes,
            hint,
        )


def check_jobs(site: Site, scrapes: tuple[ExporterScrape, ...]) -> Iterator[Finding]:
    """Compare Slurm's running jobs with those that the exporters know from the prolog."""
    answering = {scrape.node: scrape for scrape in scrapes if not scrape.answer.problem}
    if site.slurm is None or not answering:
        return
    try:
        jobs = [job for job in CommandClient(deadline_s=DEADLINE_S).jobs(details=True) if _is_settled(job, site.now_s)]
    except OpskError as error:
        yield unknown("prolog", f"Slurm does not list its jobs: {error.message}")
        return
    places = [(node, job) for job in jobs for node in job.nodes if node in answering]
    lost = [(node, str(job.id)) for node, job in places if not _is_known_by_prolog(answering[node], job)]
    for node, numbers in _group_by_node(lost):
        hint = (
            "does Prolog= of slurm.conf run opsk-prolog there? Does /run/opsk-jobs exist (tmpfiles.d/opsk-jobs.conf)?"
        )
        yield wrong("prolog", f"the prolog did not record running jobs on {node}: {numbers}", node, hint)
    for scrape in answering.values():
        for row, value in _get_rows(scrape, metric_names.JOB_BAD_FILES):
            if value:
                hint = "does Epilog= of slurm.conf run opsk-epilog there?" if row.get("kind") == "stale" else ""
                what = f"{value:.0f} files of jobs on {scrape.node} are {row.get('kind', 'bad')}"
                yield wrong("epilog", what, scrape.node, hint)
    if jobs and not lost:
        yield sound("prolog", f"the prolog recorded all {len(jobs)} running jobs on the queried nodes")


def _is_settled(job: JobRecord, now_s: float) -> bool:
    """Return whether a job with GPUs, as prologs record them, has run for long enough."""
    started_s = job.start_time.timestamp() if job.start_time is not None else now_s
    return job.state == "RUNNING" and job.gpus > 0 and now_s - started_s > PROLOG_GRACE_S


def _is_known_by_prolog(scrape: ExporterScrape, job: JobRecord) -> bool:
    names = {str(job.id), job.label}
    rows = (row for row, _ in _get_rows(scrape, metric_names.JOB_INFO))
    return any(names & {row.get("job"), row.get("job_id")} and row.get("gpus_from") == "prolog" for row in rows)


def _get_rows(scrape: ExporterScrape, name: str) -> tuple[tuple[Mapping[str, str], float], ...]:
    return scrape.series.get(name, ())


def _group_by_message(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield each message and its nodes, folded."""
    nodes_by_message: dict[str, list[str]] = defaultdict(list)
    for message, node in pairs:
        nodes_by_message[message].append(node)
    for message, nodes in sorted(nodes_by_message.items()):
        yield message, fold(nodes)


def _group_by_node(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    jobs_by_node: dict[str, list[str]] = defaultdict(list)
    for node, job in pairs:
        jobs_by_node[node].append(job)
    for node, jobs in sorted(jobs_by_node.items()):
        more = f" and {len(jobs) - _MAX_LISTED} more" if len(jobs) > _MAX_LISTED else ""
        yield node, ", ".join(jobs[:_MAX_LISTED]) + more


def check_jobs_folder(site: Site) -> Iterator[Finding]:
    """Check the folder of the prolog's files, where this host has an exporter."""
    folder = Path(str(site.config.exporter.get("jobs_folder", "/run/opsk-jobs")))
    host = os.uname().nodename.partition(".")[0]
    if host in site.exporters and not folder.is_dir():
        yield wrong("jobs-folder", "does not exist: only root creates it", folder, "systemd-tmpfiles --create")

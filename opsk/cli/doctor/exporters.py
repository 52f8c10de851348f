"""Do the exporters answer, which of their collectors are blind, and do they know the jobs that Slurm has running?"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from opsk.app.doctor.finding import Finding, Site, note, sound, unknown, wrong
from opsk.app.doctor.slurm import DEADLINE_S, skew
from opsk.cli.doctor.fetching import Answer, fetch
from opsk.config import TopConfig
from opsk.diagnosis.events.exposition import samples_of_lines
from opsk.errors import ConfigError, InputError, OpskError
from opsk.hostlist import expand, fold
from opsk.slurm.commands.command import CommandClient
from opsk.slurm.records import JobRecord
from opsk.telemetry.exporter_targets import targets_in, targets_of

MOST_EXPORTERS = 64
"""So many are asked unless they are named: one look is to take seconds on a cluster of any size."""
YOUNG_S = 15.0
"""So long a job may run before its prolog must have written it down; Slurm's start is before the prolog [s]."""
_NAMES = frozenset({
    "opsk_collector_success", "opsk_collector_missing", "opsk_kernel_log_readable", "opsk_job_info",
    "opsk_job_bad_files",
})  # fmt: skip
_AT_ONCE = 16
_MOST_TOLD = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What one exporter said: labels and value by series, or why it said nothing."""

    node: str
    url: str
    answer: Answer
    asked_s: tuple[float, float]
    series: Mapping[str, tuple[tuple[Mapping[str, str], float], ...]]


def exporter_urls(named: Iterable[str], top: TopConfig) -> tuple[dict[str, str], list[Finding]]:
    """Return the exporters to ask: those named, those of the file of targets, else those of Slurm's first nodes."""
    scheme = "https" if top.tls else "http"
    words = list(named)
    if words:
        given = [word.partition("=") for word in words]
        pairs = ((node, url) for nodes, _, url in given for node in (expand(nodes) if not url else [nodes]))
        return {node: _page(url or f"{scheme}://{node}:{top.exporter_port}") for node, url in pairs}, []
    if not top.exporter_port and top.exporter_targets is None:
        return {}, [note("exporter", "none is asked: exporter_port = 0 under [top]")]
    if top.exporter_targets is not None:
        return _urls_in(top.exporter_targets, tls=top.tls)
    try:
        nodes = {node.name: node.address or "" for node in CommandClient(deadline_s=DEADLINE_S).nodes()}
    except OpskError:
        return {}, [unknown("exporter", "not asked: Slurm does not say which nodes there are", hint="--exporter NODE")]
    more = len(nodes) - MOST_EXPORTERS
    told = [note("exporter", f"{more} of {len(nodes)} nodes are not asked", hint="--exporter LIST")] if more > 0 else []
    first = dict(list(nodes.items())[:MOST_EXPORTERS])
    return {node: _page(url) for node, url in targets_of(first, top.exporter_port, tls=top.tls).items()}, told


def _page(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise InputError(f"{url[:80]!r} is no URL", hint="--exporter n3=http://n3:9876")
    return url if url.rstrip("/").endswith("/metrics") else f"{url.rstrip('/')}/metrics"


def _urls_in(path: Path, *, tls: bool) -> tuple[dict[str, str], list[Finding]]:
    try:
        return {node: _page(url) for node, url in targets_in(path, tls=tls).items()}, []
    except ConfigError as error:
        return {}, [wrong("targets", error.message, path, error.hint)]


def hear(site: Site) -> tuple[Heard, ...]:
    """Ask all exporters, side by side."""

    def ask(node: str) -> Heard:
        before_s, url = time.time(), site.exporters[node]
        answer = fetch(url, site.config.top)
        found: dict[str, list[tuple[Mapping[str, str], float]]] = defaultdict(list)
        for sample in samples_of_lines(answer.body.split(b"\n"), _NAMES):
            found[sample.name].append((sample.labels, sample.value))
        series = {name: tuple(rows) for name, rows in found.items()}
        return Heard(node=node, url=url, answer=answer, asked_s=(before_s, time.time()), series=series)

    if not site.exporters:
        return ()
    with ThreadPoolExecutor(max_workers=min(_AT_ONCE, len(site.exporters)), thread_name_prefix="exporter") as pool:
        return tuple(pool.map(ask, site.exporters))


def exporter_checks(heard: tuple[Heard, ...]) -> Iterator[Finding]:
    """Say which do not answer, which collectors are blind, and whose clocks are off."""
    silent = [each for each in heard if each.answer.problem]
    for why, nodes in _alike((each.answer.problem, each.node) for each in silent):
        hint = (
            "systemctl status opsk-exporter on the node; a firewall; exporter_port = 0 under [top] where there is none"
        )
        urls = [each.url for each in silent if each.answer.problem == why]
        yield wrong("exporter", f"no answer from {nodes}: {why}", urls[0], hint)
    loud = [each for each in heard if not each.answer.problem]
    if loud:
        yield sound("exporter", f"{len(loud)} of {len(heard)} answer")
    yield from _blind(loud)
    for each in loud:
        if each.answer.date_s is not None:
            found = skew("clock", f"the clock of {each.node}", each.answer.date_s, *each.asked_s)
            if found.level != "sound":
                yield found


def _blind(heard: Iterable[Heard]) -> Iterator[Finding]:
    """Say which collectors fail, are not installed, or may not read what they need."""
    failed, missing, closed = [], [], []
    for each in heard:
        failed += [
            (row.get("collector", "?"), each.node) for row, value in _rows(each, "opsk_collector_success") if not value
        ]
        missing += [
            (row.get("collector", "?"), each.node) for row, value in _rows(each, "opsk_collector_missing") if value
        ]
        closed += [("kernel log", each.node) for _, value in _rows(each, "opsk_kernel_log_readable") if not value]
    for name, nodes in _alike(failed):
        hint = "journalctl -u opsk-exporter says why; opsk exporter --once --collectors NAME tries it"
        yield wrong("collector", f"collector {name} is blind on {nodes}: it fails or is too slow", nodes, hint)
    for name, nodes in _alike(missing):
        yield wrong("collector", f"collector {name} is not installed on {nodes}", nodes, 'pip install "opsk[exporter]"')
    for _, nodes in _alike(closed):
        hint = "the drop-in opsk-exporter.service.d/kernel-log.conf lets the exporter read it"
        yield note(
            "kernel-log",
            f"the exporters of {nodes} may not read the kernel log: XIDs come from NVML alone",
            nodes,
            hint,
        )


def job_checks(site: Site, heard: tuple[Heard, ...]) -> Iterator[Finding]:
    """Compare the jobs that Slurm has running with those that exporters know, and from where they know them."""
    loud = {each.node: each for each in heard if not each.answer.problem}
    if site.slurm is None or not loud:
        return
    try:
        jobs = [job for job in CommandClient(deadline_s=DEADLINE_S).jobs(details=True) if _is_settled(job, site.now_s)]
    except OpskError as error:
        yield unknown("prolog", f"Slurm does not tell its jobs: {error.message}")
        return
    places = [(node, job) for job in jobs for node in job.nodes if node in loud]
    lost = [(node, str(job.id)) for node, job in places if not _told_by_prolog(loud[node], job)]
    for node, numbers in _by_node(lost):
        hint = "Prolog= of slurm.conf runs opsk-prolog there? /run/opsk-jobs is there (tmpfiles.d/opsk-jobs.conf)?"
        yield wrong("prolog", f"running without a file of the prolog on {node}: job {numbers}", node, hint)
    for each in loud.values():
        for row, value in _rows(each, "opsk_job_bad_files"):
            if value:
                hint = "Epilog= of slurm.conf runs opsk-epilog there?" if row.get("kind") == "stale" else ""
                what = f"{value:.0f} files of jobs on {each.node} are {row.get('kind', 'bad')}"
                yield wrong("epilog", what, each.node, hint)
    if jobs and not lost:
        yield sound("prolog", f"the prolog wrote down all of {len(jobs)} running jobs, where exporters were asked")


def _is_settled(job: JobRecord, now_s: float) -> bool:
    """Tell whether a job with GPUs, which is what prologs write down, runs for long enough."""
    started_s = job.start_time.timestamp() if job.start_time is not None else now_s
    return job.state == "RUNNING" and job.gpus > 0 and now_s - started_s > YOUNG_S


def _told_by_prolog(heard: Heard, job: JobRecord) -> bool:
    names = {str(job.id), job.label}
    rows = (row for row, _ in _rows(heard, "opsk_job_info"))
    return any(names & {row.get("job"), row.get("job_id")} and row.get("gpus_from") == "prolog" for row in rows)


def _rows(heard: Heard, name: str) -> tuple[tuple[Mapping[str, str], float], ...]:
    return heard.series.get(name, ())


def _alike(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield what was said and the nodes that said it, folded."""
    found: dict[str, list[str]] = defaultdict(list)
    for said, node in pairs:
        found[said].append(node)
    for said, nodes in sorted(found.items()):
        yield said, fold(nodes)


def _by_node(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for node, job in pairs:
        found[node].append(job)
    for node, jobs in sorted(found.items()):
        more = f" and {len(jobs) - _MOST_TOLD} more" if len(jobs) > _MOST_TOLD else ""
        yield node, ", ".join(jobs[:_MOST_TOLD]) + more


def jobs_folder_checks(site: Site) -> Iterator[Finding]:
    """Look at the folder of the prolog's files, where this host has an exporter."""
    folder = Path(str(site.config.exporter.get("jobs_folder", "/run/opsk-jobs")))
    host = os.uname().nodename.partition(".")[0]
    if host in site.exporters and not folder.is_dir():
        yield wrong(
            "jobs-folder", "is not there: the prolog makes it only as root", folder, "systemd-tmpfiles --create"
        )

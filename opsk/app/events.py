"""Finds the exporters of a site, reads them in parallel, and collects what they and Slurm observe."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from opsk.config import TopConfig
from opsk.diagnosis.events.from_samples import NAMES, NodeParts, build_job, build_node, build_node_parts
from opsk.diagnosis.events.observations import JobSeen, NodeSeen, Observations
from opsk.errors import InputError, OpskError, UnavailableError
from opsk.hostlist import expand
from opsk.metrics.exposition import Sample, read_line_samples
from opsk.slurm.client import SlurmClient
from opsk.telemetry.exporter_targets import build_targets, read_targets
from opsk.telemetry.http_deadline import build_opener
from opsk.text import escape
from opsk.units import MIB

DEADLINE_S = 5.0
PORT = 9876
_MAX_PARALLEL = 32
_MAX_BYTES = 16 * MIB
_MAX_LIST_BYTES = MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The observations at one time, and the exporters without an answer."""

    observations: Observations
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The samples of one exporter; ``problem`` is why there are none."""

    node: str
    samples: tuple[Sample, ...] = ()
    problem: str = ""


def parse_exporter(word: str) -> tuple[str, str]:
    """Return node and URL of ``NODE=URL``, of ``URL``, or of ``NODE``.

    Raises
    ------
    InputError
        It is none of these.

    Examples
    --------
    >>> parse_exporter("n3")
    ('n3', 'http://n3:9876/metrics')
    """
    node, sign, url = word.partition("=") if "://" not in word.partition("=")[0] else ("", "=", word)
    if not sign:
        return node, f"http://{node}:{PORT}/metrics"
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise InputError(
            f"{word[:80]!r} is not an exporter", hint="write it as n3, n3=http://n3:9876/metrics, or a URL"
        )
    return node or parts.hostname, url if parts.path not in {"", "/"} else f"{url.rstrip('/')}/metrics"


def read_pages(urls: Mapping[str, str], names: Collection[str], *, deadline_s: float = DEADLINE_S) -> tuple[Page, ...]:
    """Return the named series of the exporters, by node."""
    if not urls:
        return ()
    with ThreadPoolExecutor(max_workers=min(_MAX_PARALLEL, len(urls)), thread_name_prefix="exporter") as pool:
        return tuple(pool.map(lambda node: _read_page(node, urls[node], names, deadline_s), urls))


def _read_page(node: str, url: str, names: Collection[str], deadline_s: float) -> Page:
    try:
        with build_opener(time.monotonic() + deadline_s).open(url, timeout=deadline_s) as response:
            text = response.read(_MAX_BYTES)
    except (HTTPException, OSError, ValueError) as error:
        return Page(node=node, problem=f"{url}: {getattr(error, 'reason', error)}")
    return Page(node=node, samples=tuple(read_line_samples(text.split(b"\n"), names)))


def find_exporters(
    words: tuple[str, ...], file: Path | None, client: SlurmClient | None, top: TopConfig
) -> dict[str, str]:
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
        raise InputError("no exporter is given", hint="give them with --exporter n[0-7], or leave out --no-slurm")
    addresses = {node.name: node.address or "" for node in client.nodes()}
    return {node: f"{url}/metrics" for node, url in build_targets(addresses, top.exporter_port, tls=top.tls).items()}


def _read_lines(file: Path) -> Iterator[str]:
    try:
        text = file.read_bytes()[:_MAX_LIST_BYTES].decode("utf-8", errors="replace")
    except OSError as error:
        raise InputError(escape(f"{file}: {error.strerror}"), hint="give a file with one exporter per line") from error
    for line in text.split("\n"):
        word = line.partition("#")[0].strip()
        if word:
            yield word


def observe(urls: Mapping[str, str], client: SlurmClient | None, at_s: float) -> Snapshot:
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
        raise UnavailableError("; ".join(problems[:3]) or "no exporter is known", hint="are the exporters running?")
    parts = [_extract_parts(page) for page in pages if not page.problem]
    return Snapshot(
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

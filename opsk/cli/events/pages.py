"""Reads the pages of the nodes' exporters in parallel, each within a deadline."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPException
from urllib.parse import urlsplit

from opsk.errors import InputError
from opsk.metrics.exposition import Sample, read_line_samples
from opsk.telemetry.http_deadline import build_opener
from opsk.units import MIB

DEADLINE_S = 5.0
PORT = 9876
_MAX_PARALLEL = 32
_MAX_BYTES = 16 * MIB


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
    >>> address_of("n3")
    ('n3', 'http://n3:9876/metrics')
    """
    node, sign, url = word.partition("=") if "://" not in word.partition("=")[0] else ("", "=", word)
    if not sign:
        return node, f"http://{node}:{PORT}/metrics"
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise InputError(f"{word[:80]!r} is no exporter", hint="write it as n3, n3=http://n3:9876/metrics, or a URL")
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

"""What do the exporters of the nodes say now? Their pages, read side by side, each within a deadline."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPException
from urllib.parse import urlsplit

from opsk.diagnosis.events.exposition import samples_of_lines
from opsk.diagnosis.events.from_samples import Sample
from opsk.errors import InputError
from opsk.telemetry.in_time import opener_until
from opsk.units import MIB

DEADLINE_S = 5.0
PORT = 9876
_AT_ONCE = 32
_MOST_BYTES = 16 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What one exporter said; ``problem`` is why it said nothing."""

    node: str
    samples: tuple[Sample, ...] = ()
    problem: str = ""


def address_of(word: str) -> tuple[str, str]:
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
    """Return what the exporters say, by node, of the named series."""
    if not urls:
        return ()
    with ThreadPoolExecutor(max_workers=min(_AT_ONCE, len(urls)), thread_name_prefix="exporter") as pool:
        return tuple(pool.map(lambda node: _read(node, urls[node], names, deadline_s), urls))


def _read(node: str, url: str, names: Collection[str], deadline_s: float) -> Page:
    try:
        with opener_until(time.monotonic() + deadline_s).open(url, timeout=deadline_s) as answer:
            text = answer.read(_MOST_BYTES)
    except (HTTPException, OSError, ValueError) as error:
        return Page(node=node, problem=f"{url}: {getattr(error, 'reason', error)}")
    return Page(node=node, samples=tuple(samples_of_lines(text.split(b"\n"), names)))

"""Scrapes the nodes' exporters directly where there is no Prometheus, a few nodes at a time in turn.

A page costs about as much as a refresh of the screen may cost for all nodes together. On a large cluster each refresh
scrapes as many nodes as fit into a share of one core, and the duration of a full turn is shown.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from opsk.config import TopConfig
from opsk.errors import OpskError, UnavailableError
from opsk.slurm.records import NodeRecord
from opsk.telemetry.exporter_targets import build_targets, read_targets
from opsk.telemetry.progress.step_estimate import Series
from opsk.units import MIB
from opsk_tui.data.sources.pages import Batch, PageHistory
from opsk_tui.data.sources.progress import means
from opsk_tui.data.sources.prometheus.http import Access, Server
from opsk_tui.data.sources.readings import Readings


def find_exporters(nodes: Sequence[NodeRecord], top: TopConfig) -> dict[str, str]:
    """Return the URL of each exporter, without a path, by node; node addresses are Slurm's.

    Raises
    ------
    ConfigError
        The file of targets cannot be read, or is no such file.
    """
    if top.exporter_targets is not None:
        addresses = {node.name: node.address for node in nodes if node.address}
        return read_targets(top.exporter_targets, tls=top.tls, addresses=addresses)
    addresses = {node.name: node.address or "" for node in nodes if node.gpus}
    return build_targets(addresses, top.exporter_port, tls=top.tls)


DEADLINE_S = 3.0
AT_ONCE = 16
MAX_PAGE_BYTES = 16 * MIB
SHARE_OF_CORE = 0.015
"""How much of one core is spent on pages, over time."""
MIN_NODES = 8
"""The least number of nodes that are scraped at each refresh."""
SILENT_PAUSE_S = 60.0
"""A node that did not answer is scraped again after this."""


@dataclass(slots=True)
class _Node:
    """One node: its URL, when it is due, and its earlier pages."""

    url: str
    server: Server
    due_at_s: float = 0.0
    problem: str = ""
    before: PageHistory = field(default_factory=PageHistory)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The result of one refresh: nodes scraped and silent, and the duration of a full turn [s]."""

    asked: int
    silent: int
    turn_s: float
    problem: str = ""


class ExportersSource:
    """Keeps readings up to date from exporters.

    Parameters
    ----------
    targets
        URL of each node's exporter, by node.
    clock, cpu
        Seconds since 1970, and of processor time of this process.
    """

    def __init__(
        self,
        readings: Readings,
        targets: Mapping[str, str],
        *,
        access: Access | None = None,
        clock: Callable[[], float] = time.time,
        cpu: Callable[[], float] = time.thread_time,
        at_once: int = AT_ONCE,
    ) -> None:
        self._readings = readings
        self._access = access or Access()
        self._clock, self._cpu = clock, cpu
        self._nodes: dict[str, _Node] = {}
        self._cost_s = 0.003
        self._last_s = -math.inf
        self._pool = ThreadPoolExecutor(max_workers=at_once, thread_name_prefix="opsk-scrape")
        self.aim(targets)

    def aim(self, targets: Mapping[str, str]) -> None:
        """Scrape these nodes from now on."""
        self._nodes = {node: self._find_same(node, url) or self._build_node(url) for node, url in targets.items()}

    def forget(self) -> None:
        """Read everything again: the nodes have changed."""
        for node in self._nodes.values():
            node.due_at_s = 0.0
            node.before.clear()

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def refresh(self, first: Iterable[str] = (), *, everything: bool = False) -> Turn:
        """Scrape as many nodes as the budget allows, those that were scraped longest ago first.

        Parameters
        ----------
        first
            Nodes that are scraped before all others: those of the job that is shown.

        Raises
        ------
        UnavailableError
            None of the scraped nodes answers.
        """
        now_s = self._clock()
        since_s = min(max(now_s - self._last_s, 1.0), 60.0)
        self._last_s = now_s
        room = len(self._nodes) if everything else max(MIN_NODES, int(SHARE_OF_CORE * since_s / self._cost_s))
        first_nodes = frozenset(first)
        due = [
            (name not in first_nodes, node.due_at_s, name)
            for name, node in self._nodes.items()
            if node.due_at_s <= now_s
        ]
        chosen = [name for _, _, name in sorted(due)[:room]]
        pages = list(self._pool.map(self._fetch_page, chosen))
        began_s = self._cpu()
        with self._readings.lock:
            answered, problem = self._store_pages(dict(zip(chosen, pages, strict=True)), now_s)
        if answered:
            # the sockets cost as much as reading the pages
            self._cost_s += 0.3 * (2.0 * (self._cpu() - began_s) / answered - self._cost_s)
        elif chosen:
            raise UnavailableError(f"none of {len(chosen)} exporters answers: {problem}", hint=_build_hint(problem))
        silent = sum(bool(node.problem) for node in self._nodes.values())
        rounds = math.ceil(max(1, len(self._nodes) - silent) / max(1, room))
        return Turn(asked=len(chosen), silent=silent, turn_s=rounds * since_s, problem=problem)

    def signals(self, nodes: Sequence[str], since_s: float, until_s: float) -> list[Series]:
        """Return energy and bytes of nodes over a time; see `opsk_tui.data.sources.progress.Signals`."""
        series = []
        for node in nodes:
            if node in self._nodes:
                series += means(np.array(self._nodes[node].before.moved), since_s, until_s)
        return series

    def _store_pages(self, pages: Mapping[str, bytes | OpskError], now_s: float) -> tuple[int, str]:
        """Store pages; return how many there were, and why there were no more."""
        answered, problem = 0, ""
        batch = Batch(self._readings)
        for name, page in pages.items():
            node = self._nodes.get(name)
            if node is None:
                continue
            if isinstance(page, OpskError):
                node.problem, node.due_at_s = page.message, now_s + SILENT_PAUSE_S
                problem = problem or page.message
                continue
            answered += 1
            node.problem, node.due_at_s = "", now_s
            batch.take(name, page, node.before, now_s)
        batch.put()
        for name, progress in self._readings.progress.items():
            if name in batch.jobs:
                progress.note(now_s)
                if progress.iteration is not None and progress.progress_at_s is not None:
                    progress.note_line(progress.iteration, progress.progress_at_s)
        return answered, problem

    def _build_node(self, url: str) -> _Node:
        server = Server(url, self._access, deadline_s=DEADLINE_S, max_bytes=MAX_PAGE_BYTES)
        return _Node(url=url, server=server)

    def _find_same(self, node: str, url: str) -> _Node | None:
        """Return a node that is scraped at this URL already."""
        known = self._nodes.get(node)
        return known if known is not None and known.url == url else None

    def _fetch_page(self, node: str) -> bytes | OpskError:
        try:
            return self._nodes[node].server.ask("GET", "/metrics", Accept="text/plain;version=0.0.4")
        except KeyError:
            return UnavailableError(f"{node}: not there any more")
        except OpskError as error:
            return error


def _build_hint(problem: str) -> str:
    if "401" in problem:
        return "set user and password_file under [top] in opsk.toml"
    return "exporters listen on loopback until they are told otherwise; a Prometheus is named under [top] in opsk.toml"

"""Runs collectors so that none of them can hang, empty or falsify the scrape of the others.

Each collector has one worker thread of its own. A scrape requests a run from every worker, waits for all of them until
one common deadline, and shows the series of those that finished. A worker that hangs in the kernel is left alone: it
gets no second run until it returns, and until then its collector counts as failed.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as RunTimeoutError
from dataclasses import dataclass
from typing import Protocol

from prometheus_client import Metric
from prometheus_client.registry import Collector as PrometheusCollector

from opsk.errors import OpskError
from opsk.metrics import names as metric_names
from opsk.telemetry import background_reader as background
from opsk.text import escape
from opsk_exporters.core.exposition import Families

LOG = logging.getLogger("opsk.exporter")
DEFAULT_DEADLINE_S = 5.0
_CLOSING_S = 1.0

Clock = Callable[[], float]


class NoDataError(OpskError):
    """The node has nothing that the collector could read: no fault, and no series."""


class Collector(Protocol):
    """One source of metrics."""

    @property
    def name(self) -> str:
        """Word that selects the collector, and its label in metrics about collectors."""
        ...

    def collect(self) -> Iterable[Metric]:
        """Read the source once, completely.

        Raises
        ------
        NoDataError
            The node has no such source.
        Exception
            Anything else is a failed collection: its series are dropped, the scrape continues.
        """
        ...


@dataclass(slots=True, kw_only=True)
class _Run:
    """One collection under way: its start, and its future result."""

    started: float
    result: Future[tuple[Metric, ...]]


class Worker:
    """Runs one collector in a thread of its own, one run at a time.

    Parameters
    ----------
    collector
        What is run.
    deadline_s
        How long a run may take [s].
    clock
        Monotonic seconds.
    """

    def __init__(
        self, collector: Collector, deadline_s: float = DEFAULT_DEADLINE_S, clock: Clock = time.monotonic
    ) -> None:
        self.name = collector.name
        self.deadline_s = deadline_s
        self.message = ""
        self.failures = 0
        self.timeouts = 0
        self.succeeded_at: float | None = None
        self.last_duration_s: float | None = None
        self.source_present: bool | None = None
        self._collector = collector
        self._clock = clock
        self._lock = threading.Lock()
        self._requested = threading.Semaphore(0)
        self._run: _Run | None = None
        self._overdue: _Run | None = None
        self._outcome: str | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=f"collector-{self.name}", daemon=True)
        self._thread.start()

    def request(self) -> _Run:
        """Return the run under way, or begin one: scrapes at the same time share it."""
        with self._lock:
            if self._run is None:
                self._run = _Run(started=self._clock(), result=Future())
                self._requested.release()
            return self._run

    def wait(self, run: _Run, until: float) -> tuple[Metric, ...] | None:
        """Return the result of a run that ends by its deadline and ``until``; ``None`` when it failed or hangs."""
        deadline = run.started + self.deadline_s
        try:
            error = run.result.exception(timeout=max(0.0, min(until, deadline) - self._clock()))
        except RunTimeoutError:
            if deadline <= until:  # a scraper that gives up earlier is no fault of the collector
                self._note_overdue(run)
            return None
        if error is None:
            return run.result.result()
        return () if isinstance(error, NoDataError) else None

    def running_s(self) -> float | None:
        """Return how long the run under way has been going on [s]; ``None`` between runs."""
        with self._lock:
            return None if self._run is None else self._clock() - self._run.started

    def state(self) -> str:
        """Return the state of the collector, in a word or two."""
        with self._lock:
            if self._run is not None and self._overdue is self._run:
                return "hangs"
            if self._outcome is not None:
                return self._outcome
            return "not run yet"

    def close(self) -> None:
        """Stop running the collector; its thread closes it and ends, at once or when the run under way returns."""
        self._closed = True
        self._requested.release()

    def join(self, wait_s: float) -> None:
        """Wait for the thread to end, but only so long [s]."""
        self._thread.join(max(0.0, wait_s))

    def _work(self) -> None:
        """Run the collector whenever a scrape requests it, until closed."""
        while self._requested.acquire() and not self._closed:
            run = self._run
            if run is not None:
                self._collect(run)
        with contextlib.suppress(Exception):
            background.close(self._collector)

    def _collect(self, run: _Run) -> None:
        """Do one run and pass its outcome to all waiters."""
        outcome: tuple[Metric, ...] | Exception
        try:
            outcome = tuple(self._collector.collect())
        except BaseException as error:  # noqa: BLE001 - however a collector fails, its worker lives on and counts it
            outcome = _strip_context(error if isinstance(error, Exception) else RuntimeError(repr(error)))
        with self._lock:
            self._run = None
            self.last_duration_s = self._clock() - run.started
            change = self._account(outcome)
        self._log(*change)
        if isinstance(outcome, Exception):
            run.result.set_exception(outcome)
        else:
            run.result.set_result(outcome)

    def _account(self, outcome: tuple[Metric, ...] | Exception) -> tuple[int, str]:
        """Count the outcome; return the level and text of its log line."""
        if isinstance(outcome, NoDataError):
            self.succeeded_at, self.source_present, self._outcome = self._clock(), False, "nothing here"
            return self._note(logging.INFO, f"nothing here: {outcome}")
        if isinstance(outcome, Exception):
            self.failures += 1
            self._outcome = "fails"
            return self._note(logging.WARNING, f"failed, its series are dropped: {type(outcome).__name__}: {outcome}")
        self.succeeded_at, self.source_present, self._outcome = self._clock(), True, "works"
        return self._note(logging.INFO if self.message else logging.DEBUG, "works")

    def _note_overdue(self, run: _Run) -> None:
        """Count a run once that missed its deadline."""
        with self._lock:
            if self._run is not run or self._overdue is run:
                return
            self._overdue = run
            self.timeouts += 1
            change = self._note(logging.WARNING, f"did not answer within {self.deadline_s:g} s, its series are dropped")
        self._log(*change)

    def _note(self, level: int, what: str) -> tuple[int, str]:
        """Set the present message; return it with its level: the same again every 15 s would only fill the journal."""
        level = logging.DEBUG if what == self.message else level
        self.message = what
        return level, what

    def _log(self, level: int, what: str) -> None:
        """Log a message, never with the lock: who writes the log may have to wait."""
        LOG.log(level, "collector %s: %s", self.name, escape(what))


def _strip_context(error: Exception) -> Exception:
    """Return an error without cause and traceback: frames that refer to the error would stay until gc finds them."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrape:
    """What one scrape gave: all series, and the names of the collectors that gave none because they failed."""

    metrics: tuple[Metric, ...]
    failed: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorStatus:
    """The status of a collector, for people.

    Parameters
    ----------
    name
        Its name.
    state
        ``works``, ``nothing here``, ``fails``, ``hangs``, ``not run yet`` or ``not installed``.
    message
        The message of its last run.
    duration_s
        How long its last run took [s].
    """

    name: str
    state: str
    message: str
    duration_s: float | None = None


class Scraper(PrometheusCollector):
    """All collectors as one: the collector that a registry of prometheus_client reads.

    Parameters
    ----------
    collectors
        Sources; each name only once.
    deadline_s
        How long one scrape waits for a collector [s].
    deadlines_s
        The same for single collectors, by name [s].
    missing
        Collectors that could not be made, and why.
    clock
        Monotonic seconds.
    """

    def __init__(
        self,
        collectors: Iterable[Collector],
        deadline_s: float = DEFAULT_DEADLINE_S,
        *,
        deadlines_s: Mapping[str, float] | None = None,
        missing: Mapping[str, str] | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._clock = clock
        self._missing = dict(missing or {})
        own_deadlines_s = deadlines_s or {}
        self._workers = tuple(
            Worker(collector, own_deadlines_s.get(collector.name, deadline_s), clock) for collector in collectors
        )

    def describe(self) -> Iterable[Metric]:
        """Name no metrics: registering must not run the collectors."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Return the metrics of one scrape."""
        return self.scrape().metrics

    def scrape(self, limit_s: float | None = None) -> Scrape:
        """Run all collectors side by side; return the series of those that answered, and metrics about all.

        Parameters
        ----------
        limit_s
            How long the scrape may take, whatever the collectors' deadlines are [s].
        """
        until = math.inf if limit_s is None else self._clock() + limit_s
        runs = [(worker, worker.request()) for worker in self._workers]
        answers = [(worker.name, worker.wait(run, until)) for worker, run in runs]
        about = self._about({name: metrics is not None for name, metrics in answers})
        return Scrape(
            metrics=merge_families(
                metric for metrics in (*(given for _, given in answers), about) for metric in metrics or ()
            ),
            failed=tuple(name for name, metrics in answers if metrics is None),
        )

    def close(self, wait_s: float = _CLOSING_S) -> None:
        """Stop all collectors, and wait for their threads to end, at most this long [s]."""
        for worker in self._workers:
            worker.close()
        until = time.monotonic() + wait_s
        for worker in self._workers:
            worker.join(until - time.monotonic())

    def statuses(self) -> tuple[CollectorStatus, ...]:
        """Return the status of each collector at its last run, without running any."""
        statuses = [
            CollectorStatus(
                name=worker.name, state=worker.state(), message=worker.message, duration_s=worker.last_duration_s
            )
            for worker in self._workers
        ]
        statuses += [
            CollectorStatus(name=name, state="not installed", message=why) for name, why in self._missing.items()
        ]
        return tuple(sorted(statuses, key=lambda standing: standing.name))

    def _about(self, answered: dict[str, bool]) -> tuple[Metric, ...]:
        """Return the metrics about the collectors themselves."""
        families = Families()
        for name in self._missing:
            families.gauge(
                metric_names.COLLECTOR_MISSING,
                "1 for a collector that was left out because a package that it needs is not installed.",
                1.0,
                collector=name,
            )
        for worker in self._workers:
            running_s, name = worker.running_s(), worker.name
            duration_s = worker.last_duration_s if answered[name] or running_s is None else running_s
            age_s = None if worker.succeeded_at is None else self._clock() - worker.succeeded_at
            present = None if worker.source_present is None else float(worker.source_present)
            families.gauge(
                metric_names.COLLECTOR_SUCCESS,
                "1 when the collector answered this scrape, even if this node has nothing that it reads; 0 when it "
                "failed or missed the deadline, and its series are absent.",
                float(answered[name]),
                collector=name,
            )
            families.gauge(
                "opsk_collector_source_present",
                "1 when the node had what the collector reads at its last success, 0 when not (for example no HCA).",
                present,
                collector=name,
            )
            families.gauge(
                "opsk_collector_duration_seconds",
                "How long the last run took; for a run that is still going on, how long it has taken so far.",
                duration_s,
                collector=name,
            )
            families.gauge(
                "opsk_collector_age_seconds",
                "Time since the collector last answered; absent when it never did.",
                age_s,
                collector=name,
            )
            for kind, count in (("error", worker.failures), ("deadline", worker.timeouts)):
                families.counter(
                    "opsk_collector_failures_total",
                    "Runs that failed: kind error with an error, deadline by taking longer than the collector may; a "
                    "scraper that gave up earlier counts for none.",
                    count,
                    collector=name,
                    kind=kind,
                )
        return families.all()


def merge_families(metrics: Iterable[Metric]) -> tuple[Metric, ...]:
    """Return metrics with each name once: two collectors may fill one family, which is written down only once."""
    by_name: dict[str, Metric] = {}
    for metric in metrics:
        first = by_name.get(metric.name)
        if first is None:
            by_name[metric.name] = metric
        elif first is not metric:
            both = by_name[metric.name] = Metric(first.name, first.documentation, first.type)
            both.samples = [*first.samples, *metric.samples]
    return tuple(by_name.values())

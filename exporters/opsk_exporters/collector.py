"""How do collectors run, so that none of them can hang, empty or falsify the scrape of the others?

Each collector has one worker thread of its own. A scrape asks every worker for a run, waits for all of them until one
common deadline, and shows the series of those that came back. A worker that hangs in the kernel is left where it is:
it gets no second run until it returns, and until then its collector counts as failed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as RunTimeoutError
from dataclasses import dataclass
from typing import Protocol

from prometheus_client import Metric
from prometheus_client.registry import Collector as PrometheusCollector

from opsk.cli.document import harmless
from opsk.errors import OpskError
from opsk_exporters.families import Families

LOG = logging.getLogger("opsk.exporter")
DEFAULT_DEADLINE_S = 5.0

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
            Anything else is a failed collection: its series are dropped, the scrape goes on.
        """
        ...


@dataclass(slots=True, kw_only=True)
class _Run:
    """One collection under way: when it began, and what it will give."""

    started: float
    result: Future[tuple[Metric, ...]]


class Worker:
    """Runs one collector in a thread of its own, one run at a time."""

    def __init__(self, collector: Collector, clock: Clock = time.monotonic) -> None:
        self.name = collector.name
        self.failures = 0
        self.timeouts = 0
        self.succeeded_at: float | None = None
        self.last_duration_s: float | None = None
        self.source_present: bool | None = None
        self._collector = collector
        self._clock = clock
        self._lock = threading.Lock()
        self._wanted = threading.Semaphore(0)
        self._run: _Run | None = None
        self._overdue: _Run | None = None
        self._said = ""
        threading.Thread(target=self._work, name=f"collector-{self.name}", daemon=True).start()

    def request(self) -> _Run:
        """Return the run under way, or begin one: scrapes at the same time share it."""
        with self._lock:
            if self._run is None:
                self._run = _Run(started=self._clock(), result=Future())
                self._wanted.release()
            return self._run

    def wait(self, run: _Run, deadline_s: float) -> tuple[Metric, ...] | None:
        """Return what a run gives if it does until ``deadline_s`` after its start; ``None`` when it failed or hangs."""
        remaining = max(0.0, run.started + deadline_s - self._clock())
        try:
            return run.result.result(timeout=remaining)
        except NoDataError:
            return ()
        except RunTimeoutError:
            self._note_overdue(run, deadline_s)
            return None
        except Exception:  # noqa: BLE001 - the worker has counted and logged it; the scrape must go on
            return None

    def running_s(self) -> float | None:
        """Return how long the run under way has been going on [s]; ``None`` between runs."""
        with self._lock:
            return None if self._run is None else self._clock() - self._run.started

    def _work(self) -> None:
        """Run the collector whenever a scrape wants it."""
        while True:
            self._wanted.acquire()
            run = self._run
            if run is not None:
                self._collect(run)

    def _collect(self, run: _Run) -> None:
        """Do one run and hand its outcome to everyone who waits."""
        outcome: tuple[Metric, ...] | Exception
        try:
            outcome = tuple(self._collector.collect())
        except BaseException as error:  # noqa: BLE001 - however a collector fails, its worker lives on and counts it
            outcome = error if isinstance(error, Exception) else RuntimeError(repr(error))
        with self._lock:
            self._run = None
            self.last_duration_s = self._clock() - run.started
            self._account(outcome)
        if isinstance(outcome, Exception):
            run.result.set_exception(outcome)
        else:
            run.result.set_result(outcome)

    def _account(self, outcome: tuple[Metric, ...] | Exception) -> None:
        """Count the outcome, and log it when it is another than last time."""
        if isinstance(outcome, NoDataError):
            self.succeeded_at, self.source_present = self._clock(), False
            self._say(logging.INFO, f"nothing here: {outcome}")
        elif isinstance(outcome, Exception):
            self.failures += 1
            self._say(logging.WARNING, f"failed, its series are dropped: {type(outcome).__name__}: {outcome}")
        else:
            self.succeeded_at, self.source_present = self._clock(), True
            self._say(logging.INFO if self._said else logging.DEBUG, "works")

    def _note_overdue(self, run: _Run, deadline_s: float) -> None:
        """Count a run once that missed its deadline."""
        with self._lock:
            if self._run is run and self._overdue is not run:
                self._overdue = run
                self.timeouts += 1
                self._say(logging.WARNING, f"did not answer within {deadline_s:g} s, its series are dropped")

    def _say(self, level: int, what: str) -> None:
        """Log a change; the same again every 15 s would only fill the journal."""
        LOG.log(logging.DEBUG if what == self._said else level, "collector %s: %s", self.name, harmless(what))
        self._said = what


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrape:
    """What one scrape gave: all series, and the names of the collectors that gave none because they failed."""

    metrics: tuple[Metric, ...]
    failed: tuple[str, ...]


class Scraper(PrometheusCollector):
    """All collectors as one: what a registry of prometheus_client asks for metrics.

    Parameters
    ----------
    collectors
        Sources; each name only once.
    deadline_s
        How long one scrape waits for its collectors [s].
    clock
        Monotonic seconds.
    """

    def __init__(
        self, collectors: Iterable[Collector], deadline_s: float = DEFAULT_DEADLINE_S, clock: Clock = time.monotonic
    ) -> None:
        self._clock = clock
        self._deadline_s = deadline_s
        self._workers = tuple(Worker(collector, clock) for collector in collectors)

    def describe(self) -> Iterable[Metric]:
        """Name no metrics: registering must not run the collectors."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Return the metrics of one scrape."""
        return self.scrape().metrics

    def scrape(self) -> Scrape:
        """Run all collectors side by side; return the series of those that answered, and metrics about all."""
        runs = [(worker, worker.request()) for worker in self._workers]
        answers = [(worker.name, worker.wait(run, self._deadline_s)) for worker, run in runs]
        about = self._about({name: metrics is not None for name, metrics in answers})
        return Scrape(
            metrics=tuple(metric for _, metrics in answers for metric in metrics or ()) + about,
            failed=tuple(name for name, metrics in answers if metrics is None),
        )

    def _about(self, answered: dict[str, bool]) -> tuple[Metric, ...]:
        """Tell how the collectors themselves are."""
        families = Families()
        for worker in self._workers:
            running_s, name = worker.running_s(), worker.name
            duration_s = worker.last_duration_s if answered[name] or running_s is None else running_s
            age_s = None if worker.succeeded_at is None else self._clock() - worker.succeeded_at
            present = None if worker.source_present is None else float(worker.source_present)
            families.gauge(
                "opsk_collector_success",
                "1 when the collector answered this scrape, if only to say that there is nothing here; 0 when it "
                "failed or missed the deadline, and its series are absent.",
                float(answered[name]),
                collector=name,
            )
            families.gauge(
                "opsk_collector_source_present",
                "1 when the node had what the collector reads at its last success, 0 when not (no HCA, say).",
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
                    "Runs that failed: with an error, or by missing the deadline of a scrape.",
                    count,
                    collector=name,
                    kind=kind,
                )
        return families.all()

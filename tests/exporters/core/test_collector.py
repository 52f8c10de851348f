"""Does one collector that hangs, fails or has nothing leave the scrape of the others as it is?"""

from __future__ import annotations

import gc
import logging
import threading
import time
import weakref
from collections.abc import Iterable

import pytest
from prometheus_client import Metric

from opsk.errors import OpskError, TelemetryError
from opsk_exporters.core.collector import Collector, NoDataError, Scrape, Scraper
from opsk_exporters.core.exposition import Families

PATIENCE_S = 30
"""How long a test waits for another thread before it gives up; no outcome depends on it."""


class Steady:
    """Answers at once, and counts how often."""

    name = "steady"

    def __init__(self) -> None:
        self.runs = 0

    def collect(self) -> Iterable[Metric]:
        self.runs += 1
        families = Families()
        families.counter("opsk_steady_runs_total", "Runs.", self.runs)
        return families.all()


class Scripted:
    """Does what its list says, one entry a run: raises an exception, or gives a value."""

    name = "scripted"

    def __init__(self, *entries: BaseException | float) -> None:
        self._entries = list(entries)

    def collect(self) -> Iterable[Metric]:
        entry = self._entries.pop(0)
        if isinstance(entry, BaseException):
            raise entry
        families = Families()
        families.gauge("opsk_scripted_value", "Value.", entry)
        return families.all()


class Hanging:
    """Hangs until it is let go, as a read in a sick driver does."""

    name = "hanging"

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.runs = 0

    def collect(self) -> Iterable[Metric]:
        self.runs += 1
        self.let_go.wait(PATIENCE_S)
        families = Families()
        families.gauge("opsk_hanging_value", "Value.", self.runs)
        return families.all()


def values(scrape: Scrape) -> dict[tuple[str, ...], float]:
    """Return samples by name and label values."""
    return {
        (sample.name, *sample.labels.values()): sample.value for metric in scrape.metrics for sample in metric.samples
    }


def scraper(*collectors: Collector, deadline_s: float = 10.0) -> Scraper:
    return Scraper(collectors, deadline_s=deadline_s)


def test_series_of_all_collectors_are_shown() -> None:
    shown = values(scraper(Steady(), Scripted(3.0)).scrape())
    assert shown["opsk_steady_runs_total",] == 1
    assert shown["opsk_scripted_value",] == 3
    assert shown["opsk_collector_success", "steady"] == 1
    assert shown["opsk_collector_age_seconds", "steady"] >= 0


def test_a_failed_collector_drops_its_series_and_the_others_stay() -> None:
    source = scraper(Steady(), Scripted(3.0, TelemetryError("gone"), 4.0))
    source.scrape()
    failed = source.scrape()
    shown = values(failed)
    assert ("opsk_scripted_value",) not in shown
    assert shown["opsk_collector_success", "scripted"] == 0
    assert shown["opsk_collector_failures_total", "scripted", "error"] == 1
    assert shown["opsk_steady_runs_total",] == 2
    assert failed.failed == ("scripted",)
    again = values(source.scrape())
    assert again["opsk_scripted_value",] == 4
    assert again["opsk_collector_success", "scripted"] == 1


@pytest.mark.parametrize("error", [ZeroDivisionError(), TimeoutError("own"), SystemExit(3), KeyboardInterrupt()])
def test_however_a_collector_fails_its_worker_lives_on(error: BaseException) -> None:
    source = scraper(Scripted(error, 1.0))
    assert values(source.scrape())["opsk_collector_success", "scripted"] == 0
    assert values(source.scrape())["opsk_scripted_value",] == 1


def test_nothing_here_is_no_failure_and_is_logged_quieter(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="opsk.exporter"):
        shown = values(scraper(Scripted(NoDataError("no HCA"))).scrape())
    assert shown["opsk_collector_success", "scripted"] == 1
    assert shown["opsk_collector_source_present", "scripted"] == 0
    assert shown["opsk_collector_failures_total", "scripted", "error"] == 0
    assert max(record.levelno for record in caplog.records) == logging.INFO


def test_a_failure_is_logged_once_until_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    source = scraper(Scripted(TelemetryError("a"), TelemetryError("a"), TelemetryError("b\x1b[2J"), 1.0))
    with caplog.at_level(logging.INFO, logger="opsk.exporter"):
        for _ in range(4):
            source.scrape()
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 3
    assert said[1].endswith("TelemetryError: b\\x1b[2J")
    assert said[2].endswith("works")


def test_a_hung_collector_misses_its_deadline_and_the_scrape_goes_on() -> None:
    hanging = Hanging()
    source = scraper(Steady(), hanging, deadline_s=0.05)
    try:
        shown = values(source.scrape())
        assert shown["opsk_steady_runs_total",] == 1
        assert ("opsk_hanging_value",) not in shown
        assert shown["opsk_collector_success", "hanging"] == 0
        assert shown["opsk_collector_failures_total", "hanging", "deadline"] == 1
        assert ("opsk_collector_age_seconds", "hanging") not in shown
        assert shown["opsk_collector_duration_seconds", "hanging"] >= 0.05
    finally:
        hanging.let_go.set()


def test_a_hung_collector_gets_no_second_run_until_it_returns() -> None:
    hanging = Hanging()
    source = scraper(Steady(), hanging, deadline_s=0.05)
    threads_before = threading.active_count()
    for _ in range(5):
        shown = values(source.scrape())
    assert hanging.runs == 1
    assert threading.active_count() <= threads_before  # threads of other tests may end meanwhile
    # One hang is one missed deadline, however many scrapes saw it.
    assert shown["opsk_collector_failures_total", "hanging", "deadline"] == 1
    assert shown["opsk_steady_runs_total",] == 5
    hanging.let_go.set()
    give_up = time.monotonic() + PATIENCE_S
    while source.scrape().failed and time.monotonic() < give_up:
        time.sleep(0.01)
    shown = values(source.scrape())
    assert shown["opsk_collector_success", "hanging"] == 1
    assert shown["opsk_hanging_value",] == hanging.runs > 1


def test_scrapes_at_the_same_time_share_one_run() -> None:
    hanging = Hanging()
    source = scraper(hanging, deadline_s=PATIENCE_S)
    answers: list[Scrape] = []
    threads = [threading.Thread(target=lambda: answers.append(source.scrape())) for _ in range(10)]
    for thread in threads:
        thread.start()
    give_up = time.monotonic() + PATIENCE_S
    while hanging.runs == 0 and time.monotonic() < give_up:
        time.sleep(0.001)
    time.sleep(0.05)  # lets the scrapers come; one that comes later gets a run of its own, and the bound below holds
    hanging.let_go.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(answers) == 10
    assert all(("opsk_hanging_value",) in values(answer) for answer in answers)
    assert hanging.runs < 10


def test_the_age_grows_while_a_collector_fails() -> None:
    now = [100.0]
    source = Scraper([Scripted(1.0, TelemetryError("x"))], clock=lambda: now[0])
    assert values(source.scrape())["opsk_collector_age_seconds", "scripted"] == 0
    now[0] = 115.0
    assert values(source.scrape())["opsk_collector_age_seconds", "scripted"] == 15


def test_errors_are_gone_with_the_scrape_though_nobody_looks_for_cycles() -> None:
    def failed(number: int) -> OpskError:
        error: OpskError = NoDataError("nothing") if number % 2 else TelemetryError("gone")
        error.__cause__ = TelemetryError("what led to it")
        return error

    errors = [failed(number) for number in range(4)]
    known = [weakref.ref(error) for error in errors]
    source = scraper(Scripted(*errors, 1.0))
    errors.clear()
    gc.disable()
    try:
        for _ in range(5):  # the last run lets go of the one before
            source.scrape()
        assert [each() for each in known] == [None] * 4
    finally:
        gc.enable()


def test_a_collector_may_have_a_deadline_of_its_own() -> None:
    hanging, steady = Hanging(), Steady()
    source = Scraper([hanging, steady], deadline_s=PATIENCE_S, deadlines_s={"hanging": 0.05})
    try:
        assert source.scrape().failed == ("hanging",)
    finally:
        hanging.let_go.set()


def test_a_scrape_never_outlasts_its_limit_whatever_the_deadlines_are() -> None:
    hanging = Hanging()
    source = Scraper([Steady(), hanging], deadline_s=10 * PATIENCE_S)
    began = time.monotonic()
    try:
        assert source.scrape(limit_s=0.05).failed == ("hanging",)
        assert time.monotonic() - began < PATIENCE_S
    finally:
        hanging.let_go.set()


def test_a_scraper_in_a_hurry_is_no_missed_deadline(caplog: pytest.LogCaptureFixture) -> None:
    hanging = Hanging()
    source = scraper(hanging, deadline_s=10 * PATIENCE_S)
    try:
        with caplog.at_level(logging.INFO, logger="opsk.exporter"):
            for _ in range(3):
                shown = values(source.scrape(limit_s=0.01))
        assert shown["opsk_collector_success", "hanging"] == 0
        assert shown["opsk_collector_failures_total", "hanging", "deadline"] == 0
        assert caplog.records == []
    finally:
        hanging.let_go.set()


def test_an_absurd_number_is_the_failure_of_its_collector_alone() -> None:
    shown = values(scraper(Steady(), Scripted(10**400)).scrape())
    assert shown["opsk_steady_runs_total",] == 1
    assert shown["opsk_collector_failures_total", "scripted", "error"] == 1


def test_how_each_collector_is_can_be_told_without_running_any() -> None:
    hanging = Hanging()
    collectors = [Steady(), Scripted(TelemetryError("gone")), hanging]
    source = Scraper(collectors, deadline_s=0.05, missing={"host": "not installed: psutil"})
    assert {each.state for each in source.statuses()} == {"not run yet", "not installed"}
    try:
        source.scrape()
        states = {each.name: each.state for each in source.statuses()}
        assert states == {"steady": "works", "scripted": "fails", "hanging": "hangs", "host": "not installed"}
        said = {each.name: each.message for each in source.statuses()}
        assert "gone" in said["scripted"]
        assert hanging.runs == 1
    finally:
        hanging.let_go.set()


def test_a_collector_that_is_missing_shows() -> None:
    shown = values(Scraper([Steady()], missing={"host": "not installed: psutil"}).scrape())
    assert shown["opsk_collector_missing", "host"] == 1


def test_two_collectors_fill_one_family() -> None:
    class Second(Steady):
        name = "second"

    shown = [metric.name for metric in scraper(Steady(), Second()).scrape().metrics]
    assert shown.count("opsk_steady_runs") == 1

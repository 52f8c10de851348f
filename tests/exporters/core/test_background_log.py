"""Does a stderr that nobody reads, or a collector that hangs while it logs, hold up scrapes?"""

from __future__ import annotations

import io
import logging
import threading
import time
from collections.abc import Iterable

import pytest
from prometheus_client import Metric

from opsk_exporters.core.background_log import MAX_LINES, log_in_background
from opsk_exporters.core.collector import Scraper

LOG = logging.getLogger("opsk.exporter")


class Stalled(io.StringIO):
    """A stream whose reader has stopped, until told otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()

    def write(self, text: str) -> int:
        self.gate.wait(20)
        return super().write(text)


def test_a_collector_that_hangs_while_it_logs_leaves_scrapes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # those of pytest

    class Logging:
        name = "logging"

        def collect(self) -> Iterable[Metric]:
            LOG.warning("a long line")
            time.sleep(0.2)  # past the deadline: the scrape logs that as well
            return ()

    stream = Stalled()
    with log_in_background(stream, "%(message)s"):
        scraper = Scraper([Logging()], deadline_s=0.02)
        began = time.monotonic()
        first, second = scraper.scrape(), scraper.scrape()
        assert time.monotonic() - began < 5
        assert (first.failed, second.failed) == (("logging",), ("logging",))
        stream.gate.set()
        scraper.close()
    assert stream.getvalue().splitlines()[:2] == [
        "a long line", "collector logging: did not answer within 0.02 s, its series are dropped"
    ]  # fmt: skip


def test_lines_that_nobody_reads_are_lost_and_hold_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    stream = Stalled()
    with log_in_background(stream, "%(message)s"):
        for number in range(MAX_LINES + 50):
            LOG.warning("%d", number)
        stream.gate.set()
        deadline = time.monotonic() + 10
        while stream.getvalue().count("\n") < MAX_LINES and time.monotonic() < deadline:
            time.sleep(0.01)
    assert MAX_LINES <= stream.getvalue().count("\n") <= MAX_LINES + 1

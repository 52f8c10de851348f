"""Does somebody who wants the GPUs always get an answer in time, and ask the driver no more than needed?"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from opsk.errors import TelemetryError
from opsk.telemetry.gpu.samples import GpuDriverMissingError, GpuReading
from opsk.telemetry.gpu.shared_source import SharedGpus

PATIENCE_S = 0.1


class SlowGpus:
    """A source that answers when it is let, and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.let = threading.Event()
        self.let.set()
        self.fault: Exception | None = None

    def gpus(self) -> GpuReading:
        self.asked += 1
        assert self.let.wait(30)
        if self.fault is not None:
            raise self.fault
        return GpuReading(read_at_s=float(self.asked))


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def source() -> Iterator[SlowGpus]:
    slow = SlowGpus()
    yield slow
    slow.let.set()


def test_collectors_of_one_scrape_share_a_reading(source: SlowGpus) -> None:
    clock = Clock()
    shared = SharedGpus(source, fresh_s=1.0, clock=clock)
    assert [shared.gpus().read_at_s for _ in range(3)] == [1, 1, 1]
    clock.now_s = 1.0
    assert shared.gpus().read_at_s == 2


def test_callers_at_the_same_time_wait_for_one_reading(source: SlowGpus) -> None:
    shared = SharedGpus(source, fresh_s=0.0)
    source.let.clear()
    with ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(shared.gpus) for _ in range(8)]
        deadline = time.monotonic() + 10
        while source.asked == 0 and time.monotonic() < deadline:
            time.sleep(0.001)
        # Let the others arrive before the answer does; those that come later begin a second reading.
        time.sleep(0.2)
        source.let.set()
        assert {future.result().read_at_s for future in waiting} == {1}
    assert source.asked == 1


def test_a_driver_that_hangs_is_told_in_time_and_at_once_the_next_time(source: SlowGpus) -> None:
    clock = Clock()
    shared = SharedGpus(source, patience_s=PATIENCE_S, fresh_s=0.0, clock=clock)
    source.let.clear()
    with pytest.raises(TelemetryError, match="has not answered"):
        shared.gpus()
    patient = SharedGpus(source, patience_s=1000.0, fresh_s=0.0, clock=clock)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(patient.gpus)
        while source.asked < 2:
            time.sleep(0.001)
        # The patience of the run that hangs is over: nobody waits for another 1,000 s.
        clock.now_s = 2000.0
        with pytest.raises(TelemetryError, match="has not answered for 2000 s"):
            patient.gpus()
        source.let.set()
        first.result()
    assert source.asked == 2


def test_a_driver_that_comes_back_is_read_again(source: SlowGpus) -> None:
    shared = SharedGpus(source, patience_s=PATIENCE_S, fresh_s=0.0)
    source.let.clear()
    with pytest.raises(TelemetryError):
        shared.gpus()
    source.let.set()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            assert shared.gpus().read_at_s >= 1
            break
        except TelemetryError:
            time.sleep(0.01)
    else:
        pytest.fail("never read again")


def test_errors_reach_whoever_waits(source: SlowGpus) -> None:
    shared = SharedGpus(source, fresh_s=0.0)
    source.fault = GpuDriverMissingError("no driver")
    with pytest.raises(GpuDriverMissingError, match="no driver"):
        shared.gpus()
    source.fault = ZeroDivisionError("odd")
    with pytest.raises(TelemetryError, match="ZeroDivisionError"):
        shared.gpus()
    source.fault = None
    assert shared.gpus().read_at_s == 3

"""Does an exporter that is closed leave a thread, an open file or a driver behind?"""

from __future__ import annotations

import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterable
from pathlib import Path

import pytest
from prometheus_client import Metric

from opsk.errors import TelemetryError
from opsk.telemetry.gpu.nvml.caller import TIMEOUT
from opsk.telemetry.gpu.samples import GpuReading
from opsk.telemetry.gpu.shared_source import SharedGpus
from opsk.telemetry.power.node_power import GpuPowerWatch, WatchedGpus
from opsk_exporters.catalogue import COLLECTORS, Sources, make_collectors
from opsk_exporters.core.collector import Scraper
from opsk_exporters.gpu.source import NvidiaDriver
from tests.fakes.every_metric import every_node
from tests.fakes.threads import all_end


@pytest.fixture(autouse=True)
def own_procfs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the next test psutil's own place of procfs back."""
    monkeypatch.setattr("psutil.PROCFS_PATH", "/proc")


def begun_since(before: list[threading.Thread]) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread not in before]


def open_files() -> set[Path]:
    return {path for path in Path("/proc/self/fd").iterdir() if path.is_symlink()}


def test_no_thread_and_no_file_is_left_of_an_exporter_of_a_whole_node(tmp_path: Path) -> None:
    before, files_before = threading.enumerate(), open_files()
    sources = Sources(every_node(tmp_path).settings)
    scraper = Scraper(make_collectors(COLLECTORS, sources).collectors, deadline_s=30.0)
    scraper.scrape()
    threads = begun_since(before)
    assert len(threads) > len(COLLECTORS)  # workers, and what reads in the background
    scraper.close()
    sources.close()
    assert all_end(threads), threads
    assert not begun_since(before)
    assert open_files() <= files_before


def test_a_collector_that_hangs_holds_up_the_end_only_so_long_and_ends_when_it_can() -> None:
    gate = threading.Event()

    class Hanging:
        name = "hanging"
        closed = False

        def collect(self) -> Iterable[Metric]:
            gate.wait(60)
            return ()

        def close(self) -> None:
            self.closed = True

    before, hanging = threading.enumerate(), Hanging()
    scraper = Scraper([hanging], deadline_s=0.01)
    scraper.scrape()
    scraper.close(wait_s=0.01)
    assert not hanging.closed  # nobody takes away what it reads from
    threads = begun_since(before)
    gate.set()
    assert all_end(threads)
    assert hanging.closed


class Driver:
    """A driver that counts how often it was let go."""

    def __init__(self) -> None:
        self.closed = 0

    def gpus(self) -> GpuReading:
        return GpuReading(read_at_s=0.0)

    def close(self) -> None:
        self.closed += 1


def test_a_driver_is_let_go_by_the_thread_that_reads_it() -> None:
    before, driver = threading.enumerate(), Driver()
    shared = SharedGpus(WatchedGpus(driver, GpuPowerWatch()))
    shared.gpus()
    threads = begun_since(before)
    shared.close()
    assert all_end(threads)
    assert driver.closed == 1
    late = SharedGpus(driver)
    late.close()
    with pytest.raises(TelemetryError, match="not read any more"):
        late.gpus()


def test_the_listener_for_xids_ends_with_the_driver() -> None:
    class Silent:
        def __getattr__(self, name: str) -> object:
            if not name.startswith("nvml"):
                raise AttributeError(name)
            return lambda *_arguments: 1

        def nvmlEventSetWait_v2(self, *_arguments: object) -> object:  # noqa: N802 - NVML's name
            error = RuntimeError("timeout")
            error.value = TIMEOUT  # type: ignore[attr-defined]
            threading.Event().wait(0.01)
            raise error

    class Sink:
        def saw(self, gpu_uuid: str | None, pci: str | None, code: int, at_unix_s: float, source: str, /) -> object:
            raise AssertionError("nothing happened")

    before, driver = threading.enumerate(), NvidiaDriver(Silent())
    driver.listen(Sink())
    threads = begun_since(before)
    assert [thread.name for thread in threads] == ["gpu-events"]
    driver.close()
    assert all_end(threads)


EXPORTER = """
import ctypes
from opsk_exporters import cli
from opsk_exporters.catalogue import CollectorSet

class Hanging:
    name = "hanging"
    def collect(self):
        ctypes.CDLL(None).pause()

cli.make_collectors = lambda *_, **__: CollectorSet(collectors=(Hanging(),), missing={})
cli.exporter(["--listen", "127.0.0.1:0", "--deadline", "0.05"])
"""


def test_an_exporter_whose_collector_hangs_for_ever_ends_within_seconds() -> None:
    command = ["timeout", "-s", "KILL", "60", sys.executable, "-c", EXPORTER]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        address = process.stderr.readline().split()[-1]
        with urllib.request.urlopen(address, timeout=30) as answer:
            assert b'opsk_collector_success{collector="hanging"} 0' in answer.read()
        process.terminate()  # timeout passes it on
        process.communicate(timeout=60)
    assert process.returncode == 0

"""Does a scrape answer, whatever NVML does, and does the loss show in the next scrape? On the real pynvml."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from opsk.lab.machine.gpus import gpu_uuid
from tests.fakes.nvml import Nvml
from tests.fakes.nvml_gpus import make_h100_node

_PROGRAM = """
import time
sys.path[:0] = [{root!r}, {root!r} + "/exporters"]
from opsk.telemetry.gpu.shared_source import SharedGpus
from opsk.telemetry.gpu.nvml.source import NvmlGpus
from opsk_exporters.core.collector import Scraper
from opsk_exporters.core.exposition import Families
from opsk_exporters.gpu.collector import GpuCollector

class Other:
    name = "other"
    def collect(self):
        families = Families()
        families.gauge("opsk_other", "Another.", 1.0)
        return families.all()

source = SharedGpus(NvmlGpus(), patience_s={patience_s}, fresh_s=0.0)
scraper = Scraper([GpuCollector(source), Other()], deadline_s={deadline_s})
for line in sys.stdin:
    began = time.monotonic()
    scrape = scraper.scrape()
    took = time.monotonic() - began
    series = {{}}
    for metric in scrape.metrics:
        for sample in metric.samples:
            key = sample.labels.get("gpu", sample.labels.get("collector", ""))
            series.setdefault(sample.name, {{}})[key] = sample.value
    print(json.dumps({{"series": series, "failed": scrape.failed, "took_s": took}}), flush=True)
"""


class Exporter:
    """A child that scrapes itself when it is told to."""

    def __init__(self, nvml: Nvml, *, patience_s: float, deadline_s: float) -> None:
        root = str(Path(__file__).resolve().parents[3])
        self._child = nvml.start(_PROGRAM.format(root=root, patience_s=patience_s, deadline_s=deadline_s))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.kill()
        self._child.communicate()

    def scrape(self) -> Any:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write("\n")
        self._child.stdin.flush()
        return json.loads(self._child.stdout.readline() or "null")


@pytest.fixture
def node(tmp_path: Path) -> Nvml:
    return Nvml(tmp_path, make_h100_node(4))


@pytest.fixture
def exporter(node: Nvml) -> Iterator[Exporter]:
    with Exporter(node, patience_s=30.0, deadline_s=60.0) as running:
        yield running


@pytest.mark.parametrize("holds_driver", [0, 1])
def test_a_hanging_nvml_costs_the_gpus_series_and_nothing_else(node: Nvml, holds_driver: int) -> None:
    with Exporter(node, patience_s=2.0, deadline_s=4.0) as exporter:
        assert exporter.scrape()["failed"] == []
        node.write(
            make_h100_node(4).with_keys({"hang.nvmlDeviceGetUUID": "forever", "hang.holds_driver": holds_driver})
        )
        for _ in range(3):
            scrape = exporter.scrape()
            assert scrape["failed"] == ["gpu"]
            # Far more than the deadline of 4 s, and far less than a hang.
            assert scrape["took_s"] < 20
            assert scrape["series"]["opsk_other"] == {"": 1}
            assert scrape["series"]["opsk_collector_success"] == {"gpu": 0, "other": 1}
            assert not any(name.startswith("opsk_gpu") for name in scrape["series"])
        node.write(make_h100_node(4))
        deadline = time.monotonic() + 30
        while (scrape := exporter.scrape())["failed"] and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(scrape["series"]["opsk_gpu_power_watts"]) == 4


def test_a_lost_gpu_shows_within_one_scrape(node: Nvml, exporter: Exporter) -> None:
    assert set(exporter.scrape()["series"]["opsk_gpu_up"].values()) == {1}
    node.write(make_h100_node(4).with_keys({"gpu.2.lost": 1}))
    series = exporter.scrape()["series"]
    assert series["opsk_gpu_up"][gpu_uuid(2)] == 0
    assert gpu_uuid(2) not in series["opsk_gpu_power_watts"]
    assert len(series["opsk_gpu_power_watts"]) == 3


def test_a_driver_that_is_unloaded_fails_the_collector_and_comes_back(node: Nvml, exporter: Exporter) -> None:
    exporter.scrape()
    node.write(make_h100_node(4).with_keys({"driver.loaded": 0}))
    gone = exporter.scrape()
    assert gone["failed"] == ["gpu"]
    assert "opsk_gpu_up" not in gone["series"]
    node.write(make_h100_node(4).with_keys({"driver.generation": 1}))
    assert len(exporter.scrape()["series"]["opsk_gpu_up"]) == 4


def test_a_node_whose_driver_was_never_there_is_no_failure(node: Nvml, exporter: Exporter) -> None:
    node.write(make_h100_node(4).with_keys({"driver.loaded": 0}))
    scrape = exporter.scrape()
    assert scrape["failed"] == []
    assert scrape["series"]["opsk_collector_source_present"]["gpu"] == 0


def test_a_node_without_the_library_is_no_failure(node: Nvml, tmp_path: Path) -> None:
    nowhere = Nvml(tmp_path, make_h100_node(1), at=tmp_path / "empty" / "libnvidia-ml.so.1")
    with Exporter(nowhere, patience_s=30.0, deadline_s=60.0) as exporter:
        scrape = exporter.scrape()
    if scrape["series"].get("opsk_gpu_up"):
        pytest.skip("this machine has an NVML of its own")
    assert scrape["failed"] == []
    assert scrape["series"]["opsk_collector_source_present"]["gpu"] == 0

"""Whatever breaks on a node: does the scrape answer, do the other collectors go on, and does the loss show at once?

A real exporter on a whole fake node: 4 GPUs by the NVML stand-in, HCAs, RAPL, control groups, prolog files. Times are
only compared with what hangs, which is ten times as long as anything else takes.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from opsk.lab.machine.gpus import gpu_uuid
from opsk_exporters.catalogue import COLLECTORS
from tests.fakes.exporter import PATIENCE_S, Exporter, Series, having, value
from tests.fakes.full_node import FIRST_JOB, FullNode, full_node
from tests.fakes.nvml import Nvml
from tests.fakes.nvml_gpus import make_h100_node, with_gpu
from tests.fakes.powercap import SERVER_RANGE_UJ

GPUS = 4
HANG_S = 30.0
TIMEOUT_S = 10.0
"""What a scraper says that it waits: Prometheus' default."""
ABSENT_HERE = {"amdgpu", "reports", "slurm"}
PRESENT = set(COLLECTORS) - ABSENT_HERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A node, its driver, and the exporter on it."""

    node: FullNode
    nvml: Nvml
    exporter: Exporter

    def next_scrape(self) -> Series:
        """Return a scrape that does not share the last one's reading of the GPUs."""
        time.sleep(1.0)
        return self.exporter.scrape(TIMEOUT_S)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    node = full_node(tmp_path, hcas=2, jobs=2, gpus=GPUS)
    nvml = Nvml(tmp_path, make_h100_node(GPUS))
    environment = {**nvml.environment, "OPSK_CONFIG": str(node.site_file)}
    with Exporter(environment=environment) as exporter:
        assert failed(exporter.scrape()) == set(), exporter.said
        yield Scene(node=node, nvml=nvml, exporter=exporter)


def failed(found: Series) -> set[str]:
    """Return the collectors that gave nothing."""
    return {dict(labels)["collector"] for labels, up in having(found, "opsk_collector_success").items() if not up}


def families(found: Series) -> set[str]:
    """Return beginnings of names, one for each collector's series."""
    return {name.split("_")[1] for name, _ in found}


def test_the_node_is_whole_to_begin_with(scene: Scene) -> None:
    found = scene.next_scrape()
    present = {
        dict(labels)["collector"]
        for labels, is_there in having(found, "opsk_collector_source_present").items()
        if is_there
    }
    assert present >= PRESENT - {"slurm", "training"}
    assert {"gpu", "infiniband", "host", "power", "job", "kernel"} <= families(found)
    assert len(having(found, "opsk_gpu_up")) == GPUS
    assert len(having(found, "opsk_job_gpu")) == GPUS


def test_a_lost_gpu_shows_and_the_others_stay(scene: Scene) -> None:
    lost = gpu_uuid(2)
    state = scene.nvml.state
    scene.nvml.write(with_gpu(state, 2, state.gpus[2].having(lost=1)))
    found = scene.next_scrape()
    assert value(found, "opsk_gpu_up", gpu=lost) == 0.0
    assert value(found, "opsk_gpu_power_watts", gpu=lost) is None
    assert len([up for up in having(found, "opsk_gpu_up").values() if up]) == GPUS - 1
    assert failed(found) == set()
    # The job keeps it: a lost GPU is still allocated.
    assert value(found, "opsk_job_gpu", gpu=lost) == 1.0


@pytest.mark.parametrize("where", ["all", "nvmlDeviceGetClockInfo"])
def test_nvml_hangs_and_only_the_gpus_are_missing(scene: Scene, where: str) -> None:
    scene.nvml.write(scene.nvml.state.with_keys({f"hang.{where}": HANG_S, "hang.holds_driver": 1}))
    time.sleep(1.0)
    began = time.monotonic()
    found = scene.exporter.scrape(TIMEOUT_S)
    assert time.monotonic() - began < TIMEOUT_S
    assert failed(found) == {"gpu"}
    # Dropped, not zeroed.
    assert having(found, "opsk_gpu_power_watts") == {}
    assert having(found, "opsk_gpu_up") == {}
    assert {"infiniband", "host", "power", "job"} <= families(found)
    assert value(found, "opsk_job_cpu_seconds_total", job=str(FIRST_JOB), mode="user") == FIRST_JOB
    # It does not get worse: who knows that it hangs does not wait again.
    again = time.monotonic()
    assert failed(scene.exporter.scrape(TIMEOUT_S)) == {"gpu"}
    assert time.monotonic() - again < TIMEOUT_S
    assert value(found, "opsk_collector_age_seconds", collector="gpu") is not None


def test_nvml_hangs_and_a_scraper_in_a_hurry_is_answered(scene: Scene) -> None:
    scene.nvml.write(scene.nvml.state.with_keys({"hang.all": HANG_S}))
    time.sleep(1.0)
    began = time.monotonic()
    found = scene.exporter.scrape(1.0)
    assert time.monotonic() - began < HANG_S / 2
    assert "gpu" in failed(found)
    assert {"infiniband", "host", "power"} <= families(found)


def test_the_driver_is_reloaded(scene: Scene) -> None:
    energy = value(scene.next_scrape(), "opsk_gpu_power_watts", gpu=gpu_uuid(0))
    scene.nvml.write(make_h100_node(GPUS).with_keys({"driver.loaded": 0}))
    found = scene.next_scrape()
    assert failed(found) == {"gpu"}
    assert having(found, "opsk_gpu_power_watts") == {}
    scene.nvml.write(make_h100_node(GPUS).with_keys({"driver.generation": 1}))
    give_up = time.monotonic() + PATIENCE_S
    while failed(found := scene.next_scrape()) and time.monotonic() < give_up:
        pass
    assert value(found, "opsk_gpu_power_watts", gpu=gpu_uuid(0)) == energy
    assert len(having(found, "opsk_gpu_up")) == GPUS


def test_a_file_of_sysfs_hangs_and_only_the_ports_are_missing(scene: Scene) -> None:
    # Reading a pipe that nobody writes to hangs, as reading a register of a dead device does.
    counter = scene.node.sysfs.port("mlx5_1") / "counters" / "port_rcv_data"
    counter.unlink()
    os.mkfifo(counter)
    found = scene.exporter.scrape(TIMEOUT_S)
    if "infiniband" not in failed(found):
        # The reader does not wait for pipes: then that one value is absent, which is better still.
        assert value(found, "opsk_infiniband_port_received_bytes_total", device="mlx5_1") is None
        assert value(found, "opsk_infiniband_port_received_bytes_total", device="mlx5_0") is not None
        return
    assert failed(found) == {"infiniband"}
    assert value(found, "opsk_collector_failures_total", collector="infiniband", kind="deadline") == 1.0
    assert {"gpu", "host", "power", "job"} <= families(found)


def test_jobs_come_and_go_in_the_middle_of_scrapes(scene: Scene) -> None:
    done = threading.Event()

    def churn() -> None:
        number = FIRST_JOB + 50
        while not done.is_set():
            group = scene.node.add_job(number, (0,))
            shutil.rmtree(group)
            (scene.node.jobs_folder / str(number)).unlink()
            number += 1

    with ThreadPoolExecutor(1) as pool:
        churning = pool.submit(churn)
        try:
            found = [scene.exporter.scrape(TIMEOUT_S) for _ in range(30)]
        finally:
            done.set()
        churning.result(PATIENCE_S)
    assert [failed(each) for each in found] == [set()] * 30
    assert all(value(each, "opsk_job_gpus", job=str(FIRST_JOB)) == 2.0 for each in found)


def test_a_job_that_is_gone_keeps_no_gpu(scene: Scene) -> None:
    shutil.rmtree(scene.node.cgroups.scope / f"job_{FIRST_JOB}")
    (scene.node.jobs_folder / str(FIRST_JOB)).unlink()
    found = scene.next_scrape()
    assert failed(found) == set()
    assert having(found, "opsk_job_gpu", job=str(FIRST_JOB)) == {}
    assert len(having(found, "opsk_job_gpu", job=str(FIRST_JOB + 1))) == GPUS // 2


def test_the_counter_of_energy_goes_around_and_ours_goes_on(scene: Scene) -> None:
    power = scene.node.power
    power.zone("intel-rapl:0", "package-0", SERVER_RANGE_UJ - 1_000_000)
    before = value(scene.next_scrape(), "opsk_power_energy_joules_total", sensor="package-0")
    power.zone("intel-rapl:0", "package-0", 2_000_000)
    after = value(scene.next_scrape(), "opsk_power_energy_joules_total", sensor="package-0")
    assert before is not None
    assert after is not None
    # 1 J to the end of the range, 2 J from its beginning; the range has SERVER_RANGE_UJ + 1 values.
    assert after - before == pytest.approx(3.0, abs=1e-5)


def test_energy_that_cannot_be_read_is_absent_and_the_sensors_stay(scene: Scene) -> None:
    for zone in ("intel-rapl:0", "intel-rapl:1"):
        counter = scene.node.power.root / "class" / "powercap" / zone / "energy_uj"
        counter.unlink()
        counter.mkdir()  # root may read any file: reading a folder fails for everybody
    found = scene.next_scrape()
    assert failed(found) == set()
    assert having(found, "opsk_power_energy_joules_total", sensor="package-0") == {}
    assert having(found, "opsk_power_temperature_celsius")
    told = having(found, "opsk_power_unreadable_sensors", source="rapl", reason="error")
    assert list(told.values()) == [2.0]


def test_the_prolog_was_killed_half_way(scene: Scene) -> None:
    (scene.node.jobs_folder / "900").write_text("opsk-job 1\njob=900\nuser=ada\ngpus=0,", encoding="ascii")
    found = scene.next_scrape()
    assert failed(found) == set()
    assert value(found, "opsk_job_bad_files", kind="torn") == 1.0
    assert having(found, "opsk_job_gpu", job="900") == {}
    assert len(having(found, "opsk_job_gpu")) == GPUS


def test_ten_scrapers_at_once_all_get_a_whole_scrape(scene: Scene) -> None:
    for _ in range(2):  # what a scrape tells of the one before it is there from then on
        scene.exporter.scrape(TIMEOUT_S)
    with ThreadPoolExecutor(10) as pool:
        found = list(pool.map(lambda _: scene.exporter.scrape(TIMEOUT_S), range(10)))
    assert [failed(each) for each in found] == [set()] * 10
    # A ratio over the time since the scrape before is absent where that was a moment ago.
    since = {"opsk_infiniband_port_congestion_ratio"}
    names = {name for name, _ in found[0]} - since
    assert [{name for name, _ in each} - since ^ names for each in found] == [set()] * 10
    assert all(len(having(each, "opsk_gpu_up")) == GPUS for each in found)


def test_everything_at_once(scene: Scene) -> None:
    scene.nvml.write(scene.nvml.state.with_keys({"hang.all": HANG_S}))
    shutil.rmtree(scene.node.sysfs.root / "class")
    shutil.rmtree(scene.node.cgroups.root)
    (scene.node.root / "proc" / "stat").unlink()
    time.sleep(1.0)
    began = time.monotonic()
    found = scene.exporter.scrape(TIMEOUT_S)
    assert time.monotonic() - began < TIMEOUT_S
    assert "gpu" in failed(found)
    # Processors and the time of boot are gone; memory, network and disks are told all the same.
    assert list(having(found, "opsk_host_unreadable_parts").values()) == [3]
    assert having(found, "opsk_host_memory_size_bytes")
    assert not having(found, "opsk_host_cpu_seconds_total")
    assert len(having(found, "opsk_collector_success")) == len(COLLECTORS)
    assert "Traceback" not in scene.exporter.said

"""Are XIDs and other events of the kernel log shown as counters that say once what happened once?"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from opsk.errors import TelemetryError
from opsk.telemetry.kernel_log import KmsgReader
from opsk_exporters.core.collector import NoDataError
from opsk_exporters.gpu.xids import MAX_GPUS, MAX_UNKNOWN, XidCollector, XidTally, make
from tests.fakes.gpus import FixedGpus, gpu_uuid, h100, reading

BOOT_UNIX_S = 1_000_000.0
PCI = "0000:1a:00.0"
GPU = replace(h100(0), pci=PCI)


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Kernel:
    """A kernel log as a file, to which records are added at a time since boot."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "kmsg"
        self.path.touch()
        self._next = 0

    def says(self, at_s: float, text: str) -> None:
        with self.path.open("a", encoding="utf-8") as log:
            log.write(f"3,{self._next},{int(at_s * 1e6)},-;{text}\n")
        self._next += 1

    def xid(self, at_s: float, code: int) -> None:
        self.says(at_s, f"NVRM: Xid (PCI:0000:1a:00): {code}, pid=1, name=x, what")


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


@pytest.fixture
def clock() -> Clock:
    return Clock(BOOT_UNIX_S + 1000.0)


def collector(kernel: Kernel, clock: Clock, **more: object) -> XidCollector:
    return XidCollector(KmsgReader(kernel.path, boot_unix_s=BOOT_UNIX_S), clock=clock, **more)  # type: ignore[arg-type]


def series(collector: XidCollector) -> dict[str, float]:
    found = {}
    for metric in collector.collect():
        for sample in metric.samples:
            labels = ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}"] = sample.value
    return found


def test_what_happened_before_the_start_counts_with_its_own_time(kernel: Kernel, clock: Clock) -> None:
    kernel.xid(10.0, 79)
    found = series(collector(kernel, clock, gpus=FixedGpus(reading(GPU))))
    labels = f"class=reboot,gpu={gpu_uuid(0)},xid=79"
    assert found[f"opsk_gpu_xid_errors_total{{{labels}}}"] == 1
    assert found[f"opsk_gpu_xid_last_seen_timestamp_seconds{{{labels}}}"] == BOOT_UNIX_S + 10
    assert found["opsk_kernel_log_readable{}"] == 1
    assert found["opsk_kernel_log_lost_records_total{}"] == 0


def test_codes_that_were_not_seen_have_no_series(kernel: Kernel, clock: Clock) -> None:
    assert [name for name in series(collector(kernel, clock)) if "xid" in name] == []


def test_a_gpu_without_known_uuid_has_its_address(kernel: Kernel, clock: Clock) -> None:
    kernel.xid(10.0, 48)
    assert f"opsk_gpu_xid_errors_total{{class=drain,gpu={PCI},xid=48}}" in series(collector(kernel, clock))


def test_a_driver_that_does_not_answer_leaves_the_kernel_log(kernel: Kernel, clock: Clock) -> None:
    gpus = FixedGpus(reading(GPU), TelemetryError("the GPU driver has not answered for 3 s"))
    one = collector(kernel, clock, gpus=gpus)
    series(one)
    kernel.xid(1001.0, 119)
    clock.now += 15
    assert series(one)[f"opsk_gpu_xid_errors_total{{class=reset,gpu={gpu_uuid(0)},xid=119}}"] == 1


def test_nvml_and_the_kernel_count_an_event_once_though_the_kernels_clock_drifts(kernel: Kernel, clock: Clock) -> None:
    told: list[XidTally] = []
    one = collector(kernel, clock, gpus=FixedGpus(reading(GPU)), listen=told.append)
    series(one)
    assert told == [one.tally]
    one.tally.record(gpu_uuid(0), PCI, 79, clock.now + 2.0, "nvml")
    kernel.xid(900.0, 79)  # 102 s behind the wall's clock
    clock.now += 15.0
    found = series(one)
    labels = f"class=reboot,gpu={gpu_uuid(0)},xid=79"
    assert found[f"opsk_gpu_xid_errors_total{{{labels}}}"] == 1
    assert found[f"opsk_gpu_xid_last_seen_timestamp_seconds{{{labels}}}"] == BOOT_UNIX_S + 1002
    assert told == [one.tally]


def test_a_log_that_cannot_be_read_is_shown_and_nvml_goes_on(tmp_path: Path, clock: Clock) -> None:
    one = XidCollector(KmsgReader(tmp_path / "none"), clock=clock)
    one.tally.record("GPU-1", PCI, 31, clock.now, "nvml")
    found = series(one)
    assert found["opsk_kernel_log_readable{}"] == 0
    assert "opsk_kernel_log_lost_records_total{}" not in found
    assert found["opsk_gpu_xid_errors_total{class=app,gpu=GPU-1,xid=31}"] == 1


def test_lost_records_are_counted(kernel: Kernel, clock: Clock) -> None:
    kernel.xid(1.0, 79)
    kernel._next = 8
    kernel.xid(2.0, 79)
    assert series(collector(kernel, clock))["opsk_kernel_log_lost_records_total{}"] == 7


def test_without_a_log_and_without_xids_there_is_nothing(clock: Clock) -> None:
    with pytest.raises(NoDataError):
        XidCollector(None, clock=clock).collect()
    one = XidCollector(None, clock=clock)
    one.tally.record("GPU-1", PCI, 31, clock.now, "nvml")
    assert set(series(one)) == {
        "opsk_gpu_xid_errors_total{class=app,gpu=GPU-1,xid=31}",
        "opsk_gpu_xid_last_seen_timestamp_seconds{class=app,gpu=GPU-1,xid=31}",
    }


def test_errors_of_switches_have_their_severity(kernel: Kernel, clock: Clock) -> None:
    kernel.says(1.0, "nvidia-nvswitch2: SXid (PCI:0000:c5:00.0): 20034, Fatal, Link 30 LTSSM Fault Up")
    kernel.says(2.0, "nvidia-nvswitch2: SXid (PCI:0000:c5:00.0): 99999, Non-fatal, Link 30 something new")
    found = series(collector(kernel, clock))
    assert found["opsk_nvswitch_sxid_errors_total{pci=0000:c5:00.0,severity=fatal,sxid=20034}"] == 1
    assert found["opsk_nvswitch_sxid_errors_total{pci=0000:c5:00.0,severity=non_fatal,sxid=99999}"] == 1


def test_other_events_are_counted_by_kind(kernel: Kernel, clock: Clock) -> None:
    kernel.says(1.0, "NVRM: GPU 0000:1a:00.0: GPU has fallen off the bus.")
    kernel.says(2.0, "NVRM: GPU 0000:1a:00.0: RmInitAdapter failed! (0x26:0x56:1482)")
    kernel.says(3.0, "nvidia 0000:1a:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer")
    kernel.says(3.0, "pcieport 0000:80:01.1: AER: Corrected error received: 0000:1a:00.0")
    kernel.says(4.0, "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN")
    kernel.says(4.5, "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link ACTIVE")
    kernel.says(5.0, "Memory cgroup out of memory: Killed process 7 (x) total-vm:1kB, anon-rss:1kB")
    kinds = {name.split("kind=")[1].rstrip("}") for name in series(collector(kernel, clock)) if "events_total" in name}
    assert kinds == {"gpu_fallen_off_bus", "gpu_driver_init_failed", "pcie_corrected", "nic_link_down", "oom_cgroup"}


def test_the_names_of_processes_are_in_no_label(kernel: Kernel, clock: Clock) -> None:
    kernel.says(1.0, 'NVRM: Xid (PCI:0000:1a:00): 31, pid=5, name=secret"} 1, Ch 1')
    assert "secret" not in str(series(collector(kernel, clock)))


def test_a_flood_of_odd_codes_and_addresses_stays_small(kernel: Kernel, clock: Clock) -> None:
    for number in range(3000):
        kernel.says(1.0, f"NVRM: Xid (PCI:{number:04x}:1a:00): {number + 200}, x")
        kernel.says(1.0, f"nvidia-nvswitch0: SXid (PCI:{number:04x}:c5:00.0): {number}, x")
    found = series(collector(kernel, clock))
    assert len(found) < 4 * (MAX_GPUS + 1) * (MAX_UNKNOWN + 1)
    assert sum(value for name, value in found.items() if name.startswith("opsk_gpu_xid_errors_total")) == 3000
    assert sum(value for name, value in found.items() if name.startswith("opsk_nvswitch_sxid_errors_total")) == 3000


def test_the_series_are_valid_exposition(kernel: Kernel, clock: Clock) -> None:
    kernel.xid(1.0, 79)
    one = collector(kernel, clock)

    class Shown:
        def collect(self) -> object:
            return one.collect()

    text = generate_latest(Shown()).decode()  # type: ignore[arg-type]
    assert "# TYPE opsk_gpu_xid_errors_total counter\n" in text
    assert "# TYPE opsk_gpu_xid_last_seen_timestamp_seconds gauge\n" in text


def test_the_factory_makes_a_collector_that_reads_a_given_log(kernel: Kernel) -> None:
    kernel.xid(1.0, 79)
    assert any("xid=79" in name for name in series(make(kernel_log=kernel.path)))
    with pytest.raises(NoDataError):
        make(kernel_log=None).collect()


def test_importing_the_collector_loads_nothing_heavy() -> None:
    code = (
        "import sys, opsk_exporters.gpu.xids; "
        "print([m for m in ('numpy', 'pydantic', 'sqlmodel', 'textual', 'scipy') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"

"""Does a node tell its power by source, and does a source that fails lose its own series and no other?"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from opsk.errors import TelemetryError
from opsk.telemetry.background_reader import Background
from opsk.telemetry.power.hwmon import HwmonReader, HwmonReading
from opsk.telemetry.power.ipmi import DcmiFile, DcmiPower, NoControllerError
from opsk.telemetry.power.node_power import GpuPowerTotal, NodePowerReader
from opsk.telemetry.power.rapl import RaplReader, RaplZone
from opsk_exporters.core.collector import NoDataError
from opsk_exporters.power.collector import PowerCollector
from tests.fakes.powercap import SERVER_RANGE_UJ, PowerTree

Series = dict[tuple[str, ...], float]


class Controller:
    """A node's controller that draws what a test wants, or fails as it wants."""

    def __init__(self, watts: float | None = None, fault: Exception | None = None, age_s: float = 0.0) -> None:
        self.watts = watts
        self.fault = fault
        self.age_s = age_s
        self.gate: threading.Event | None = None

    def read(self) -> tuple[DcmiPower, float]:
        if self.gate is not None:
            self.gate.wait(30)
        if self.fault is not None:
            raise self.fault
        if self.watts is None:
            raise NoControllerError("no IPMI tool is installed")
        return DcmiPower(current_w=self.watts, average_w=self.watts - 1, period_s=300.0), self.age_s


@pytest.fixture
def tree(tmp_path: Path) -> PowerTree:
    return PowerTree(tmp_path / "sys")


def collector(
    tree: PowerTree, controller: Controller, gpu_w: float | None = None, age_s: float = 0.0
) -> PowerCollector:
    def gpus() -> GpuPowerTotal | None:
        return None if gpu_w is None else GpuPowerTotal(watts=gpu_w, gpus=8, age_s=age_s)

    return PowerCollector(RaplReader(tree.root), HwmonReader(tree.root), controller, gpus)


def shown(collector: PowerCollector) -> Series:
    return {
        (sample.name.removeprefix("opsk_power_"), *(value for _, value in sorted(sample.labels.items()))): sample.value
        for metric in collector.collect()
        for sample in metric.samples
    }


def test_every_source_tells_what_it_measures(tree: PowerTree) -> None:
    tree.socket(0, 5_000_000, dram_uj=1_000_000)
    tree.acpi_meter(0, 2400)
    found = shown(collector(tree, Controller(2500.0)))
    # Labels in order: part, sensor, source.
    assert found["energy_joules_total", "package", "package-0", "rapl"] == 5.0
    assert found["energy_joules_total", "dram", "package-0/dram", "rapl"] == 1.0
    assert found["average_watts", "node", "ACPI000D:00/power1", "hwmon"] == 2400.0
    assert found["draw_watts", "node", "node", "dcmi"] == 2500.0
    assert found["averaging_seconds", "node", "node", "dcmi"] == 300.0
    assert [found["source_success", source] for source in ("rapl", "hwmon", "dcmi")] == [1.0, 1.0, 1.0]
    assert found["source_age_seconds", "dcmi"] >= 0.0


def test_what_is_neither_processor_nor_gpu_is_told_where_all_is_known(tree: PowerTree) -> None:
    tree.socket(0, 5_000_000)
    # RAPL stands still: processors draw nothing. 2500 - 2000 are left.
    found = shown(collector(tree, Controller(2500.0), gpu_w=2000.0))
    assert found["unaccounted_watts",] == 500.0
    assert [found["balance_watts", part] for part in ("node", "cpu", "gpu")] == [2500.0, 0.0, 2000.0]


@pytest.mark.parametrize("missing", ["gpus", "old gpus", "processors", "node", "old node"])
def test_nothing_is_told_of_the_rest_where_a_part_is_missing_or_old(tree: PowerTree, missing: str) -> None:
    if missing == "processors":
        tree.chip(0, "coretemp", temp1_input=1, temp1_label="Package id 0")
    else:
        tree.socket(0, 5_000_000)
    controller = Controller(None if missing == "node" else 2500.0, age_s=31.0 if missing == "old node" else 0.0)
    gpu_w = None if missing == "gpus" else 2000.0
    found = shown(collector(tree, controller, gpu_w, age_s=31.0 if missing == "old gpus" else 0.0))
    assert not [name for name in found if name[0] in ("unaccounted_watts", "balance_watts")]


def test_processors_draw_their_energy_over_the_time_that_the_controller_took(tree: PowerTree) -> None:
    tree.socket(0, 1_000_000)
    now = [0.0]

    def sleep(span_s: float) -> None:
        now[0] += span_s
        tree.socket(0, 61_000_000)

    reader = NodePowerReader(
        Controller(1000.0),
        Background("rapl", RaplReader(tree.root).zones, clock=lambda: now[0]),
        Background("hwmon", HwmonReader(tree.root).read),
        lambda: GpuPowerTotal(watts=600.0, gpus=8, age_s=0.0),
        clock=lambda: now[0],
        sleep=sleep,
    )
    balance = reader.read().balance
    assert balance is not None
    # 60 J in the 0.2 s that the reader waits at least.
    assert balance.cpu_w == pytest.approx(300.0)
    assert balance.unaccounted_w == pytest.approx(100.0)


def test_a_controller_that_fails_loses_its_own_series(tree: PowerTree) -> None:
    tree.socket(0, 5_000_000)
    found = shown(collector(tree, Controller(fault=TelemetryError("driver timeout"))))
    assert found["energy_joules_total", "package", "package-0", "rapl"] == 5.0
    assert (found["source_present", "dcmi"], found["source_success", "dcmi"]) == (1.0, 0.0)
    assert not [name for name in found if name[0] == "draw_watts"]


def test_a_controller_that_hangs_does_not_keep_the_others(tree: PowerTree) -> None:
    tree.socket(0, 5_000_000)
    controller = Controller(2500.0)
    controller.gate = threading.Event()
    hanging = PowerCollector(RaplReader(tree.root), HwmonReader(tree.root), controller, deadline_s=0.5)
    found = shown(hanging)
    assert found["energy_joules_total", "package", "package-0", "rapl"] == 5.0
    assert found["source_success", "dcmi"] == 0.0
    controller.gate.set()


class HangingHwmon(HwmonReader):
    """A file of a sick sensor: it answers nobody, as long as a test wants."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.gate = threading.Event()

    def read(self) -> HwmonReading:
        self.gate.wait(30)
        return super().read()


class HangingRapl(RaplReader):
    """The same of a processor."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.gate = threading.Event()

    def zones(self) -> tuple[RaplZone, ...]:
        self.gate.wait(30)
        return super().zones()


def test_sensors_that_hang_keep_neither_the_controller_nor_the_processors(tree: PowerTree) -> None:
    tree.socket(0, 5_000_000)
    hwmon = HangingHwmon(tree.root)
    hanging = PowerCollector(RaplReader(tree.root), hwmon, Controller(2500.0), deadline_s=4.0)
    found = shown(hanging)
    assert found["draw_watts", "node", "node", "dcmi"] == 2500.0
    assert [found["source_success", source] for source in ("rapl", "hwmon", "dcmi")] == [1.0, 0.0, 1.0]
    # The counter goes around while the sensors hang: 5 J, then 65,532.6 J, then 1 J.
    tree.socket(0, SERVER_RANGE_UJ)
    shown(hanging)
    tree.socket(0, 1_000_000)
    turned = shown(hanging)
    assert turned["energy_joules_total", "package", "package-0", "rapl"] == (SERVER_RANGE_UJ + 1_000_000) / 1e6
    hwmon.gate.set()


def test_processors_that_hang_keep_neither_the_controller_nor_the_sensors(tree: PowerTree) -> None:
    tree.socket(0, 5_000_000)
    tree.acpi_meter(0, 2400)
    rapl = HangingRapl(tree.root)
    hanging = PowerCollector(
        rapl,
        HwmonReader(tree.root),
        Controller(2500.0),
        lambda: GpuPowerTotal(watts=600.0, gpus=8, age_s=0.0),
        deadline_s=4.0,
    )
    found = shown(hanging)
    assert found["draw_watts", "node", "node", "dcmi"] == 2500.0
    assert found["average_watts", "node", "ACPI000D:00/power1", "hwmon"] == 2400.0
    assert [found["source_success", source] for source in ("rapl", "hwmon", "dcmi")] == [0.0, 1.0, 1.0]
    assert not [name for name in found if name[0] in ("unaccounted_watts", "balance_watts")]
    rapl.gate.set()


def test_each_source_has_its_own_age(tree: PowerTree) -> None:
    tree.socket(0, 5_000_000)
    tree.acpi_meter(0, 2400)
    found = shown(collector(tree, Controller(2500.0, age_s=12.0)))
    assert found["source_age_seconds", "dcmi"] >= 12.0
    assert 0.0 <= found["source_age_seconds", "rapl"] < 12.0
    assert 0.0 <= found["source_age_seconds", "hwmon"] < 12.0


def test_a_source_that_hangs_grows_old(tree: PowerTree) -> None:
    tree.socket(0, 5_000_000)
    tree.acpi_meter(0, 2400)
    rapl = HangingRapl(tree.root)
    rapl.gate.set()
    hanging = PowerCollector(rapl, HwmonReader(tree.root), Controller(), deadline_s=4.0)
    shown(hanging)
    rapl.gate.clear()
    first, later = shown(hanging), shown(hanging)
    assert later["source_age_seconds", "rapl"] > first["source_age_seconds", "rapl"]
    assert ("energy_joules_total", "package", "package-0", "rapl") not in later
    rapl.gate.set()


def test_a_controller_that_the_site_wants_left_alone_is_not_asked(tree: PowerTree, tmp_path: Path) -> None:
    tree.socket(0, 5_000_000)
    controller = Controller(fault=AssertionError("asked"))
    file = DcmiFile(tmp_path / "power")
    quiet = PowerCollector(RaplReader(tree.root), HwmonReader(tree.root), controller, every_s=0, dcmi_file=file)
    assert shown(quiet)["source_present", "dcmi"] == 0.0


def test_what_a_timer_was_told_is_shown_where_the_site_wants_no_tool(tree: PowerTree, tmp_path: Path) -> None:
    path = tmp_path / "power"
    path.write_text("Instantaneous power reading: 432 Watts\n", encoding="utf-8")
    controller = Controller(fault=AssertionError("asked"))
    quiet = PowerCollector(
        RaplReader(tree.root), HwmonReader(tree.root), controller, every_s=0, dcmi_file=DcmiFile(path)
    )
    assert shown(quiet)["draw_watts", "node", "node", "dcmi"] == 432.0


def test_a_node_without_a_controller_says_so_and_is_well(tree: PowerTree) -> None:
    tree.socket(0, 5_000_000)
    found = shown(collector(tree, Controller()))
    assert found["source_present", "dcmi"] == 0.0
    assert ("source_success", "dcmi") not in found


def test_rapl_that_may_not_be_read_is_counted_by_reason(tree: PowerTree) -> None:
    tree.socket(0, 1)
    path = tree.root / "class/powercap/intel-rapl:0/energy_uj"
    path.unlink()
    path.mkdir()
    found = shown(collector(tree, Controller()))
    assert found["unreadable_sensors", "error", "rapl"] == 1.0
    assert found["unreadable_sensors", "permission", "rapl"] == 0.0
    assert not [name for name in found if name[0] == "energy_joules_total"]


def test_a_node_with_nothing_has_no_data(tree: PowerTree) -> None:
    with pytest.raises(NoDataError):
        collector(tree, Controller()).collect()

"""Are the board's sensors read in base units, named for what they measure, and kept few?"""

from __future__ import annotations

from pathlib import Path

import pytest

from opsk.telemetry.power.hwmon import HwmonReader
from tests.fakes.powercap import PowerTree
from tests.fakes.ttar_links import extract_with_links


@pytest.fixture
def tree(tmp_path: Path) -> PowerTree:
    return PowerTree(tmp_path / "sys")


def test_no_two_sensors_of_a_chip_have_one_name(tree: PowerTree) -> None:
    """A label may be the name of another channel, or what a second one of a label would be called."""
    tree.chip(
        0, "odd",
        power1_input=1, power1_label="power2", power2_input=2,
        power3_input=3, power3_label="A", power4_input=4, power4_label="A power5", power5_input=5, power5_label="A",
    )  # fmt: skip
    powers = HwmonReader(tree.root).read().powers
    assert len(powers) == 5
    assert len({power.sensor for power in powers}) == 5


def test_the_meters_of_grace_are_named_by_what_they_measure(tree: PowerTree) -> None:
    for number, what in enumerate(("Module", "Grace", "CPU", "SysIO")):
        tree.acpi_meter(number, 100 * (number + 1), info=f"{what} Power Socket 0")
    powers = HwmonReader(tree.root).read().powers
    assert [(power.part, power.average_w, power.sensor) for power in powers] == [
        ("module", 100.0, "Module Power Socket 0"),
        ("grace", 200.0, "Grace Power Socket 0"),
        ("cpu", 300.0, "CPU Power Socket 0"),
        ("io", 400.0, "SysIO Power Socket 0"),
    ]
    assert [power.chip for power in powers] == [f"ACPI000D:{number:02}" for number in range(4)]
    assert powers[0].interval_s == 1.0


@pytest.mark.parametrize("info", [None, "Vendor Power Metering"])
def test_a_meter_that_says_no_part_measures_the_node(tree: PowerTree, info: str | None) -> None:
    tree.acpi_meter(0, 2500, info)
    (power,) = HwmonReader(tree.root).read().powers
    assert (power.part, power.watts) == ("node", 2500.0)


def test_microwatts_and_microjoules_become_watts_and_joules(tree: PowerTree) -> None:
    tree.chip(
        4,
        "some_driver",
        power1_input=270_000_000,
        power1_average=234_000_000,
        power1_input_lowest=65_000_000,
        power1_input_highest=328_000_000,
        power1_cap=400_000_000,
        energy1_input=22_323_000_000,
    )
    energy, power = sorted(HwmonReader(tree.root).read().powers, key=lambda power: power.sensor)
    assert (power.input_w, power.average_w, power.lowest_w, power.highest_w, power.cap_w) == (270, 234, 65, 328, 400)
    assert (energy.energy_j, energy.sensor, energy.part) == (22_323.0, "energy1", "other")


def test_power_supplies_tell_what_goes_in_and_what_comes_out(tree: PowerTree) -> None:
    tree.chip(0, "pmbus", power1_input=900_000_000, power1_label="pin", power2_input=850_000_000, power2_label="pout1")
    powers = HwmonReader(tree.root).read().powers
    assert [(power.part, power.input_w) for power in powers] == [("psu_input", 900.0), ("psu_output", 850.0)]


def test_a_counter_for_each_core_is_too_many(tree: PowerTree) -> None:
    files: dict[str, int | str] = {}
    for number in range(1, 65):
        files |= {f"energy{number}_input": 5, f"energy{number}_label": f"Ecore{number - 1:03}"}
    tree.chip(0, "amd_energy", **files, energy65_input=7_000_000, energy65_label="Esocket0")
    (power,) = HwmonReader(tree.root).read().powers
    assert (power.sensor, power.part, power.energy_j) == ("Esocket0", "cpu", 7.0)


def test_gpus_are_left_to_their_own_readers(tree: PowerTree) -> None:
    tree.chip(0, "amdgpu", power1_average=500_000_000, temp1_input=50_000, temp1_label="edge")
    reading = HwmonReader(tree.root).read()
    assert (reading.powers, reading.temperatures) == ((), ())


def test_only_processors_and_memory_have_temperatures(tree: PowerTree) -> None:
    tree.chip(
        0,
        "coretemp",
        "coretemp.0",
        temp1_input=61_000,
        temp1_label="Package id 0",
        temp1_crit=100_000,
        temp2_input=59_000,
        temp2_label="Core 0",
    )
    tree.chip(
        1, "k10temp", "0000:00:18.3", temp1_input=45_500, temp1_label="Tctl", temp3_input=44_000, temp3_label="Tccd1"
    )
    tree.chip(2, "spd5118", "1-0050", temp1_input=38_250)
    tree.chip(3, "nvme", "nvme0", temp1_input=30_000, temp1_label="Composite")
    found = HwmonReader(tree.root).read().temperatures
    assert [(t.chip, t.sensor, t.part, t.celsius, t.critical_c) for t in found] == [
        ("coretemp.0", "Package id 0", "cpu", 61.0, 100.0),
        ("0000:00:18.3", "Tctl", "cpu", 45.5, None),
        ("1-0050", "temp1", "dimm", 38.25, None),
    ]


def test_fans_turn_in_turns_per_second(tree: PowerTree) -> None:
    tree.chip(0, "nct6775", fan1_input=6000)
    (fan,) = HwmonReader(tree.root).read().fans
    assert fan.hertz == 100.0


def test_devices_of_one_name_are_told_apart(tree: PowerTree) -> None:
    for number in (0, 1):
        tree.chip(number, "ina3221", power1_input=1_000_000)
    assert [power.chip for power in HwmonReader(tree.root).read().powers] == ["ina3221", "ina3221@hwmon1"]


def test_a_sensor_without_a_value_is_absent_and_named(tree: PowerTree) -> None:
    path = tree.chip(0, "some_driver", power1_input=5_000_000, power2_input="N/A")
    (path / "power3_input").mkdir()
    reading = HwmonReader(tree.root).read()
    assert [power.sensor for power in reading.powers] == ["power1"]
    assert reading.unreadable == {"hwmon0/power2_input": "malformed", "hwmon0/power3_input": "error"}


def test_a_board_of_very_many_sensors_is_cut_and_says_so(tree: PowerTree) -> None:
    tree.chip(0, "many", **{f"power{number}_input": 1 for number in range(1, 141)})
    reading = HwmonReader(tree.root).read()
    assert (len(reading.powers), reading.left_out) == (128, 12)


def test_a_node_without_sensors_has_none(tmp_path: Path) -> None:
    assert HwmonReader(tmp_path).read().powers == ()


@pytest.mark.shared
def test_a_recorded_tree_is_read_as_it_says(shared: Path, tmp_path: Path) -> None:
    extract_with_links(shared / "data/real/sysfs/node_exporter_sys.ttar", tmp_path, "sys")
    reading = HwmonReader(tmp_path / "sys").read()
    # Read off the tree: temp1_input and temp1_label of the two coretemp devices, fan2_input of nct6779 (whose link to
    # its device is not in the tree); no chip of it has a sensor of power.
    assert reading.powers == ()
    assert [(t.chip, t.sensor, t.celsius) for t in reading.temperatures] == [
        ("coretemp.0", "Physical id 0", 55.0),
        ("coretemp.1", "Physical id 0", 55.0),
    ]
    assert {fan.chip: fan.hertz for fan in reading.fans if fan.sensor == "fan2"}["nct6779"] == pytest.approx(1098 / 60)

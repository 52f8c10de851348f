"""Are AMD GPUs read as what they are, left to sleep when they sleep, and missed when they are gone?"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from opsk.telemetry.gpu.amd.source import SysfsAmdGpus
from opsk.telemetry.gpu.samples import GpuDriverMissingError
from tests.fakes.amdgpu_tree import VRAM_BYTES, AmdTree, Table14


@pytest.fixture
def tree(tmp_path: Path) -> AmdTree:
    return AmdTree(tmp_path / "sys")


def test_a_gpu_tells_what_any_gpu_tells(tree: AmdTree) -> None:
    tree.add(1, 0x1A, unique_id="0123456789abcdef")
    (device,) = SysfsAmdGpus(tree.root).read().devices
    gpu = device.gpu
    assert (gpu.uuid, gpu.index, gpu.minor, gpu.pci) == ("GPU-0123456789abcdef", 0, 1, "0000:1a:00.0")
    assert (device.card, device.render, device.device_id) == ("card1", "renderD129", "1002:74a1")
    assert gpu.utilisation == {"gpu": 0.87, "memory": 0.42}
    assert gpu.memory is not None
    assert (gpu.memory.total_bytes, gpu.memory.used_bytes) == (VRAM_BYTES, VRAM_BYTES // 4)
    assert gpu.memory.free_bytes == VRAM_BYTES - VRAM_BYTES // 4
    assert (gpu.power.average_w, gpu.power.limit_w) == (412.0, 750.0)
    assert gpu.temperatures_c == {"gpu": 51.0, "junction": 64.0, "memory": 58.0}
    assert gpu.temperature_limits_c == {"slowdown": 105.0, "shutdown": 110.0}
    assert gpu.clocks_hz == {"graphics": 1.7e9, "memory": 1.3e9}
    assert gpu.clocks_max_hz == {"graphics": 2.1e9, "memory": 1.3e9}
    assert (gpu.pcie.generation, gpu.pcie.width, gpu.pcie.counters) == (5, 16, {"replays": 3})


def test_gpus_are_numbered_in_order_of_pci_address(tree: AmdTree) -> None:
    tree.add(0, 0x9A, unique_id="aa")
    tree.add(10, 0x2A, unique_id="bb")
    tree.add(2, 0x1A, unique_id="cc")
    gpus = SysfsAmdGpus(tree.root).gpus().gpus
    assert [(gpu.index, gpu.minor) for gpu in gpus] == [(0, 2), (1, 10), (2, 0)]


@pytest.mark.parametrize("unique_id", [None, "", "0", "0000000000000000", "N/A"])
def test_a_gpu_without_a_unique_id_is_known_by_its_address(tree: AmdTree, unique_id: str | None) -> None:
    tree.add(0, 0x1A, unique_id=unique_id)
    assert SysfsAmdGpus(tree.root).gpus().gpus[0].uuid == "0000:1a:00.0"


def test_two_gpus_of_one_unique_id_are_told_apart(tree: AmdTree) -> None:
    tree.add(0, 0x1A, unique_id="5")
    tree.add(1, 0x1B, unique_id="5")
    assert [gpu.uuid for gpu in SysfsAmdGpus(tree.root).gpus().gpus] == ["GPU-0000000000000005", "0000:1b:00.0"]


def test_cards_of_one_id_and_one_address_are_told_apart(tree: AmdTree) -> None:
    """Partitions of one chip, or a copy of sysfs that was put together by hand."""
    for card in range(3):
        tree.add(card, 0x1A, unique_id="5")
    uuids = [gpu.uuid for gpu in SysfsAmdGpus(tree.root).gpus().gpus]
    assert uuids == ["GPU-0000000000000005", "0000:1a:00.0", "card2"]


def test_errors_that_a_file_tells_twice_are_told_once(tree: AmdTree) -> None:
    device = tree.add(0, 0x1A)
    tree.write(device / "ras" / "umc_err_count", "ue: 1\nce: 2\nue: 3")
    (found,) = SysfsAmdGpus(tree.root).read().devices
    assert [(count.kind, count.count) for count in found.ras if count.block == "umc"] == [
        ("uncorrected", 1),
        ("corrected", 2),
    ]


def test_cards_of_other_drivers_and_connectors_are_no_amd_gpus(tree: AmdTree) -> None:
    tree.add(0, 0x1A)
    tree.add(1, 0x02, uevent="DRIVER=i915\nPCI_SLOT_NAME=0000:00:02.0", vendor="0x8086")
    tree.add(2, 0x03, uevent="DRIVER=vfio-pci\nPCI_SLOT_NAME=0000:03:00.0")
    (tree.root / "class/drm/card0-DP-1").mkdir()
    assert [gpu.pci for gpu in SysfsAmdGpus(tree.root).gpus().gpus] == ["0000:1a:00.0"]


@pytest.mark.parametrize("status", ["suspended", "suspending", "resuming"])
def test_a_gpu_that_sleeps_is_asked_nothing(tree: AmdTree, monkeypatch: pytest.MonkeyPatch, status: str) -> None:
    tree.add(0, 0x1A, unique_id="5", power__runtime_status=status)
    opened: list[str] = []
    really = os.open

    def watch(path: str, *rest: int) -> int:
        opened.append(str(path).partition("/device/")[2])
        return int(really(path, *rest))

    monkeypatch.setattr("os.open", watch)
    (device,) = SysfsAmdGpus(tree.root).read().devices
    assert (device.asleep, device.runtime_status, device.gpu.memory, device.gpu.power.average_w) == (
        *(True, status),
        *(None, None),
    )
    # What the kernel keeps of a device: these files wake nothing.
    assert set(opened) <= {
        *("uevent", "vendor", "device", "unique_id", "power/runtime_status", "product_name", "serial_number"),
        "vbios_version",
    }


def test_the_firmwares_table_adds_what_no_file_tells(tree: AmdTree) -> None:
    device = tree.add(0, 0x1A, unique_id="5")
    (device / "gpu_metrics").write_bytes(Table14().packed(4, {"energy": 2**16 * 99, "replays": 8, "xgmi_read": [1]}))
    (sample,) = SysfsAmdGpus(tree.root).read().devices
    assert (sample.gpu.power.energy_j, sample.table_version, sample.xgmi_read_bytes) == (99.0, "1.4", {0: 1024})
    # The kernel's file before the table.
    assert sample.gpu.pcie.counters["replays"] == 3


def test_the_second_die_of_a_board_draws_nothing_of_its_own(tree: AmdTree) -> None:
    tree.add(0, 0x1A, hwmon__hwmon5__power1_average="0")
    assert SysfsAmdGpus(tree.root).gpus().gpus[0].power.average_w is None


def test_a_chip_without_an_edge_has_the_temperature_of_its_hottest_spot(tree: AmdTree) -> None:
    tree.add(0, 0x1A, hwmon__hwmon5__temp1_label="junction", hwmon__hwmon5__temp2_label="mem")
    assert SysfsAmdGpus(tree.root).gpus().gpus[0].temperatures_c["gpu"] == 51.0


def test_errors_are_counted_by_block(tree: AmdTree) -> None:
    tree.add(0, 0x1A, ras__gpu_vram_bad_pages="0x00000001 : 0x00001000 : R \n0x00000002 : 0x00001000 : P ")
    (device,) = SysfsAmdGpus(tree.root).read().devices
    assert {(count.block, count.kind): count.count for count in device.ras} == {
        ("umc", "uncorrected"): 0,
        ("umc", "corrected"): 7,
        ("gfx", "uncorrected"): 1,
        ("gfx", "corrected"): 0,
        ("gfx", "deferred"): 2,
    }
    # umc is the controller of device memory.
    assert [(count.location, count.kind, count.count) for count in device.gpu.ecc] == [
        ("dram", "uncorrected", 0),
        ("dram", "corrected", 7),
    ]
    assert device.bad_pages == {"reserved": 1, "pending": 1, "unreservable": 0}


def test_flags_that_a_read_clears_are_added_up(tree: AmdTree) -> None:
    device = tree.add(0, 0x1A, xgmi_error="1", xgmi_device_id="0x10000", xgmi_hive_info__xgmi_hive_id="42")
    reader = SysfsAmdGpus(tree.root)
    reader.read()
    tree.write(device / "xgmi_error", "2")
    (sample,) = reader.read().devices
    assert (sample.xgmi_errors, sample.hive, sample.xgmi_node) == (3, "42", "0x10000")


def test_flags_are_not_read_where_ras_counts_xgmi(tree: AmdTree) -> None:
    tree.add(0, 0x1A, xgmi_error="1", ras__xgmi_wafl_err_count="ue: 0\nce: 0")
    assert SysfsAmdGpus(tree.root).read().devices[0].xgmi_errors is None


def test_partitions_are_told(tree: AmdTree) -> None:
    tree.add(0, 0x1A, current_compute_partition="CPX", current_memory_partition="NPS4")
    (device,) = SysfsAmdGpus(tree.root).read().devices
    assert (device.compute_partition, device.memory_partition) == ("CPX", "NPS4")


def test_a_gpu_that_is_gone_is_lost(tree: AmdTree) -> None:
    tree.add(0, 0x1A, unique_id="5")
    tree.add(1, 0x1B, unique_id="6")
    reader = SysfsAmdGpus(tree.root)
    reader.read()
    (tree.root / "class/drm/card1").rename(tree.root / "class/drm/away")
    reading = reader.gpus()
    assert [gpu.uuid for gpu in reading.gpus] == ["GPU-0000000000000005"]
    assert [(lost.uuid, lost.index, lost.pci) for lost in reading.lost] == [("GPU-0000000000000006", 1, "0000:1b:00.0")]
    (tree.root / "class/drm/away").rename(tree.root / "class/drm/card1")
    assert reader.gpus().lost == ()


def test_a_gpu_whose_hardware_answers_nothing_is_lost(tree: AmdTree) -> None:
    device = tree.add(0, 0x1A, unique_id="5")
    for name in ("gpu_busy_percent", "mem_busy_percent", "pp_dpm_sclk", "pp_dpm_mclk", "hwmon/hwmon5/power1_average"):
        (device / name).unlink()
        # read() of a folder fails for everyone, root included: it stands for the driver's EPERM or EIO.
        (device / name).mkdir()
    for number in (1, 2, 3):
        (device / f"hwmon/hwmon5/temp{number}_input").unlink()
    reading = SysfsAmdGpus(tree.root).gpus()
    assert (reading.gpus, [lost.uuid for lost in reading.lost]) == ((), ["GPU-0000000000000005"])


def test_a_file_that_fails_is_absent_and_named(tree: AmdTree) -> None:
    tree.add(0, 0x1A, unique_id="5", mem_busy_percent="rubbish")
    reading = SysfsAmdGpus(tree.root).gpus()
    assert "memory" not in reading.gpus[0].utilisation
    assert [(fault.what, fault.error) for fault in reading.unreadable] == [("mem_busy_percent", "malformed")]


def test_a_node_without_amd_gpus_has_no_driver_for_them(tmp_path: Path) -> None:
    with pytest.raises(GpuDriverMissingError):
        SysfsAmdGpus(tmp_path).read()

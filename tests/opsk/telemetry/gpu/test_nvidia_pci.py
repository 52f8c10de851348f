"""Are the GPUs counted that should have a driver, and those left out that somebody else has?"""

from __future__ import annotations

from pathlib import Path

import pytest

from opsk.telemetry.gpu.nvidia_pci import GpusOnBus, find_nvidia_gpus


def add(
    sysfs: Path, address: str, *, vendor: str = "0x10de", kind: str = "0x030200", driver: str | None = None
) -> Path:
    device = sysfs / "bus" / "pci" / "devices" / address
    device.mkdir(parents=True)
    (device / "vendor").write_text(f"{vendor}\n")
    (device / "class").write_text(f"{kind}\n")
    if driver is not None:
        (device / "driver").symlink_to(f"../../../../bus/pci/drivers/{driver}")
    return device


@pytest.mark.parametrize(
    ("kind", "driver", "counts"),
    [
        ("0x030200", "nvidia", True),
        ("0x030200", None, True),
        ("0x030000", "nvidia", True),
        # A card with a screen that no driver wants may be the console's.
        ("0x030000", None, False),
        ("0x030200", "vfio-pci", False),
        ("0x030000", "nouveau", False),
        # NVSwitches and sound are no GPUs.
        ("0x068000", "nvidia-nvswitch", False),
        ("0x040300", None, False),
    ],
)
def test_gpus_that_should_have_a_driver_count(tmp_path: Path, kind: str, driver: str | None, counts: bool) -> None:
    add(tmp_path, "0000:1a:00.0", kind=kind, driver=driver)
    assert find_nvidia_gpus(tmp_path) == (("0000:1a:00.0",) if counts else ())


def test_other_makers_and_virtual_functions_do_not_count(tmp_path: Path) -> None:
    add(tmp_path, "0000:03:00.0", vendor="0x1002")
    (add(tmp_path, "0000:1a:00.4", driver="nvidia") / "physfn").symlink_to("../0000:1a:00.0")
    assert find_nvidia_gpus(tmp_path) == ()


def test_a_node_without_pci_has_none(tmp_path: Path) -> None:
    assert find_nvidia_gpus(tmp_path) == ()


def test_the_bus_is_looked_over_seldom(tmp_path: Path) -> None:
    now_s = [0.0]
    on_bus = GpusOnBus(tmp_path, clock=lambda: now_s[0])
    assert on_bus() == ()
    add(tmp_path, "0000:1a:00.0")
    now_s[0] = 299.0
    assert on_bus() == ()
    now_s[0] = 300.0
    assert on_bus() == ("0000:1a:00.0",)

"""RAPL zones, board sensors and a fake IPMI tool, written where a test wants them."""

from __future__ import annotations

from pathlib import Path

SERVER_RANGE_UJ = 65_532_610_987
"""Where the counter of a server's package begins again; real processors have this one."""


class PowerTree:
    """Writes into ``root/class/powercap`` and ``root/class/hwmon``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    def zone(self, folder: str, name: str, energy_uj: int | str, range_uj: int | None = SERVER_RANGE_UJ) -> Path:
        """Write one RAPL zone; return its folder."""
        path = self.root / "class" / "powercap" / folder
        self.write(path / "name", name)
        self.write(path / "energy_uj", str(energy_uj))
        if range_uj is not None:
            self.write(path / "max_energy_range_uj", str(range_uj))
        self.write(path / "enabled", "1")
        return path

    def socket(self, number: int, energy_uj: int, dram_uj: int | None = None) -> None:
        """Write one package with its DRAM."""
        self.zone(f"intel-rapl:{number}", f"package-{number}", energy_uj)
        if dram_uj is not None:
            self.zone(f"intel-rapl:{number}:0", "dram", dram_uj)

    def chip(self, number: int, driver: str, device: str | None = None, **files: int | str) -> Path:
        """Write one hwmon device with files; with ``device`` its link to the device of that name."""
        path = self.root / "class" / "hwmon" / f"hwmon{number}"
        self.write(path / "name", driver)
        for name, value in files.items():
            self.write(path / name, str(value))
        if device is not None:
            target = self.root / "devices" / device
            target.mkdir(parents=True, exist_ok=True)
            (path / "device").symlink_to(f"../../../devices/{device}")
        return path

    def acpi_meter(self, number: int, watts: int, info: str | None = None) -> Path:
        """Write an ACPI power meter, whose files lie beside its device as the kernel's driver puts them."""
        path = self.chip(number, "power_meter", f"ACPI000D:{number:02}")
        self.write(path / "device" / "power1_average", str(watts * 1_000_000))
        self.write(path / "device" / "power1_average_interval", "1000")
        if info is not None:
            self.write(path / "device" / "power1_oem_info", info)
        return path

    @staticmethod
    def write(path: Path, text: str) -> None:
        """Write one value as the kernel does, with a line end."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")


IPMITOOL = """
    Instantaneous power reading:                   {watts} Watts
    Minimum during sampling period:                100 Watts
    Maximum during sampling period:               9000 Watts
    Average power reading over sample period:     2000 Watts
    IPMI timestamp:                           Thu Jan  1 00:00:00 2026
    Sampling period:                          00000010 Seconds.
    Power reading state is:                   activated

"""
FREEIPMI = """Current Power                        : {watts} Watts
Minimum Power over sampling duration : 100 watts
Maximum Power over sampling duration : 9000 watts
Average Power over sampling duration : 2000 watts
Time Stamp                           : 01/01/2026 - 00:00:00
Statistics reporting time period     : 10000 milliseconds
Power Measurement                    : Active
"""


def fake_tool(folder: Path, name: str, script: str) -> Path:
    """Write an executable shell script of that name; return its folder, for a PATH."""
    folder.mkdir(parents=True, exist_ok=True)
    tool = folder / name
    tool.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    tool.chmod(0o755)
    return folder

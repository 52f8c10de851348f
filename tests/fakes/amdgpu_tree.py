"""AMD GPUs in a sysfs tree, as amdgpu shows a server's, and the firmware's table in C's layout."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path

U8, U16, U32, U64 = ctypes.c_uint8, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64

VRAM_BYTES = 64 * 2**30


class AmdTree:
    """Writes GPUs into ``root/class/drm``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "class" / "drm").mkdir(parents=True)

    def device(self, card: int) -> Path:
        """Return the device folder of a card."""
        return self.root / "class" / "drm" / f"card{card}" / "device"

    def add(self, card: int, bus: int, *, unique_id: str | None = None, **files: str) -> Path:
        """Write a GPU that is awake; ``files`` are more, or other, files of its device folder."""
        device = self.device(card)
        values = {
            "vendor": "0x1002",
            "device": "0x74a1",
            "uevent": f"DRIVER=amdgpu\nPCI_ID=1002:74A1\nPCI_SLOT_NAME=0000:{bus:02x}:00.0",
            "vbios_version": "113-TEST-001",
            "gpu_busy_percent": "87",
            "mem_busy_percent": "42",
            "mem_info_vram_total": str(VRAM_BYTES),
            "mem_info_vram_used": str(VRAM_BYTES // 4),
            "mem_info_gtt_total": "4096000",
            "mem_info_gtt_used": "4096",
            "pp_dpm_sclk": "0: 500Mhz \n1: 1700Mhz *\n2: 2100Mhz ",
            "pp_dpm_mclk": "0: 900Mhz \n1: 1300Mhz *",
            "current_link_speed": "32.0 GT/s PCIe",
            "current_link_width": "16",
            "max_link_speed": "32.0 GT/s PCIe",
            "max_link_width": "16",
            "pcie_replay_count": "3",
            "power/runtime_status": "active",
            "hwmon/hwmon5/name": "amdgpu",
            "hwmon/hwmon5/power1_average": "412000000",
            "hwmon/hwmon5/power1_cap": "750000000",
            "hwmon/hwmon5/temp1_input": "51000",
            "hwmon/hwmon5/temp1_label": "edge",
            "hwmon/hwmon5/temp2_input": "64000",
            "hwmon/hwmon5/temp2_label": "junction",
            "hwmon/hwmon5/temp2_crit": "105000",
            "hwmon/hwmon5/temp2_emergency": "110000",
            "hwmon/hwmon5/temp3_input": "58000",
            "hwmon/hwmon5/temp3_label": "mem",
            "ras/umc_err_count": "ue: 0\nce: 7",
            "ras/gfx_err_count": "ue: 1\nce: 0\nde: 2",
            f"drm/renderD{128 + card}/uevent": "",
        }
        if unique_id is not None:
            values["unique_id"] = unique_id
        for name, text in (values | {name.replace("__", "/"): text for name, text in files.items()}).items():
            self.write(device / name, text)
        return device

    @staticmethod
    def write(path: Path, text: str) -> None:
        """Write one value as the kernel does, with a line end."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")


class _Table(ctypes.LittleEndianStructure):
    """A table as a C compiler lays it out; a field that is not set is all ones: the GPU does not have it."""

    def packed(self, content: int, values: Mapping[str, int | Sequence[int]]) -> bytes:
        """Return the table with these values; a shorter list leaves the rest of an array blank."""
        ctypes.memset(ctypes.byref(self), 0xFF, ctypes.sizeof(self))
        fields: dict[str, int | Sequence[int]] = {"size": ctypes.sizeof(self), "format": 1, "content": content}
        for name, value in (fields | dict(values)).items():
            if isinstance(value, int):
                setattr(self, name, value)
            else:
                for place, item in enumerate(value):
                    getattr(self, name)[place] = item
        return bytes(self)


_HEADER = [("size", U16), ("format", U8), ("content", U8)]
_LINK = [("pcie_width", U16), ("pcie_speed", U16)]
_HEAD = [(name, U16) for name in ("hotspot", "memory", "vrsoc", "power", "gfx", "umc")]
_RUN = [("energy", U64), ("clock", U64), ("throttle", U32), ("lock", U32), *_LINK, ("xgmi_width", U16)]
_MOVED = [("xgmi_speed", U16), ("gfx_acc", U32), ("mem_acc", U32), ("pcie_acc", U64), ("pcie_now", U64)]
_PCIE = [("recoveries", U64), ("replays", U64), ("rollovers", U64)]
_CLOCKS = [("gfxclk", U16 * 8), ("socclk", U16 * 4), ("vclk", U16 * 4), ("dclk", U16 * 4), ("uclk", U16), ("pad", U16)]
_TAIL = [("xgmi_read", U64 * 8), ("xgmi_written", U64 * 8), ("timestamp", U64), *_CLOCKS]


class Table13(_Table):
    """Version 1.3: MI200 and older, and Radeon."""

    _fields_ = (
        *_HEADER,
        *(
            (name, U16)
            for name in ("edge", "hotspot", "memory", "vrgfx", "vrsoc", "vrmem", "gfx", "umc", "mm", "power")
        ),
        *(("energy", U64), ("clock", U64), ("average", U16 * 7), ("current", U16 * 7), ("throttle", U32), ("fan", U16)),
        *_LINK,
        *(("pad", U16), ("gfx_acc", U32), ("mem_acc", U32), ("hbm", U16 * 4), ("timestamp", U64), ("volts", U16 * 3)),
        *(("pad1", U16), ("causes", U64)),
    )


class Table14(_Table):
    """Version 1.4: MI300."""

    _fields_ = (*_HEADER, *_HEAD, ("vcn", U16 * 4), *_RUN, *_MOVED, *_PCIE, *_TAIL)


class Table15(_Table):
    """Version 1.5: MI300, with decoders of JPEG and NAKs."""

    _fields_ = (
        *(*_HEADER, *_HEAD, ("vcn", U16 * 4), ("jpeg", U16 * 32), *_RUN, *_MOVED, *_PCIE),
        *(("nak_sent", U32), ("nak_received", U32)),
        *_TAIL,
    )


class Table17(_Table):
    """Head of versions 1.7 and 1.8."""

    _fields_ = (*_HEADER, *_HEAD, ("bandwidth", U64), ("energy", U64), ("clock", U64))

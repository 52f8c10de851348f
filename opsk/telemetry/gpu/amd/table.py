"""Parses ``gpu_metrics``, the binary table of an AMD GPU's firmware.

Its header has size and version. Of the versions for discrete GPUs (1.3 to 1.8) the fields whose unit the kernel
documents are read here (``drivers/gpu/drm/amd/include/kgd_pp_interface.h``). Other versions are not parsed. A field of
all ones is one that the GPU does not have.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from opsk import units

_HEADER = struct.Struct("<HBB")
_SIZES = {"H": 2, "I": 4, "Q": 8}
_ENERGY_UNIT_J = 2.0**-16
"""The accumulator counts 15.259 uJ; documented from version 1.4 on, and for the GPUs with HBM that have 1.3 (MI200)."""

Fields = tuple[tuple[str, str, int], ...]


def _parse_layout(*parts: str) -> Fields:
    """Read ``H hotspot``, ``Q received 8``: type, name, and how many there are."""
    fields = []
    for part in parts:
        kind, name, *many = part.split()
        fields.append((name, kind, int(many[0]) if many else 1))
    return tuple(fields)


_V1_3 = _parse_layout(
    *("H edge", "H hotspot", "H memory", "H vrgfx", "H vrsoc", "H vrmem", "H gfx_activity", "H umc_activity"),
    *(
        "H mm_activity",
        "H power",
        "Q energy",
        "Q clock_counter",
        "H average_clocks 7",
        "H gfxclk",
        "H socclk",
        "H uclk",
    ),
    *("H other_clocks 4", "I throttle", "H fan", "H pcie_width", "H pcie_speed", "H padding", "I gfx_acc", "I mem_acc"),
    *("H hbm 4", "Q timestamp", "H voltages 3", "H padding1", "Q throttle_causes"),
)
_V1_4_HEAD = ("H hotspot", "H memory", "H vrsoc", "H power", "H gfx_activity", "H umc_activity", "H vcn 4")
_V1_4_ENERGY = ("Q energy", "Q clock_counter", "I throttle", "I clock_lock", "H pcie_width", "H pcie_speed")
_V1_4_LINKS = ("H xgmi_width", "H xgmi_speed", "I gfx_acc", "I mem_acc", "Q pcie_acc", "Q pcie_now")
_V1_4_PCIE = ("Q recoveries", "Q replays", "Q replay_rollovers")
_V1_4_TAIL = (
    "Q xgmi_read 8",
    "Q xgmi_write 8",
    "Q timestamp",
    "H gfxclk 8",
    "H socclk 4",
    "H other_clocks 8",
    "H uclk",
)
_V1_4 = _parse_layout(*_V1_4_HEAD, *_V1_4_ENERGY, *_V1_4_LINKS, *_V1_4_PCIE, *_V1_4_TAIL)
_V1_5 = _parse_layout(
    *_V1_4_HEAD, "H jpeg 32", *_V1_4_ENERGY, *_V1_4_LINKS, *_V1_4_PCIE, "I nak_sent", "I nak_received", *_V1_4_TAIL
)
_V1_6 = _parse_layout("H hotspot", "H memory", "H vrsoc", "H power", "H gfx_activity", "H umc_activity", "Q energy")
_V1_7 = _parse_layout(
    "H hotspot", "H memory", "H vrsoc", "H power", "H gfx_activity", "H umc_activity", "Q memory_bandwidth", "Q energy"
)
_LAYOUTS = {(1, 3): _V1_3, (1, 4): _V1_4, (1, 5): _V1_5, (1, 6): _V1_6, (1, 7): _V1_7, (1, 8): _V1_7}
"""Fields by format and content revision; of 1.6 and later only the head, the rest depends on partitions."""

THROTTLE_CAUSES = (
    ("sw_power_cap", range(0, 8)),
    ("current_limit", range(16, 24)),
    ("hw_thermal_slowdown", range(32, 46)),
    ("hw_slowdown", (46, 47)),
    ("reliability", (57,)),
)
"""Bits of the throttle status that is the same for all GPUs, in NVIDIA's words where they mean the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsTable:
    """The values of a table.

    Parameters
    ----------
    version
        ``1.3``.
    temperatures_c
        ``gpu`` (edge), ``junction`` (the hottest spot), ``memory``.
    power_w, energy_j
        Power of the socket now, or averaged (1.3), and energy since the firmware started.
    gpu_ratio, memory_ratio
        Shares of time in which shaders and memory controllers were busy.
    clocks_hz
        ``graphics``, ``memory``, ``soc``.
    throttle
        Why clocks are held down now; ``None`` where the table has no such field.
    pcie_counters
        ``replays``, ``replay_rollovers``, ``recoveries`` since the firmware started.
    pcie_width
        Lanes of the PCIe link.
    xgmi_read_bytes, xgmi_written_bytes
        Data moved over each XGMI link, by its number.
    """

    version: str
    temperatures_c: Mapping[str, float] = field(default_factory=dict)
    power_w: float | None = None
    energy_j: float | None = None
    gpu_ratio: float | None = None
    memory_ratio: float | None = None
    clocks_hz: Mapping[str, float] = field(default_factory=dict)
    throttle: frozenset[str] | None = None
    pcie_counters: Mapping[str, int] = field(default_factory=dict)
    pcie_width: int | None = None
    xgmi_read_bytes: Mapping[int, int] = field(default_factory=dict)
    xgmi_written_bytes: Mapping[int, int] = field(default_factory=dict)


def parse_table(data: bytes) -> MetricsTable | None:
    """Read a table; ``None`` for a version that is not known, or when it is cut off."""
    if len(data) < _HEADER.size:
        return None
    size, revision, content = _HEADER.unpack_from(data)
    layout = _LAYOUTS.get((revision, content))
    values = None if layout is None or size > len(data) else _unpack_values(data[:size], layout)
    if values is None:
        return None
    scalars = {name: found[0] for name, found in values.items() if found and found[0] is not None}
    return MetricsTable(
        version=f"{revision}.{content}",
        temperatures_c=_build_temperatures(values, scalars),
        power_w=float(scalars["power"]) if scalars.get("power") else None,
        energy_j=_compute_energy_j(values, scalars, content),
        gpu_ratio=_compute_ratio(scalars.get("gfx_activity")),
        memory_ratio=_compute_ratio(scalars.get("umc_activity")),
        clocks_hz=_build_clocks_hz(values),
        throttle=_decode_throttle(scalars.get("throttle_causes")),
        pcie_counters={
            name: scalars[name] for name in ("replays", "replay_rollovers", "recoveries") if name in scalars
        },
        pcie_width=scalars.get("pcie_width") or None,
        xgmi_read_bytes=_build_links(values.get("xgmi_read", ())),
        xgmi_written_bytes=_build_links(values.get("xgmi_write", ())),
    )


Values = dict[str, tuple[int | None, ...]]


def _unpack_values(data: bytes, layout: Fields) -> Values | None:
    """Unpack the fields by name, each aligned to its size as in C; ``None`` for a table that is too short."""
    values: Values = {}
    offset = _HEADER.size
    for name, kind, many in layout:
        size = _SIZES[kind]
        offset = (offset + size - 1) // size * size
        if offset + size * many > len(data):
            return None
        blank = (1 << units.BITS_PER_BYTE * size) - 1
        raw = struct.unpack_from(f"<{many}{kind}", data, offset)
        values[name] = tuple(None if value == blank else value for value in raw)
        offset += size * many
    return values


def _build_temperatures(values: Values, scalars: Mapping[str, int]) -> dict[str, float]:
    """Return temperatures; each HBM stack has its own in 1.3, of which the hottest counts."""
    temperatures = {"gpu": scalars.get("edge"), "junction": scalars.get("hotspot"), "memory": scalars.get("memory")}
    stacks = [value for value in values.get("hbm", ()) if value]
    if stacks:
        temperatures["memory"] = max(stacks)
    return {name: float(value) for name, value in temperatures.items() if value}


def _compute_energy_j(values: Values, scalars: Mapping[str, int], content: int) -> float | None:
    """Return the energy where its unit is known."""
    unit_known = content >= 4 or any(values.get("hbm", ()))
    return scalars["energy"] * _ENERGY_UNIT_J if unit_known and scalars.get("energy") else None


def _compute_ratio(percent: int | None) -> float | None:
    """Return a share; some firmware counts a little past 100."""
    return None if percent is None else min(1.0, units.percent(percent))


def _build_clocks_hz(values: Values) -> dict[str, float]:
    """Return clocks now; of several dies the fastest."""
    clocks_hz = {}
    for name, clock in (("graphics", "gfxclk"), ("memory", "uclk"), ("soc", "socclk")):
        known = [value for value in values.get(clock, ()) if value]
        if known:
            clocks_hz[name] = units.megahertz(max(known))
    return clocks_hz


def _decode_throttle(bits: int | None) -> frozenset[str] | None:
    """Return why clocks are held down."""
    if bits is None:
        return None
    return frozenset(cause for cause, places in THROTTLE_CAUSES if any(bits >> place & 1 for place in places))


def _build_links(kilobytes: tuple[int | None, ...]) -> dict[int, int]:
    """Return bytes by link, from the firmware's KiB."""
    return {link: value * units.KIB for link, value in enumerate(kilobytes) if value is not None}

"""Reads the sensors and counters of one AMD GPU that is awake from its sysfs files and its firmware's table.

The kernel shows microwatts, thousandths of a degree, MHz and percent; they become base units here. Where a file and the
firmware's table ``gpu_metrics`` have the same value, the file counts.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from opsk import units
from opsk.telemetry.gpu.samples import EccCount, GpuMemory, GpuPower, GpuSample, PcieSample
from opsk.telemetry.host.value_files import ValueFiles, list_names, natural_sort_key
from opsk.units import KIB

_HEADER = struct.Struct("<HBB")
_SIZES = {"H": 2, "I": 4, "Q": 8}
_ENERGY_UNIT_J = 2.0**-16
"""The accumulator counts 15.259 uJ; documented from version 1.4 on, and for the GPUs with HBM that have 1.3 (MI200)."""

Fields = tuple[tuple[str, str, int], ...]
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
THROTTLE_CAUSES = (
    ("sw_power_cap", range(0, 8)),
    ("current_limit", range(16, 24)),
    ("hw_thermal_slowdown", range(32, 46)),
    ("hw_slowdown", (46, 47)),
    ("reliability", (57,)),
)
"""Bits of the throttle status that is the same for all GPUs, in NVIDIA's words where they mean the same."""
Values = dict[str, tuple[int | None, ...]]
_CLOCK_FILES = {"graphics": "pp_dpm_sclk", "memory": "pp_dpm_mclk", "soc": "pp_dpm_socclk", "fabric": "pp_dpm_fclk"}
_CLOCK_LABELS = {"sclk": "graphics", "mclk": "memory"}
_CLOCK_LINE = re.compile(r"(?P<level>[0-9]+|S): *(?P<mhz>[0-9]+) ?[Mm][Hh]z *(?P<now>\*)?")
_SENSORS = {"edge": "gpu", "junction": "junction", "mem": "memory"}
_LINK_SPEED = re.compile(r"([0-9]+(?:\.[0-9]+)?) GT/s.*")
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
_RAS_FILE = re.compile(r"(?P<block>\w+)_err_count")
_RAS_LINE = re.compile(r"(?P<kind>ue|ce|de): *(?P<count>[0-9]{1,18})")
_RAS_KINDS = {"ue": "uncorrected", "ce": "corrected", "de": "deferred"}
_BAD_PAGE = re.compile(r"0x[0-9a-fA-F]+ *: *0x[0-9a-fA-F]+ *: *(?P<flag>[RPF])")
_BAD_PAGE_STATES = {"R": "reserved", "P": "pending", "F": "unreservable"}
_LONGEST_LIST_BYTES = 256 * KIB


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
    """Read a table; ``None`` for a version that is not known, or when it is cut off.

    Its header has size and version. Of the versions for discrete GPUs (1.3 to 1.8) the fields whose unit the kernel
    documents are read (``drivers/gpu/drm/amd/include/kgd_pp_interface.h``). Other versions are not parsed. A field of
    all ones is one that the GPU does not have.
    """
    if len(data) < _HEADER.size:
        return None
    size, revision, content = _HEADER.unpack_from(data)
    layout = _LAYOUTS.get((revision, content))
    values = None if layout is None or size > len(data) else _unpack_values(data[:size], layout)
    if values is None:
        return None
    scalars = {name: numbers[0] for name, numbers in values.items() if numbers and numbers[0] is not None}
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RasCount:
    """Errors of one kind (corrected, uncorrected, deferred) that a block of the chip found since driver load."""

    block: str
    kind: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sensors:
    """Values of the GPU's hwmon folder."""

    power: GpuPower = field(default_factory=GpuPower)
    temperatures_c: Mapping[str, float] = field(default_factory=dict)
    limits_c: Mapping[str, float] = field(default_factory=dict)
    clocks_hz: Mapping[str, float] = field(default_factory=dict)


def read_hardware(
    base: GpuSample, files: ValueFiles, device: str, table: MetricsTable, ras: tuple[RasCount, ...]
) -> GpuSample:
    """Return the sample with the values of its hardware.

    Parameters
    ----------
    base
        The sample without the values of the hardware.
    files, device
        Files of its device folder, and the folder.
    table
        The firmware's table.
    ras
        Errors by block: memory's are ECC errors of the device memory.
    """
    sensors = _read_sensors(files, device)
    clocks = {name: _parse_clocks(files.text(file) or "") for name, file in _CLOCK_FILES.items()}
    stepped = {name: now for name, (now, _) in clocks.items() if now is not None}
    has_sensor_power = sensors.power.instant_w is not None or sensors.power.average_w is not None
    return replace(
        base,
        memory=_read_memory(files),
        utilisation=_read_utilisation(files, table),
        clocks_hz={**stepped, **table.clocks_hz, **sensors.clocks_hz},
        clocks_max_hz={name: most for name, (_, most) in clocks.items() if most is not None},
        power=replace(
            sensors.power,
            instant_w=sensors.power.instant_w if has_sensor_power else table.power_w,
            energy_j=table.energy_j,
        ),
        temperatures_c=_merge_temperatures(sensors, table),
        temperature_limits_c=sensors.limits_c,
        throttle_reasons=table.throttle,
        throttle_reasons_known=None if table.throttle is None else frozenset(cause for cause, _ in THROTTLE_CAUSES),
        ecc=tuple(
            EccCount(kind=count.kind, span="volatile", location="dram", count=count.count)
            for count in ras
            if count.block == "umc" and count.kind != "deferred"
        ),
        pcie=_read_pcie(files, table),
    )


def _read_memory(files: ValueFiles) -> GpuMemory | None:
    """Read the device memory."""
    total, used = files.count("mem_info_vram_total"), files.count("mem_info_vram_used")
    if not total or used is None:
        return None
    return GpuMemory(total_bytes=total, used_bytes=used, free_bytes=max(0, total - used))


def _read_utilisation(files: ValueFiles, table: MetricsTable) -> dict[str, float]:
    """Read shares of time in which shaders and memory controllers were busy."""
    ratios = {}
    for name, file, other in (
        ("gpu", "gpu_busy_percent", table.gpu_ratio),
        ("memory", "mem_busy_percent", table.memory_ratio),
    ):
        percent = files.count(file)
        ratio = other if percent is None or percent > 100 else units.percent(percent)
        if ratio is not None:
            ratios[name] = ratio
    return ratios


def _parse_clocks(text: str) -> tuple[float | None, float | None]:
    """Read the steps of a clock: the one in force and the highest [Hz]; ``S`` is a clock that sleeps."""
    steps = [match for match in map(_CLOCK_LINE.match, text.splitlines()) if match]
    now = [units.megahertz(float(step["mhz"])) for step in steps if step["now"]]
    most = [units.megahertz(float(step["mhz"])) for step in steps if step["level"] != "S"]
    return (now[0] if now else None), (max(most) if most else None)


def _read_sensors(files: ValueFiles, device: str) -> _Sensors:
    """Read the GPU's hwmon folder."""
    folder = next(iter(sorted(list_names(f"{device}/hwmon"), key=natural_sort_key)), None)
    if folder is None:
        return _Sensors()
    below = f"hwmon/{folder}"
    temperatures: dict[str, float] = {}
    limits: dict[str, float] = {}
    clocks: dict[str, float] = {}
    for number in range(1, 4):
        name = _SENSORS.get(files.text(f"{below}/temp{number}_label") or ("edge" if number == 1 else ""))
        celsius = files.whole(f"{below}/temp{number}_input")
        if name and celsius is not None:
            temperatures.setdefault(name, units.milli(celsius))
            limits |= _read_limits(files, f"{below}/temp{number}", name)
        clock = _CLOCK_LABELS.get(files.text(f"{below}/freq{number}_label") or "")
        hertz = files.count(f"{below}/freq{number}_input")
        if clock and hertz:
            clocks[clock] = float(hertz)
    return _Sensors(
        power=GpuPower(
            instant_w=_read_watts(files, f"{below}/power1_input"),
            average_w=_read_watts(files, f"{below}/power1_average"),
            limit_w=_read_watts(files, f"{below}/power1_cap"),
            default_limit_w=_read_watts(files, f"{below}/power1_cap_default"),
        ),
        temperatures_c=temperatures,
        limits_c=limits,
        clocks_hz=clocks,
    )


def _read_limits(files: ValueFiles, channel: str, name: str) -> dict[str, float]:
    """Read the temperature limits: the chip slows down at the hottest spot's critical one."""
    critical, emergency = files.whole(f"{channel}_crit"), files.whole(f"{channel}_emergency")
    limits: dict[str, float] = {}
    if name == "junction" and critical:
        limits["slowdown"] = units.milli(critical)
    if name == "junction" and emergency:
        limits["shutdown"] = units.milli(emergency)
    if name == "memory" and critical:
        limits["memory_max"] = units.milli(critical)
    return limits


def _read_watts(files: ValueFiles, name: str) -> float | None:
    """Read microwatts; 0 is the second die of a board, whose power the first one reports."""
    value = files.count(name)
    return units.micro(value) if value else None


def _merge_temperatures(sensors: _Sensors, table: MetricsTable) -> dict[str, float]:
    """Return temperatures; newer chips have no edge, there the hottest spot stands for the chip."""
    temperatures = {**table.temperatures_c, **sensors.temperatures_c}
    if "gpu" not in temperatures and "junction" in temperatures:
        temperatures["gpu"] = temperatures["junction"]
    return temperatures


def _read_pcie(files: ValueFiles, table: MetricsTable) -> PcieSample:
    """Read the PCIe link."""
    counters = dict(table.pcie_counters)
    replays = files.count("pcie_replay_count")
    if replays is not None:
        counters["replays"] = replays
    return PcieSample(
        generation=_parse_generation(files.text("current_link_speed")),
        generation_max=_parse_generation(files.text("max_link_speed")),
        width=files.count("current_link_width") or table.pcie_width,
        width_max=files.count("max_link_width") or None,
        counters=counters,
    )


def _parse_generation(text: str | None) -> int | None:
    """Return the generation of a link of ``16.0 GT/s PCIe``."""
    match = _LINK_SPEED.fullmatch(text or "")
    return _GENERATIONS.get(float(match[1])) if match else None


def read_ras(files: ValueFiles, folder: str) -> tuple[RasCount, ...]:
    """Read the errors of each block of the chip; each kind once."""
    counts: dict[tuple[str, str], RasCount] = {}
    for name in list_names(folder):
        match = _RAS_FILE.fullmatch(name)
        if match is None:
            continue
        for line in (files.text(f"ras/{name}") or "").splitlines():
            pair = _RAS_LINE.fullmatch(line.strip())
            if pair:
                kind = _RAS_KINDS[pair["kind"]]
                count = RasCount(block=match["block"], kind=kind, count=int(pair["count"]))
                counts.setdefault((count.block, kind), count)
    return tuple(counts.values())


def read_bad_pages(files: ValueFiles) -> dict[str, int]:
    """Count pages of device memory that are out of use."""
    text = files.text("ras/gpu_vram_bad_pages", _LONGEST_LIST_BYTES)
    if text is None:
        return {}
    flags = [match["flag"] for match in map(_BAD_PAGE.match, text.splitlines()) if match]
    return {state: flags.count(flag) for flag, state in _BAD_PAGE_STATES.items()}

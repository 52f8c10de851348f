"""Reads the hardware sensors and counters of one AMD GPU that is awake from its sysfs files.

The kernel shows microwatts, thousandths of a degree, MHz and percent; they become base units here. Where a file and the
firmware's table (`opsk.telemetry.gpu.amd.table`) have the same value, the file counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from opsk import units
from opsk.telemetry.gpu.amd.table import THROTTLE_CAUSES, MetricsTable
from opsk.telemetry.gpu.samples import EccCount, GpuMemory, GpuPower, GpuSample, PcieSample
from opsk.telemetry.host.value_files import ValueFiles, list_names, natural_sort_key
from opsk.units import KIB

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
    found = {**table.temperatures_c, **sensors.temperatures_c}
    if "gpu" not in found and "junction" in found:
        found["gpu"] = found["junction"]
    return found


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
            found = _RAS_LINE.fullmatch(line.strip())
            if found:
                kind = _RAS_KINDS[found["kind"]]
                count = RasCount(block=match["block"], kind=kind, count=int(found["count"]))
                counts.setdefault((count.block, kind), count)
    return tuple(counts.values())


def read_bad_pages(files: ValueFiles) -> dict[str, int]:
    """Count pages of device memory that are out of use."""
    text = files.text("ras/gpu_vram_bad_pages", _LONGEST_LIST_BYTES)
    if text is None:
        return {}
    flags = [match["flag"] for match in map(_BAD_PAGE.match, text.splitlines()) if match]
    return {state: flags.count(flag) for flag, state in _BAD_PAGE_STATES.items()}

"""Reads the sensors of the board: power, energy, fans, and the few temperatures that explain them.

Reads ``class/hwmon`` of a sysfs tree. The kernel shows microwatts, microjoules, thousandths of a degree and
milliseconds; they become watts, joules, degrees Celsius and seconds here. ACPI power meters keep their files in the
device's folder (``hwmonN/device``), and NVIDIA Grace names in ``power1_oem_info`` what each of its meters measures.
Sensors of GPUs are left to the GPUs' own readers, and temperatures other than those of processors and memory are left
out: a node can have hundreds, most of which nobody uses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from opsk import units
from opsk.telemetry.host.value_files import ValueFiles, list_names, natural_sort_key

_CHANNEL = re.compile(r"(?P<channel>(?P<kind>power|energy|temp|fan)[0-9]+)_(?:input|average)")
_GPU_CHIPS = {"amdgpu", "radeon", "nouveau"}
_ONE_CORE = re.compile(r"(?:Ecore|Core )[0-9]+")
_CPU_TEMPERATURES = {
    "coretemp": re.compile(r"(?:Package|Physical) id [0-9]+"),
    "k10temp": re.compile(r"Tctl|Tdie"),
    "zenpower": re.compile(r"Tctl|Tdie"),
    "peci_cputemp": re.compile(r"Die"),
    "sbtsi": re.compile(r".*"),
}
_MEMORY_CHIPS = {"jc42", "spd5118", "peci_dimmtemp"}
_PARTS = (
    ("module", re.compile(r"module", re.IGNORECASE)),
    ("grace", re.compile(r"grace", re.IGNORECASE)),
    ("io", re.compile(r"sysio|\bsoc\b", re.IGNORECASE)),
    ("dram", re.compile(r"dram|dimm", re.IGNORECASE)),
    ("cpu", re.compile(r"cpu|esocket|package", re.IGNORECASE)),
    ("psu_input", re.compile(r"pin[0-9]*", re.IGNORECASE)),
    ("psu_output", re.compile(r"pout[0-9]*", re.IGNORECASE)),
)
_MAX_SENSORS = 128
"""Of each kind: a board with more would fill Prometheus; what is left out is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HwmonPower:
    """One sensor of power or energy.

    Parameters
    ----------
    chip, driver
        Device that the sensor belongs to (``coretemp.0``, ``ACPI000D:00``), and its driver's name.
    sensor
        Label of the sensor (``Grace Power Socket 0``), or its channel where it has none (``power1``).
    part
        What is measured: ``node`` (an ACPI power meter without other label), ``module`` (a Grace module with its GPUs),
        ``grace`` (a Grace socket), ``cpu``, ``io``, ``dram``, ``psu_input``, ``psu_output`` or ``other``.
    input_w, average_w, lowest_w, highest_w
        Power now, its average over ``interval_s``, and the extremes since the driver was loaded [W].
    cap_w
        Power limit [W].
    interval_s
        What the average is taken over [s].
    energy_j
        Energy since the counter began [J].
    """

    chip: str
    driver: str
    sensor: str
    part: str
    input_w: float | None = None
    average_w: float | None = None
    lowest_w: float | None = None
    highest_w: float | None = None
    cap_w: float | None = None
    interval_s: float | None = None
    energy_j: float | None = None

    @property
    def watts(self) -> float | None:
        """Return the power now, or its average where only that is reported."""
        return self.input_w if self.input_w is not None else self.average_w


@dataclass(frozen=True, slots=True, kw_only=True)
class HwmonTemperature:
    """Temperature of a processor (``part`` is ``cpu``) or of a memory module (``dimm``), and where it gets critical."""

    chip: str
    sensor: str
    part: str
    celsius: float
    critical_c: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HwmonFan:
    """One fan, in turns per second."""

    chip: str
    sensor: str
    hertz: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HwmonReading:
    """All sensors in use; ``unreadable`` maps files below ``class/hwmon`` to the reason why they have no value."""

    powers: tuple[HwmonPower, ...] = ()
    temperatures: tuple[HwmonTemperature, ...] = ()
    fans: tuple[HwmonFan, ...] = ()
    unreadable: Mapping[str, str] = field(default_factory=dict)
    left_out: int = 0


@dataclass(slots=True, kw_only=True)
class _Readings:
    """The sensors read so far."""

    powers: list[HwmonPower] = field(default_factory=list)
    temperatures: list[HwmonTemperature] = field(default_factory=list)
    fans: list[HwmonFan] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chip:
    """One device with sensors: the files of one folder, and what the device is called."""

    files: ValueFiles
    name: str
    driver: str
    channels: tuple[tuple[str, str], ...]


class HwmonReader:
    """Reads the sensors of a sysfs tree.

    Parameters
    ----------
    sysfs
        Where sysfs is mounted.
    """

    def __init__(self, sysfs: Path = Path("/sys")) -> None:
        self._root = f"{sysfs}/class/hwmon"

    def read(self) -> HwmonReading:
        """Read all sensors in use; empty where there are none."""
        readings = _Readings()
        taken: set[str] = set()
        for folder in sorted(list_names(self._root), key=natural_sort_key):
            for below, chip in self._chips(folder, taken):
                _read_chip(chip, readings)
                readings.unreadable |= {f"{below}/{name}": why for name, why in chip.files.unreadable.items()}
        groups = (readings.powers, readings.temperatures, readings.fans)
        return HwmonReading(
            powers=tuple(readings.powers[:_MAX_SENSORS]),
            temperatures=tuple(readings.temperatures[:_MAX_SENSORS]),
            fans=tuple(readings.fans[:_MAX_SENSORS]),
            unreadable=readings.unreadable,
            left_out=sum(max(0, len(sensors) - _MAX_SENSORS) for sensors in groups),
        )

    def _chips(self, folder: str, taken: set[str]) -> Iterator[tuple[str, _Chip]]:
        """Return the folder that holds the sensors of one device; old drivers keep them in the device's folder."""
        path = f"{self._root}/{folder}"
        for below in (folder, f"{folder}/device"):
            channels = _list_channels(f"{self._root}/{below}")
            if not channels:
                continue
            driver = (ValueFiles(path).text("name") or ValueFiles(f"{path}/device").text("name") or "").strip()
            if driver in _GPU_CHIPS:
                return
            name = _read_device_name(path) or driver or folder
            if name in taken:
                name = f"{name}@{folder}"
            taken.add(name)
            files = ValueFiles(f"{self._root}/{below}")
            yield below, _Chip(files=files, name=name, driver=driver, channels=channels)
            return


def _list_channels(folder: str) -> tuple[tuple[str, str], ...]:
    """Return the channels of a folder by kind, in order: (``power``, ``power1``)."""
    matches = (_CHANNEL.fullmatch(name) for name in list_names(folder))
    channels = {(match["kind"], match["channel"]) for match in matches if match}
    return tuple(sorted(channels, key=lambda item: natural_sort_key(item[1])))


def _read_device_name(path: str) -> str | None:
    """Return the kernel's name of the device; it stays the same when drivers load in another order."""
    try:
        name = Path(path, "device").readlink().name
    except OSError:
        return None
    return name if name not in ("", "..") else None


def _read_chip(chip: _Chip, readings: _Readings) -> None:
    """Read the channels of one device."""
    named: set[str] = set()
    for kind, channel in chip.channels:
        label = chip.files.text(f"{channel}_label") or chip.files.text(f"{channel}_oem_info")
        sensor = _choose_free_name(named, label, channel)
        if kind in ("power", "energy"):
            power = None if _ONE_CORE.fullmatch(label or "") else _read_power(chip, channel, sensor)
            if power is not None:
                readings.powers.append(power)
        elif kind == "temp":
            temperature = _read_temperature(chip, channel, sensor, label)
            if temperature is not None:
                readings.temperatures.append(temperature)
        else:
            turns_per_min = chip.files.count(f"{channel}_input")
            if turns_per_min is not None:
                readings.fans.append(HwmonFan(chip=chip.name, sensor=sensor, hertz=turns_per_min / 60))
        named.add(sensor)


def _choose_free_name(named: set[str], label: str | None, channel: str) -> str:
    """Return a name that no sensor of the chip has yet: a label may come twice, or be the name of another channel."""
    names = [label, f"{label} {channel}"] if label else []
    name = next((name for name in (*names, channel) if name not in named), channel)
    while name in named:
        name = f"{name} {channel}"
    return name


def _read_power(chip: _Chip, channel: str, sensor: str) -> HwmonPower | None:
    """Read one sensor of power, or one of energy; ``None`` when it has no value now."""
    files = chip.files
    part = _classify_part(chip, sensor)
    if channel.startswith("energy"):
        energy_j = _read_micro(files, f"{channel}_input")
        power = HwmonPower(chip=chip.name, driver=chip.driver, sensor=sensor, part=part, energy_j=energy_j)
        return None if energy_j is None else power
    interval_ms = files.count(f"{channel}_average_interval")
    power = HwmonPower(
        chip=chip.name,
        driver=chip.driver,
        sensor=sensor,
        part=part,
        input_w=_read_micro(files, f"{channel}_input"),
        average_w=_read_micro(files, f"{channel}_average"),
        lowest_w=_read_micro(files, f"{channel}_input_lowest"),
        highest_w=_read_micro(files, f"{channel}_input_highest"),
        cap_w=_read_micro(files, f"{channel}_cap") or None,
        interval_s=units.milliseconds(interval_ms) if interval_ms else None,
    )
    return None if power.watts is None else power


def _classify_part(chip: _Chip, sensor: str) -> str:
    """Classify what a sensor measures by its label."""
    for part, words in _PARTS:
        if words.fullmatch(sensor) if part.startswith("psu") else words.search(sensor):
            return part
    return "node" if chip.driver == "power_meter" else "other"


def _read_temperature(chip: _Chip, channel: str, sensor: str, label: str | None) -> HwmonTemperature | None:
    """Read the temperature of a processor or of a memory module; ``None`` for any other."""
    cpu_labels = _CPU_TEMPERATURES.get(chip.driver)
    is_cpu = cpu_labels is not None and cpu_labels.fullmatch(label or "") is not None
    if not is_cpu and chip.driver not in _MEMORY_CHIPS:
        return None
    celsius = chip.files.whole(f"{channel}_input")
    critical = chip.files.whole(f"{channel}_crit")
    if celsius is None:
        return None
    return HwmonTemperature(
        chip=chip.name,
        sensor=sensor,
        part="cpu" if is_cpu else "dimm",
        celsius=units.milli(celsius),
        critical_c=units.milli(critical) if critical else None,
    )


def _read_micro(files: ValueFiles, name: str) -> float | None:
    """Read microwatts or microjoules."""
    value = files.count(name)
    return None if value is None else units.micro(value)

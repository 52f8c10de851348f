"""Exports the power of a node: its processors, its board, and the whole node as its controller measures it.

Each source is read by a thread of its own, through `Background`: the controller (IPMI DCMI) every 30 s and not by a
scrape, the others within a part of the scrape's deadline. A source that fails or hangs loses its own series only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from prometheus_client import Metric

from opsk.telemetry.background_reader import Background, Latest
from opsk.telemetry.power.hwmon import HwmonPower, HwmonReader, HwmonReading
from opsk.telemetry.power.ipmi import DcmiFile, DcmiReader, NoControllerError
from opsk.telemetry.power.node_power import DcmiSource, GpuPowerTotal, NodePower, NodePowerReader
from opsk.telemetry.power.rapl import RaplReader, RaplZone
from opsk_exporters.core.collector import DEFAULT_DEADLINE_S, NoDataError
from opsk_exporters.core.exposition import Families

_RAPL_EVERY_S = 60.0
"""The counter of a busy socket wraps in three minutes or more: it is read without scrapes too."""
NODE_EVERY_S = 30.0
_STALE_AFTER = 4
"""A node's power that was not refreshed for so many intervals is not shown any more."""
_SHARE_OF_DEADLINE = {"rapl": 0.2, "hwmon": 0.25, "dcmi": 0.4}
_SHARE_FOR_BALANCE = 0.1
"""Less than that: the reading of the controller must be in time even if the other two hang."""


class PowerCollector:
    """RAPL, sensors of the board, and the node's controller.

    Parameters
    ----------
    rapl, hwmon
        Readers of the processors' energy and of the board's sensors.
    dcmi
        Reader of the node's controller.
    gpu_power
        Returns the power of all GPUs without reading them: ``GpuPowerWatch.power``; ``None`` where no GPUs are read.
    deadline_s
        Deadline of a scrape [s]; each source gets a part of it.
    every_s
        How often the controller is read [s]; 0 never: then only the timer's file is read.
    dcmi_file
        That file; the usual one when it is not given.
    """

    name = "power"

    def __init__(
        self,
        rapl: RaplReader,
        hwmon: HwmonReader,
        dcmi: DcmiSource,
        gpu_power: Callable[[], GpuPowerTotal | None] | None = None,
        deadline_s: float = DEFAULT_DEADLINE_S,
        every_s: float = NODE_EVERY_S,
        dcmi_file: DcmiFile | None = None,
    ) -> None:
        self._wait_s = {source: share * deadline_s for source, share in _SHARE_OF_DEADLINE.items()}
        self._every_s = every_s or NODE_EVERY_S
        self._rapl = Background("rapl", rapl.zones, every_s=_RAPL_EVERY_S)
        self._hwmon = Background("hwmon", hwmon.read)
        node = NodePowerReader(
            dcmi if every_s else dcmi_file or DcmiFile(),
            self._rapl,
            self._hwmon,
            gpu_power,
            patience_s=_SHARE_FOR_BALANCE * deadline_s,
        )
        self._node = Background("dcmi", node.read, every_s=self._every_s)

    def collect(self) -> Iterable[Metric]:
        """Read the fast sources, and return them with the last reading of the controller."""
        node = self._node.latest(self._wait_s["dcmi"])
        rapl = self._rapl.refresh(self._wait_s["rapl"])
        hwmon = self._hwmon.refresh(self._wait_s["hwmon"])
        families = Families()
        present = {
            "rapl": _has_failed(rapl) or bool(rapl.value),
            "hwmon": _has_failed(hwmon) or bool(hwmon.value and _has_sensors(hwmon.value)),
            "dcmi": not isinstance(node.error, NoControllerError)
            and (node.value is None or node.value.dcmi is not None),
        }
        if not any(present.values()):
            raise NoDataError("no RAPL, no sensors of power or temperature, and no IPMI tool with a controller")
        if not _has_failed(rapl):
            _add_rapl(families, rapl.value or ())
        if hwmon.value and present["hwmon"] and not _has_failed(hwmon):
            _add_hwmon(families, hwmon.value)
        stale = node.age_s is None or node.age_s > _STALE_AFTER * self._every_s
        if node.value and not node.error and not stale:
            _add_node(families, node.value)
            _add_age(families, "dcmi", node.age_s if node.value.dcmi else None, node.value.dcmi_age_s)
        for source, latest in (("rapl", rapl), ("hwmon", hwmon)):
            _add_age(families, source, latest.age_s if present[source] else None)
        success = {"rapl": not _has_failed(rapl), "hwmon": not _has_failed(hwmon), "dcmi": not node.error and not stale}
        for source in sorted(present):
            _add_source(families, source, present=present[source], success=success[source])
        return families.all()

    def close(self) -> None:
        """Stop reading."""
        for source in (self._rapl, self._hwmon, self._node):
            source.close()


def make(
    sysfs: Path = Path("/sys"),
    gpu_power: Callable[[], GpuPowerTotal | None] | None = None,
    *,
    rapl: RaplReader | None = None,
    dcmi: DcmiSource | None = None,
    deadline_s: float = DEFAULT_DEADLINE_S,
    every_s: float = NODE_EVERY_S,
) -> PowerCollector:
    """Return the collector of a node; the parameters are those of `PowerCollector`."""
    return PowerCollector(
        rapl or RaplReader(sysfs),
        HwmonReader(sysfs),
        dcmi or DcmiReader(),
        gpu_power,
        deadline_s=deadline_s,
        every_s=every_s,
    )


def _has_failed(latest: Latest[Any]) -> bool:
    """Return whether a source that is read at each scrape gave nothing this time."""
    return latest.fresh_value is None


def _has_sensors(reading: HwmonReading) -> bool:
    """Return whether the board has a usable sensor."""
    return bool(reading.powers or reading.temperatures or reading.fans or reading.unreadable)


def _add_source(families: Families, source: str, *, present: bool, success: bool) -> None:
    """Add the state of a source."""
    families.gauge(
        "opsk_power_source_present",
        "1 when the node has this source of power readings (RAPL, sensors of the board, DCMI by IPMI), 0 when not.",
        float(present),
        source=source,
    )
    if present:
        families.gauge(
            "opsk_power_source_success",
            "1 when this source answered; 0 when it failed, hangs or has not answered yet, and its series are absent.",
            float(success),
            source=source,
        )


def _add_rapl(families: Families, zones: Iterable[RaplZone]) -> None:
    """Add the processors' energy."""
    zones = tuple(zones)
    for zone in zones:
        labels = {"source": "rapl", "sensor": zone.zone, "part": zone.domain}
        _add_energy(families, zone.energy_j, labels)
        _add_limit(families, zone.limit_w, labels)
    _add_unreadable(families, "rapl", [zone.unreadable for zone in zones if zone.unreadable])


def _add_hwmon(families: Families, reading: HwmonReading) -> None:
    """Add the board's sensors."""
    for power in reading.powers:
        _add_power(families, power)
    for temperature in reading.temperatures:
        labels = {"chip": temperature.chip, "sensor": temperature.sensor, "part": temperature.part}
        families.gauge(
            "opsk_power_temperature_celsius",
            "Temperature of a processor or of a memory module, from the board's sensors (hwmon).",
            temperature.celsius,
            **labels,
        )
        families.gauge(
            "opsk_power_critical_temperature_celsius",
            "Temperature at which the sensor calls the processor or memory module too hot (hwmon).",
            temperature.critical_c,
            **labels,
        )
    for fan in reading.fans:
        families.gauge(
            "opsk_power_fan_speed_hertz",
            "Turns per second of a fan, from the board's sensors (hwmon).",
            fan.hertz,
            chip=fan.chip,
            sensor=fan.sensor,
        )
    _add_unreadable(families, "hwmon", list(reading.unreadable.values()))
    families.gauge(
        "opsk_power_left_out_sensors",
        "Sensors of the board beyond the 128 of each kind that are shown.",
        reading.left_out or None,
        source="hwmon",
    )


def _add_power(families: Families, power: HwmonPower) -> None:
    """Add one sensor of power or energy."""
    labels = {"source": "hwmon", "sensor": f"{power.chip}/{power.sensor}", "part": power.part}
    _add_energy(families, power.energy_j, labels)
    _add_watts(
        families, labels, draw=power.input_w, average=power.average_w, minimum=power.lowest_w, maximum=power.highest_w
    )
    _add_period(families, power.interval_s, labels)
    _add_limit(families, power.cap_w, labels)


def _add_age(families: Families, source: str, age_s: float | None, before_s: float = 0.0) -> None:
    """Add the age of a source's last answer, which was ``before_s`` old when it arrived."""
    families.gauge(
        "opsk_power_source_age_seconds",
        "How old the last answer of this source is; the node's controller is read every 30 s and never by a scrape, "
        "the others by each scrape.",
        None if age_s is None else before_s + age_s,
        source=source,
    )


def _add_node(families: Families, node: NodePower) -> None:
    """Add the reading of the controller, and the power balance."""
    if node.dcmi is not None:
        labels = {"source": "dcmi", "sensor": "node", "part": "node"}
        dcmi = node.dcmi
        _add_watts(
            families,
            labels,
            draw=dcmi.current_w,
            average=dcmi.average_w,
            minimum=dcmi.minimum_w,
            maximum=dcmi.maximum_w,
        )
        _add_period(families, dcmi.period_s, labels)
    if node.balance is None:
        return
    parts = {"node": node.balance.node_w, "cpu": node.balance.cpu_w, "gpu": node.balance.gpu_w}
    for part, watts in parts.items():
        families.gauge(
            "opsk_power_balance_watts",
            "Power of the node, of its processors with their memory, and of all its GPUs, of one moment in the last "
            "minutes; only where all three are known.",
            watts,
            part=part,
        )
    families.gauge(
        "opsk_power_unaccounted_watts",
        "Power of the node that is neither its processors', their memory's nor its GPUs' (fans, disks, network cards, "
        "losses), of the moment of opsk_power_balance_watts; below zero where the meters disagree.",
        node.balance.unaccounted_w,
    )


def _add_energy(families: Families, energy_j: float | None, labels: dict[str, str]) -> None:
    """Add a counter of energy."""
    families.counter(
        "opsk_power_energy_joules_total",
        "Energy used, by RAPL zone of the processor (a zone is part of the zone before its slash) or by sensor of the "
        "board.",
        energy_j,
        **labels,
    )


def _add_watts(
    families: Families,
    labels: dict[str, str],
    *,
    draw: float | None,
    average: float | None,
    minimum: float | None,
    maximum: float | None,
) -> None:
    """Add the power of one sensor."""
    texts = (
        ("draw", "Power now, by sensor of the board or by the node's controller.", draw),
        ("average", "Power averaged by the sensor over opsk_power_averaging_seconds, where that is reported.", average),
        ("minimum", "Lowest power that the sensor saw: since its driver was loaded, or in its period.", minimum),
        ("maximum", "Highest power that the sensor saw: since its driver was loaded, or in its period.", maximum),
    )
    for what, help_text, value in texts:
        families.gauge(f"opsk_power_{what}_watts", help_text, value, **labels)


def _add_period(families: Families, period_s: float | None, labels: dict[str, str]) -> None:
    """Add the span that averages and extremes are taken over."""
    families.gauge("opsk_power_averaging_seconds", "Span that the sensor averages over.", period_s, **labels)


def _add_limit(families: Families, limit_w: float | None, labels: dict[str, str]) -> None:
    """Add a power limit."""
    families.gauge(
        "opsk_power_limit_watts",
        "Power limit in force: long-term limit of a RAPL zone, cap of a sensor.",
        limit_w,
        **labels,
    )


def _add_unreadable(families: Families, source: str, reasons: list[str]) -> None:
    """Add how many sensors exist and have no value, by reason; 0 too."""
    counts = Counter(reasons)
    for reason in ("permission", "error", "malformed"):
        families.gauge(
            "opsk_power_unreadable_sensors",
            "Sensors that are there and give no value, by reason; RAPL's are for root alone unless the administrator "
            "lets others read them.",
            counts[reason],
            source=source,
            reason=reason,
        )

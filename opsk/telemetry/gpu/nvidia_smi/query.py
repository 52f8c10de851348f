"""What does ``nvidia-smi --query-gpu=... --format=csv`` say? Its columns are read at the places that ``-q`` has."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator

from opsk.telemetry.gpu.nvidia_smi.tree import Section

_HEADER = re.compile(r"(?P<field>[a-z][\w.]{1,80})(?: \[(?P<unit>[^\]]{1,12})\])?")
_PLACES = {
    "name": "product name",
    "gpu_name": "product name",
    "uuid": "gpu uuid",
    "gpu_uuid": "gpu uuid",
    "serial": "serial number",
    "vbios_version": "vbios version",
    "persistence_mode": "persistence mode",
    "compute_mode": "compute mode",
    "gpu_recovery_action": "gpu recovery action",
    "pci.bus_id": "pci/bus id",
    "gpu_bus_id": "pci/bus id",
    "pcie.link.gen.current": "pci/gpu link info/pcie generation/current",
    "pcie.link.gen.gpucurrent": "pci/gpu link info/pcie generation/current",
    "pcie.link.gen.max": "pci/gpu link info/pcie generation/max",
    "pcie.link.width.current": "pci/gpu link info/link width/current",
    "pcie.link.width.max": "pci/gpu link info/link width/max",
    "power.draw": "gpu power readings/power draw",
    "power.draw.average": "gpu power readings/average power draw",
    "power.draw.instant": "gpu power readings/instantaneous power draw",
    "enforced.power.limit": "gpu power readings/current power limit",
    "power.limit": "gpu power readings/power limit",
    "power.default_limit": "gpu power readings/default power limit",
    "temperature.gpu": "temperature/gpu current temp",
    "temperature.gpu.tlimit": "temperature/gpu t.limit temp",
    "temperature.memory": "temperature/memory current temp",
    "ecc.mode.current": "ecc mode/current",
    "mig.mode.current": "mig mode/current",
    "remapped_rows.correctable": "remapped rows/correctable error",
    "remapped_rows.uncorrectable": "remapped rows/uncorrectable error",
    "remapped_rows.pending": "remapped rows/pending",
    "remapped_rows.failure": "remapped rows/remapping failure occurred",
    "retired_pages.single_bit_ecc.count": "retired pages/single bit ecc",
    "retired_pages.double_bit.count": "retired pages/double bit ecc",
    "retired_pages.pending": "retired pages/pending",
    "fabric.state": "fabric/state",
    "fabric.status": "fabric/status",
    "fabric.cliqueId": "fabric/cliqueid",
    "fabric.clusterUuid": "fabric/clusteruuid",
    "fabric.health.summary": "fabric/health/summary",
    "fabric.health.bandwidth": "fabric/health/bandwidth",
    "fabric.health.route_recovery_in_progress": "fabric/health/route recovery in progress",
    "fabric.health.route_unhealthy": "fabric/health/route unhealthy",
    "fabric.health.access_timeout_recovery": "fabric/health/access timeout recovery",
    "fabric.health.incorrect_configuration": "fabric/health/incorrect configuration",
    "ecc.errors.uncorrected.aggregate.sram.thresholdExceeded": "ecc errors/aggregate/sram threshold exceeded",
    **{f"memory.{part}": f"fb memory usage/{part}" for part in ("total", "used", "free", "reserved")},
    **{f"utilization.{part}": f"utilization/{part}" for part in ("gpu", "memory", "encoder", "decoder")},
    **{
        f"remapped_rows.histogram.{part}": f"remapped rows/bank remap availability histogram/{part}"
        for part in ("max", "high", "partial", "low", "none")
    },
    **{
        f"clocks.{prefix}{clock}": f"clocks/{clock}"
        for prefix in ("", "current.")
        for clock in ("graphics", "sm", "memory", "video")
    },
    **{f"clocks.max.{clock}": f"max clocks/{clock}" for clock in ("graphics", "sm", "memory")},
}
_ECC = re.compile(r"ecc\.errors\.(corrected|uncorrected)\.(volatile|aggregate)\.([a-z0-9_]+)(?:\.(parity|secded))?")
_ECC_PLACES = {
    "device_memory": "device memory",
    "register_file": "register file",
    "l1_cache": "l1 cache",
    "l2_cache": "l2 cache",
    "texture_memory": "texture memory",
    "cbu": "cbu",
    "total": "total",
}
_REASONS = {
    "gpu_idle": "idle",
    "applications_clocks_setting": "applications clocks setting",
    "sw_power_cap": "sw power cap",
    "hw_slowdown": "hw slowdown",
    "hw_thermal_slowdown": "hw thermal slowdown",
    "hw_power_brake_slowdown": "hw power brake slowdown",
    "sw_thermal_slowdown": "sw thermal slowdown",
    "sync_boost": "sync boost",
}
_COUNTERS = {
    "sw_power_cap": "sw power capping",
    "sync_boost": "sync boost",
    "sw_thermal_slowdown": "sw thermal slowdown",
    "hw_thermal_slowdown": "hw thermal slowdown",
    "hw_power_brake_slowdown": "hw power braking",
}
_MOST_COLUMNS = 1000
_NOT_GPUS = frozenset({"pid", "process_name", "gpu_util", "retired_pages.address", "retired_pages.cause"})
"""Columns of the queries for processes and pages: a row of theirs is no GPU."""


def is_header(line: str) -> bool:
    """Whether a line names columns: one of them says which GPU a row is of, and another is a field that is known."""
    names = [found["field"] for cell in line.split(", ") if (found := _HEADER.fullmatch(cell.strip()))]
    own = [name for name in names if name in _PLACES or name in ("index", "driver_version")]
    return len(own) > 1 and not _NOT_GPUS & set(names)


def read_rows(header: str, rows: list[str]) -> Iterator[tuple[int | None, Section, str | None]]:
    """Give index, section in the form of ``-q``, and driver for each row."""
    columns = [_HEADER.fullmatch(cell.strip()) for cell in header.split(", ")[:_MOST_COLUMNS]]
    for cells in csv.reader(rows, skipinitialspace=True):
        if len(cells) != len(columns):
            continue
        gpu, index, driver = Section(name="gpu", title="GPU ?"), None, None
        for column, cell in zip(columns, cells, strict=True):
            if column is None:
                continue
            field, value = column["field"], _with_unit(cell.strip(), column["unit"])
            if field in ("index", "driver_version"):
                index = int(cell) if field == "index" and cell.strip().isdecimal() else index
                driver = cell.strip()[:40] if field == "driver_version" else driver
            else:
                _put(gpu, _place(field), value)
        yield index, gpu, driver


def _with_unit(cell: str, unit: str | None) -> str:
    """Return a cell with the unit of its column, where ``nounits`` has left it out."""
    return f"{cell} {unit}" if unit and re.fullmatch(r"-?\d+(\.\d+)?", cell) else cell


def _place(field: str) -> str | None:
    """Return where ``-q`` has a field."""
    ecc = _ECC.fullmatch(field)
    if ecc is not None:
        return _ecc_place(*ecc.groups())
    group, _, rest = field.partition(".")
    if group in ("clocks_event_reasons", "clocks_throttle_reasons") and rest in _REASONS:
        return f"clocks event reasons/{_REASONS[rest]}"
    if group == "clocks_event_reasons_counters" and rest in _COUNTERS:
        return f"clocks event reasons counters/{_COUNTERS[rest]}"
    return _PLACES.get(field)


def _ecc_place(kind: str, span: str, location: str, detail: str | None) -> str | None:
    """Return where ``-q`` has a count of memory errors."""
    word = "correctable" if kind == "corrected" else "uncorrectable"
    if location in ("dram", "sram"):
        extra = {"parity": " parity", "secded": " sec-ded", None: ""}[detail]
        return f"ecc errors/{span}/{location} {word}{extra}"
    bits = "single bit" if kind == "corrected" else "double bit"
    return f"ecc errors/{span}/{bits}/{_ECC_PLACES[location]}" if location in _ECC_PLACES and detail is None else None


def _put(gpu: Section, place: str | None, value: str) -> None:
    """Put a value at its place."""
    if place is None:
        return
    here = gpu
    for name in place.split("/"):
        below = here.first(name)
        if below is None:
            below = Section(name=name, title=name)
            here.parts.append(below)
        here = below
    here.text = value

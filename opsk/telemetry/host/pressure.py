"""Reads the resource pressure of this node: stall times of its tasks, OOM kills, and the memory of each NUMA node.

Reads pressure stall information (``pressure/`` of procfs), ``vmstat``, and the memory of each NUMA node (``node*`` of
sysfs). The kernel counts microseconds and KiB; they become seconds and bytes here. A training job whose data loaders
starve shows as pressure on ``cpu`` or ``io`` together with idle GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from opsk import units
from opsk.telemetry.host.value_files import ValueFiles, list_names, natural_sort_key
from opsk.units import KIB

_RESOURCES = ("cpu", "io", "memory", "irq")
_PRESSURE = re.compile(r"(?P<share>some|full) .*\btotal=(?P<total_us>[0-9]{1,20})")
_NUMA_NODE = re.compile(r"node(?P<number>[0-9]+)")
_NUMA_LINE = re.compile(r"Node [0-9]+ (?P<name>MemTotal|MemFree|FilePages): +(?P<kib>[0-9]{1,16}) kB")
_NUMA_NAMES = {"MemTotal": "size", "MemFree": "free", "FilePages": "cached"}
_LONGEST_BYTES = 64 * KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class PressureSample:
    """Stall times of the tasks since boot.

    Parameters
    ----------
    stalled_s
        Time in which at least one task (``some``) or all that were not idle (``full``) waited, by resource (``cpu``,
        ``io``, ``memory``, ``irq``) and share [s].
    oom_kills
        Tasks that the kernel ended because memory ran out, on the node or in a control group.
    numa_bytes
        By NUMA node: ``size``, ``free`` and ``cached`` [bytes].
    """

    stalled_s: Mapping[tuple[str, str], float] = field(default_factory=dict)
    oom_kills: int | None = None
    numa_bytes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


class PressureReader:
    """Reads a node's pressure; what a kernel does not report (no PSI, one NUMA node without files) is absent.

    Parameters
    ----------
    procfs, sysfs
        Where they are mounted.
    """

    def __init__(self, procfs: Path = Path("/proc"), sysfs: Path = Path("/sys")) -> None:
        self._procfs = ValueFiles(str(procfs))
        self._nodes = f"{sysfs}/devices/system/node"

    def sample(self) -> PressureSample:
        """Read the current values."""
        return PressureSample(stalled_s=self._stalled_s(), oom_kills=self._oom_kills(), numa_bytes=self._numa_bytes())

    def _stalled_s(self) -> dict[tuple[str, str], float]:
        """Read pressure stall information."""
        stalled_s: dict[tuple[str, str], float] = {}
        for resource in _RESOURCES:
            for line in (self._procfs.text(f"pressure/{resource}") or "").splitlines():
                match = _PRESSURE.fullmatch(line)
                # Nothing waits fully for a processor: the kernel writes the line for its form's sake, always 0.
                if match and (resource, match["share"]) != ("cpu", "full"):
                    stalled_s[resource, match["share"]] = units.micro(int(match["total_us"]))
        return stalled_s

    def _oom_kills(self) -> int | None:
        """Read the kernel's count."""
        for line in (self._procfs.text("vmstat", _LONGEST_BYTES) or "").splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill" and value.isascii() and value.isdigit():
                return int(value)
        return None

    def _numa_bytes(self) -> dict[str, dict[str, int]]:
        """Read the memory of each NUMA node; one alone is the node's own memory, reported elsewhere."""
        folders = sorted(filter(_NUMA_NODE.fullmatch, list_names(self._nodes)), key=natural_sort_key)
        if len(folders) < 2:
            return {}
        by_node: dict[str, dict[str, int]] = {}
        for folder in folders:
            text = ValueFiles(f"{self._nodes}/{folder}").text("meminfo") or ""
            matches = (_NUMA_LINE.fullmatch(line.strip()) for line in text.splitlines())
            values = {_NUMA_NAMES[match["name"]]: int(match["kib"]) * units.KIB for match in matches if match}
            if values.get("size"):
                by_node[folder.removeprefix("node")] = values
        return by_node

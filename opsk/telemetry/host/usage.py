"""Reads the utilisation and the pressure of this node from procfs and sysfs, through psutil where it can.

psutil keeps the mount point of procfs in one variable of the process: only one `HostReader` can be in use in a process.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

import psutil

from opsk import units
from opsk.errors import TelemetryError
from opsk.telemetry.host.value_files import ValueFiles, list_names, natural_sort_key
from opsk.units import KIB

_RESOURCES = ("cpu", "io", "memory", "irq")
_PRESSURE = re.compile(r"(?P<share>some|full) .*\btotal=(?P<total_us>[0-9]{1,20})")
_NUMA_NODE = re.compile(r"node(?P<number>[0-9]+)")
_NUMA_LINE = re.compile(r"Node [0-9]+ (?P<name>MemTotal|MemFree|FilePages): +(?P<kib>[0-9]{1,16}) kB")
_NUMA_NAMES = {"MemTotal": "size", "MemFree": "free", "FilePages": "cached"}
_LONGEST_BYTES = 64 * KIB
_T = TypeVar("_T")
_MEMORY = {
    "MemTotal": "total",
    "MemAvailable": "available",
    "MemFree": "free",
    "Buffers": "buffers",
    "Cached": "cached",
}
_SWAP = {"SwapTotal": "total", "SwapFree": "free"}
_PASSING_INTERFACE = re.compile(r"veth.*|cali.*|lxc.*")
"""Interfaces that come and go with containers: each would leave series behind."""
_PART_OF_A_DISK = re.compile(r"(z?ram|loop|fd)\d+|(h|s|v|xv)d[a-z]+\d+|(nvme\d+n|mmcblk|nbd)\d+p\d+")
_KIB = re.compile(r"[0-9]{1,16}")
_LARGEST = 2**64 - 1
_CPU_MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")


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

    Pressure stall information (``pressure/`` of procfs), ``vmstat``, and the memory of each NUMA node (``node*`` of
    sysfs). The kernel counts microseconds and KiB; they become seconds and bytes here. A training job whose data
    loaders starve shows as pressure on ``cpu`` or ``io`` together with idle GPUs.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class InterfaceSample:
    """Counters of one network interface since it came up."""

    interface: str
    received_bytes: int
    transmitted_bytes: int
    received_packets: int
    transmitted_packets: int
    receive_errors: int
    transmit_errors: int
    receive_drops: int
    transmit_drops: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSample:
    """Counters of one block device since boot; ``busy_s`` is the time with at least one request under way [s]."""

    disk: str
    read_bytes: int
    written_bytes: int
    reads: int
    writes: int
    read_s: float
    write_s: float
    busy_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSample:
    """A node at one moment.

    Parameters
    ----------
    cpu_s
        Seconds that all logical CPUs together spent in each mode since boot; guest time counts as ``user``.
    cpus
        Logical CPUs that are online.
    load
        Load averages of 1, 5 and 15 minutes; ``None`` when they cannot be read.
    memory_bytes, swap_bytes
        ``total``, ``available``, ``free``, ``buffers``, ``cached`` and ``total``, ``free`` [bytes]; what the kernel
        does not report has no key.
    boot_unix_s
        When the node booted [s since 1970].
    unreadable
        What the kernel did not report, or not in the expected format: ``cpu``, ``cpus``, ``memory``, ``boot``,
        ``network``, ``disk``. It is absent: ``None`` or empty.
    """

    cpu_s: Mapping[str, float]
    cpus: int | None
    load: tuple[float, float, float] | None
    memory_bytes: Mapping[str, int]
    swap_bytes: Mapping[str, int]
    boot_unix_s: float | None
    interfaces: tuple[InterfaceSample, ...] = field(default=())
    disks: tuple[DiskSample, ...] = field(default=())
    unreadable: tuple[str, ...] = ()


class HostSource(Protocol):
    """A source of the utilisation of a node."""

    def sample(self) -> HostSample:
        """Return the node as it is now.

        Raises
        ------
        TelemetryError
            The kernel reports nothing.
        """


class HostReader:
    """Reads a node through psutil.

    Parameters
    ----------
    procfs
        Where procfs is mounted.
    """

    def __init__(self, procfs: Path = Path("/proc")) -> None:
        self._procfs = procfs
        psutil.PROCFS_PATH = str(procfs)

    def sample(self) -> HostSample:
        """Return the node as it is now; a file that cannot be read costs only its own values."""
        parts = _Parts()
        meminfo = parts.read("memory", lambda: _read_meminfo_bytes(self._procfs)) or {}
        sample = HostSample(
            cpu_s=parts.read("cpu", _read_cpu_s) or {},
            cpus=parts.read("cpus", lambda: len(psutil.cpu_times(percpu=True)) or None),
            load=_read_load(self._procfs),
            memory_bytes={name: meminfo[key] for key, name in _MEMORY.items() if key in meminfo},
            swap_bytes={name: meminfo[key] for key, name in _SWAP.items() if key in meminfo},
            boot_unix_s=parts.read("boot", psutil.boot_time),
            interfaces=parts.read("network", _read_interfaces) or (),
            disks=parts.read("disk", _read_disks) or (),
            unreadable=tuple(parts.failed),
        )
        if not (sample.cpu_s or meminfo or sample.interfaces):
            raise TelemetryError(
                f"{self._procfs}: {'; '.join(parts.failed.values())}",
                hint="--procfs names a folder with stat, meminfo, net/dev and diskstats",
            )
        return sample


class _Parts:
    """Reads the values of a node part by part; ``failed`` has the error of each part that cannot be read."""

    def __init__(self) -> None:
        self.failed: dict[str, str] = {}

    def read(self, part: str, reader: Callable[[], _T]) -> _T | None:
        """Return a part; ``None`` when it cannot be read: psutil raises anything for a file that it does not expect."""
        try:
            return reader()
        except Exception as error:  # noqa: BLE001 - see above
            self.failed[part] = f"{type(error).__name__}: {error}"
            return None


def _read_cpu_s() -> dict[str, float]:
    """Return seconds by mode; guest time, which the kernel counts in ``guest`` and in ``user``, stays in ``user``."""
    times = psutil.cpu_times()
    return {mode: getattr(times, mode) for mode in _CPU_MODES if hasattr(times, mode)}


def _read_load(procfs: Path) -> tuple[float, float, float] | None:
    """Read the three load averages."""
    try:
        load1, load5, load15 = (float(word) for word in (procfs / "loadavg").read_text(encoding="ascii").split()[:3])
    except (OSError, ValueError):
        return None
    return load1, load5, load15


def _read_meminfo_bytes(procfs: Path) -> dict[str, int]:
    """Read ``meminfo``; psutil would return zeros for what the kernel does not report."""
    values: dict[str, int] = {}
    for line in (procfs / "meminfo").read_text(encoding="ascii", errors="replace").splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and _KIB.fullmatch(words[0]):
            values[name] = int(words[0]) * units.KIB
    return values


def _check_counters(numbers: Iterable[float]) -> None:
    """Raise where a number is none that the kernel's counters can have."""
    if any(not 0 <= number <= _LARGEST for number in numbers):
        raise ValueError("a counter beyond 64 bits")


def _read_interfaces() -> tuple[InterfaceSample, ...]:
    """Return all interfaces that outlive a container, by name."""
    by_interface = psutil.net_io_counters(pernic=True, nowrap=False)
    _check_counters(number for counters in by_interface.values() for number in counters)
    return tuple(
        InterfaceSample(
            interface=name,
            received_bytes=counters.bytes_recv,
            transmitted_bytes=counters.bytes_sent,
            received_packets=counters.packets_recv,
            transmitted_packets=counters.packets_sent,
            receive_errors=counters.errin,
            transmit_errors=counters.errout,
            receive_drops=counters.dropin,
            transmit_drops=counters.dropout,
        )
        for name, counters in sorted(by_interface.items())
        if not _PASSING_INTERFACE.fullmatch(name)
    )


def _read_disks() -> tuple[DiskSample, ...]:
    """Return whole disks, by name: partitions would count every byte twice."""
    by_disk = psutil.disk_io_counters(perdisk=True, nowrap=False) or {}
    # Sectors of 512 bytes: bytes may be more than a 64-bit number of the kernel's.
    _check_counters(number / 512 for counters in by_disk.values() for number in counters)
    return tuple(
        DiskSample(
            disk=name,
            read_bytes=counters.read_bytes,
            written_bytes=counters.write_bytes,
            reads=counters.read_count,
            writes=counters.write_count,
            read_s=units.milliseconds(counters.read_time),
            write_s=units.milliseconds(counters.write_time),
            busy_s=units.milliseconds(counters.busy_time),
        )
        for name, counters in sorted(by_disk.items())
        if not _PART_OF_A_DISK.fullmatch(name)
    )

"""Exports the utilisation of a node's processors, memory, network and disks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import Metric

from opsk.metrics import names as metric_names
from opsk.telemetry.host.usage import (
    DiskSample,
    HostSample,
    HostSource,
    InterfaceSample,
    PressureReader,
    PressureSample,
)
from opsk_exporters.core.exposition import Families

_NUMA = {
    "size": "Memory of a NUMA node.",
    "free": "Memory of a NUMA node that nothing uses, not even as a cache.",
    "cached": "Memory of a NUMA node that caches files.",
}
_MEMORY = {
    "size": "Memory that the kernel manages.",
    "available": "Memory that new work can get without swapping, as the kernel estimates it.",
    "free": "Memory that nothing uses, not even as a cache.",
    "buffers": "Memory that caches block devices.",
    "cached": "Memory that caches files, shared memory included.",
}
_SWAP = {"size": "Swap space.", "free": "Swap space that is not used."}
_SOURCE = {"size": "total"}
"""A name that ends in ``_total`` is a counter's in Prometheus: the total of the kernel is called size."""
_MAX_DECREASE_S = 60.0


def add_pressure(families: Families, sample: PressureSample) -> None:
    """Add pressure, OOM kills, and memory by NUMA node."""
    for (resource, share), stalled_s in sample.stalled_s.items():
        families.counter(
            metric_names.HOST_PRESSURE_SECONDS_TOTAL,
            "Time since boot in which at least one task (some) or all that were not idle (full) waited for a resource "
            "(kernel's pressure stall information).",
            stalled_s,
            resource=resource,
            share=share,
        )
    families.counter(
        "opsk_host_oom_kills_total",
        "Tasks that the kernel ended since boot because memory ran out, on the node or in a control group.",
        sample.oom_kills,
    )
    for node, values in sample.numa_bytes.items():
        for what, help_text in _NUMA.items():
            families.gauge(f"opsk_host_numa_memory_{what}_bytes", help_text, values.get(what), numa_node=node)


class CpuTimes:
    """CPU time by mode that does not fall.

    The kernel takes time back now and then: what a CPU waited for a disk that another one's task waits for now
    (``proc(5)``, ``iowait``). Prometheus would count all of it once more. Where all modes together are less than
    before, by more than a minute, they were reset.
    """

    def __init__(self) -> None:
        self._shown: dict[str, float] = {}
        self._total_s = 0.0

    def note(self, cpu_s: Mapping[str, float]) -> Mapping[str, float]:
        """Add the times of a moment; return those to be exported."""
        if not cpu_s:
            return {}
        total_s = sum(cpu_s.values())
        is_reset = total_s < self._total_s - _MAX_DECREASE_S
        self._total_s = total_s
        self._shown = {
            mode: seconds if is_reset else max(seconds, self._shown.get(mode, seconds))
            for mode, seconds in cpu_s.items()
        }
        return self._shown


class HostCollector:
    """CPU, memory, load, network and disks of the node.

    Parameters
    ----------
    source
        Where the samples come from.
    pressure
        Reader of the resource pressure; its metrics are absent where there is none.
    """

    name = "host"

    def __init__(self, source: HostSource, pressure: PressureReader | None = None) -> None:
        self._source = source
        self._pressure = pressure
        self._cpu = CpuTimes()

    def collect(self) -> Iterable[Metric]:
        """Read the node once."""
        sample = self._source.sample()
        families = Families()
        _add_node(families, sample, self._cpu.note(sample.cpu_s))
        if self._pressure is not None:
            add_pressure(families, self._pressure.sample())
        for interface in sample.interfaces:
            _add_interface(families, interface)
        for disk in sample.disks:
            _add_disk(families, disk)
        return families.all()


def _add_node(families: Families, sample: HostSample, cpu_s: Mapping[str, float]) -> None:
    """Add the metrics of the node as a whole."""
    families.gauge(
        "opsk_host_unreadable_parts",
        "Parts of the node (CPU time, CPUs, memory, boot time, network, disks) that the kernel does not report, or in "
        "no form that is known; their series are absent.",
        len(sample.unreadable),
    )
    for mode, seconds in cpu_s.items():
        families.counter(
            metric_names.HOST_CPU_SECONDS_TOTAL,
            "Time that all logical CPUs together spent in each mode; guests count as user.",
            seconds,
            mode=mode,
        )
    families.gauge(metric_names.HOST_CPUS, "Logical CPUs online.", sample.cpus)
    for period, value in zip(("1", "5", "15"), sample.load or (), strict=False):
        families.gauge(
            f"opsk_host_load{period}",
            f"Tasks that run or wait for a CPU or a disk, averaged over {period} min.",
            value,
        )
    for part, help_text in _MEMORY.items():
        families.gauge(f"opsk_host_memory_{part}_bytes", help_text, sample.memory_bytes.get(_SOURCE.get(part, part)))
    for part, help_text in _SWAP.items():
        families.gauge(f"opsk_host_swap_{part}_bytes", help_text, sample.swap_bytes.get(_SOURCE.get(part, part)))
    families.gauge("opsk_host_boot_time_seconds", "When the node booted, in seconds since 1970.", sample.boot_unix_s)


def _add_interface(families: Families, sample: InterfaceSample) -> None:
    """Add one network interface."""
    counters = (
        ("received_bytes", "Bytes received.", sample.received_bytes),
        ("transmitted_bytes", "Bytes sent.", sample.transmitted_bytes),
        ("received_packets", "Packets received.", sample.received_packets),
        ("transmitted_packets", "Packets sent.", sample.transmitted_packets),
        ("receive_errors", "Packets received with an error.", sample.receive_errors),
        ("transmit_errors", "Packets that could not be sent because of an error.", sample.transmit_errors),
        ("receive_drops", "Packets received and dropped.", sample.receive_drops),
        ("transmit_drops", "Packets dropped instead of sent.", sample.transmit_drops),
    )
    for what, help_text, value in counters:
        families.counter(f"opsk_host_network_{what}_total", help_text, value, device=sample.interface)


def _add_disk(families: Families, sample: DiskSample) -> None:
    """Add one disk."""
    counters = (
        ("read_bytes", "Bytes read from the device.", sample.read_bytes),
        ("written_bytes", "Bytes written to the device.", sample.written_bytes),
        ("reads", "Reads completed.", sample.reads),
        ("writes", "Writes completed.", sample.writes),
        ("read_seconds", "Time that all reads together took.", sample.read_s),
        ("write_seconds", "Time that all writes together took.", sample.write_s),
        ("busy_seconds", "Time with at least one request under way.", sample.busy_s),
    )
    for what, help_text, value in counters:
        families.counter(f"opsk_host_disk_{what}_total", help_text, value, device=sample.disk)

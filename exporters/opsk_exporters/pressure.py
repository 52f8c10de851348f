"""Which metrics tell what tasks of a node wait for? Part of the collector ``host``."""

from __future__ import annotations

from opsk.telemetry.pressure import PressureSample
from opsk_exporters.families import Families

_NUMA = {
    "size": "Memory of a NUMA node.",
    "free": "Memory of a NUMA node that nothing uses, not even as a cache.",
    "cached": "Memory of a NUMA node that caches files.",
}


def add_pressure(families: Families, sample: PressureSample) -> None:
    """Add pressure, kills for want of memory, and memory by NUMA node."""
    for (resource, share), stalled_s in sample.stalled_s.items():
        families.counter(
            "opsk_host_pressure_seconds_total",
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

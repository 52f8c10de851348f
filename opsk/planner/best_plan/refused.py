"""Why does a plan not fit, in a few words?"""

from __future__ import annotations

from opsk.costmodel.table import MemoryTable
from opsk.hardware.spec import ClusterSpec
from opsk.text import format_bytes

_SHOWN = 2


def why_refused(memory: MemoryTable, cluster: ClusterSpec, row: int = 0) -> str:
    """Return what one row needs and lacks, and what takes most of it."""
    capacity = float(cluster.node.gpu.capacity_bytes)
    needed = float(memory.needed_bytes.expected[row])
    largest = sorted(((float(part[row]), name) for name, part in memory.components.items()), reverse=True)[:_SHOWN]
    parts = ", ".join(f"{name} {format_bytes(size)}" for size, name in largest)
    if needed > capacity:
        return f"needs {format_bytes(needed)}, {format_bytes(needed - capacity)} more than there is ({parts})"
    return f"needs {format_bytes(needed)} of {format_bytes(capacity)}: too close to be likely to run ({parts})"

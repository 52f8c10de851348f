"""Parses kernel logs of any format into typed events of GPUs, links, memory and killed processes."""

from __future__ import annotations

from opsk.telemetry.kernel_log.event_reader import (
    KMSG,
    EventReader,
    KernelLog,
    KmsgBatch,
    KmsgReader,
    boot_unix_s,
    read_kernel_log,
)
from opsk.telemetry.kernel_log.events import (
    CrashEvent,
    DriverEvent,
    FallenOffBusEvent,
    HungTaskEvent,
    KernelEvent,
    LinkState,
    MemoryErrorEvent,
    NicEvent,
    NvlinkFields,
    OomEvent,
    OomScope,
    PanicEvent,
    PcieErrorEvent,
    Severity,
    SxidEvent,
    XidEvent,
)
from opsk.telemetry.kernel_log.lines import Clock, KernelLine, LineReader, Stamp

__all__ = [
    "KMSG",
    "Clock",
    "CrashEvent",
    "DriverEvent",
    "EventReader",
    "FallenOffBusEvent",
    "HungTaskEvent",
    "KernelEvent",
    "KernelLine",
    "KernelLog",
    "KmsgBatch",
    "KmsgReader",
    "LineReader",
    "LinkState",
    "MemoryErrorEvent",
    "NicEvent",
    "NvlinkFields",
    "OomEvent",
    "OomScope",
    "PanicEvent",
    "PcieErrorEvent",
    "Severity",
    "Stamp",
    "SxidEvent",
    "XidEvent",
    "boot_unix_s",
    "read_kernel_log",
]

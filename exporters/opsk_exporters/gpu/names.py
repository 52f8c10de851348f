"""Maps the values of a GPU sample to metric names and help texts.

Each table maps the name of a value in a sample to the middle of a metric's name and its help text. Adding a value is
adding a line.
"""

from __future__ import annotations

from typing import NamedTuple


class MetricName(NamedTuple):
    """The name of a metric after ``opsk_gpu_``, and its help text."""

    what: str
    help_text: str


UP_HELP = (
    "1 for a GPU that answers, 0 for one that was there since the exporter started and is lost or gone; a GPU that "
    "never reported its identity has its index or address instead."
)
UNREADABLE_HELP = (
    "Values that the GPU's driver supports and did not report; their series are absent. What the GPU does not "
    "support does not count."
)
TEMPERATURE_HELP = "Temperature of the GPU chip, of its memory and, where reported, of its hottest spot (junction)."
"""Used for NVIDIA's and AMD's GPUs: a metric has one text."""

_TIME = "Share of the time since the last reading in which"
_GPM = "counted by the hardware (NVML GPM, Hopper and newer)."

UTILISATION = {
    "gpu": MetricName(
        "utilization_ratio",
        "Share of the driver's last sample period (NVML: 1/6 to 1 s) in which any kernel ran, however much of the "
        "GPU it used. Absent with MIG on.",
    ),
    "memory": MetricName(
        "memory_utilization_ratio",
        "Share of the driver's last sample period in which device memory was read or written; not its fill.",
    ),
}
ACTIVITY = {
    "graphics": MetricName("graphics_active_ratio", f"{_TIME} any compute or graphics work was active, {_GPM}"),
    "sm": MetricName("sm_active_ratio", f"{_TIME} multiprocessors had work, averaged over all of them, {_GPM}"),
    "sm_occupancy": MetricName(
        "sm_occupancy_ratio", f"Warps resident since the last reading, over the most that could be, {_GPM}"
    ),
    "tensor": MetricName("tensor_active_ratio", f"{_TIME} tensor cores were busy, in any precision, {_GPM}"),
    "dram": MetricName(
        "dram_active_ratio", f"Share of the device memory's bandwidth used since the last reading, {_GPM}"
    ),
}
PIPES = {
    "tensor_half": "tensor_half",
    "tensor_double": "tensor_double",
    "tensor_integer": "tensor_integer",
    "fp64": "fp64",
    "fp32": "fp32",
    "fp16": "fp16",
    "integer": "integer",
}
"""Pipes of the multiprocessors by their name in a sample; the label has the same."""
PIPE = MetricName("pipe_active_ratio", f"{_TIME} a pipe of the multiprocessors was busy, {_GPM}")
RATES = {
    "pcie_received": MetricName(
        "pcie_received_bytes_per_second", "Bytes a second that the GPU received over PCIe since the last reading (GPM)."
    ),
    "pcie_transmitted": MetricName(
        "pcie_transmitted_bytes_per_second", "Bytes a second that the GPU sent over PCIe since the last reading (GPM)."
    ),
}
MEMORY = {
    "total_bytes": MetricName("memory_size_bytes", "Device memory that is installed."),
    "used_bytes": MetricName("memory_used_bytes", "Device memory allocated by processes."),
    "reserved_bytes": MetricName(
        "memory_reserved_bytes", "Device memory that driver and firmware keep for themselves."
    ),
    "free_bytes": MetricName("memory_free_bytes", "Device memory that nobody has allocated."),
}
MIG_MEMORY = {
    name: MetricName(f"mig_{metric.what}", f"{metric.help_text[:-1]}, of the GPU instance that a MIG device is in.")
    for name, metric in MEMORY.items()
}
MIG_ACTIVITY = {
    name: MetricName(f"mig_{metric.what}", f"For a MIG device's GPU instance: {metric.help_text[0].lower()}{rest}")
    for name, metric in ACTIVITY.items()
    for rest in (metric.help_text[1:],)
}
POWER = {
    "instant_w": MetricName("power_watts", "Power that the GPU draws at this moment."),
    "average_w": MetricName("power_average_watts", "Power that the GPU drew, averaged over the last second."),
    "limit_w": MetricName("power_limit_watts", "Power limit in force, whoever set it."),
    "default_limit_w": MetricName("power_default_limit_watts", "Power limit that the GPU starts with."),
}
PCIE = {
    "generation": MetricName("pcie_generation", "Generation of the PCIe link now; it falls when the GPU idles."),
    "generation_max": MetricName("pcie_generation_max", "Newest generation that GPU and slot can do together."),
    "width": MetricName("pcie_width_lanes", "Lanes of the PCIe link now."),
    "width_max": MetricName("pcie_width_max_lanes", "Most lanes that GPU and slot can do together."),
}
REMAP = {
    "pending": MetricName("row_remap_pending", "1 when rows of memory wait for a reset to be replaced by spares."),
    "failure": MetricName("row_remap_failed", "1 when a row of memory could not be replaced: the GPU needs service."),
}
SWITCHES = {
    "ecc_enabled": MetricName("ecc_enabled", "1 when ECC is on."),
    "sram_threshold_exceeded": MetricName(
        "sram_threshold_exceeded", "1 when more SRAM errors were seen than the GPU should have in its life."
    ),
    "mig_mode": MetricName("mig_enabled", "1 when MIG is on; absent for a GPU without MIG."),
    "persistence": MetricName("persistence_mode", "1 when the driver stays initialised without a process on the GPU."),
}
STATES_OF_FABRIC = ("not_supported", "not_started", "in_progress", "completed")

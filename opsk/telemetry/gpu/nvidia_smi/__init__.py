"""What does the text that nvidia-smi printed say of GPUs and their links? The second source of GPU data."""

from __future__ import annotations

from opsk.telemetry.gpu.nvidia_smi.links import ListedGpu, ListedMig, read_links, read_list
from opsk.telemetry.gpu.nvidia_smi.reading import SmiProblem, SmiReport, SmiText, read_nvidia_smi
from opsk.telemetry.gpu.nvidia_smi.source import NvidiaSmi
from opsk.telemetry.gpu.nvidia_smi.values import Absent, absent, quantity

__all__ = [
    "Absent",
    "ListedGpu",
    "ListedMig",
    "NvidiaSmi",
    "SmiProblem",
    "SmiReport",
    "SmiText",
    "absent",
    "quantity",
    "read_links",
    "read_list",
    "read_nvidia_smi",
]

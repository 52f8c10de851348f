"""Parses the blocks of OLMo and OLMo-core: ``[step=10/1000,epoch=1]`` and lines ``name=value`` below it."""

from __future__ import annotations

import re

from opsk.telemetry.progress.records import ParsedLine, Part, Reader
from opsk.telemetry.progress.values import NUMBER, drop_missing, parse_number, parse_positive
from opsk.units import GIB

_HEAD = re.compile(r"\[step=([\d,]+)(?:/([\d,]+))?[,\]]", re.ASCII)
_VALUE = re.compile(
    rf"^\s*((?:train|throughput|optim|system|gpu_memory)/?[^=]{{0,80}})=({NUMBER})", re.ASCII | re.IGNORECASE
)
_MB, _GIB = 1e6, float(GIB)


class OlmoReader(Reader):
    """Blocks of OLMo's and OLMo-core's console output."""

    name = "olmo"
    rank = 20
    hints = ("[step=", "train/", "throughput/", "optim/", "System/", "gpu_memory/")

    def __init__(self) -> None:
        self._started = False

    def read(self, text: str) -> ParsedLine | None:
        """Parse one line."""
        head = _HEAD.search(text)
        if head is not None:
            self._started = True
            step, total = int(parse_number(head[1]) or 0), parse_number(head[2] or "")
            return ParsedLine(part=Part.OPEN, iteration=step, total_iterations=int(total) if total else None)
        match = _VALUE.match(text) if self._started else None
        if match is None:
            return None
        values = _parse_values(match[1].strip().lower(), match[2])
        return ParsedLine(part=Part.MORE, values=values) if values else None


def _parse_values(name: str, value: str) -> dict[str, float]:
    """Convert one of OLMo's metrics to values of a record."""
    rate = parse_positive(value)
    if name in ("throughput/device/tokens_per_second", "throughput/device/tps"):
        return dict(drop_missing(tokens_per_s_per_gpu=rate))
    if name in ("throughput/device/batches_per_second", "throughput/device/bps"):
        return dict(drop_missing(step_s=1 / rate if rate else None))
    if name in ("train/crossentropyloss", "train/ce loss"):
        return dict(drop_missing(loss=parse_number(value)))
    if name in ("optim/total_grad_norm", "optim/total grad norm"):
        return dict(drop_missing(grad_norm=parse_number(value)))
    if name.startswith(("optim/learning_rate_group0", "optim/lr")):
        return dict(drop_missing(lr=parse_number(value)))
    if name == "system/peak gpu memory (mb)":
        return dict(drop_missing(memory_bytes=rate * _MB if rate else None))
    if name.startswith("gpu_memory/") and "peak" in name and "(gib)" in name:
        return dict(drop_missing(memory_bytes=rate * _GIB if rate else None))
    return {}

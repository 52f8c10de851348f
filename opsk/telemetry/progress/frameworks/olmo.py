"""What do the blocks of OLMo and OLMo-core say? ``[step=10/1000,epoch=1]`` and lines ``name=value`` below it."""

from __future__ import annotations

import re

from opsk.telemetry.progress.records import Part, Reader, Seen
from opsk.telemetry.progress.values import NUMBER, known, number, positive
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
        self._begun = False

    def read(self, text: str) -> Seen | None:
        """Return what one line says."""
        head = _HEAD.search(text)
        if head is not None:
            self._begun = True
            step, total = int(number(head[1]) or 0), number(head[2] or "")
            return Seen(part=Part.OPEN, iteration=step, total_iterations=int(total) if total else None)
        found = _VALUE.match(text) if self._begun else None
        if found is None:
            return None
        values = _values(found[1].strip().lower(), found[2])
        return Seen(part=Part.MORE, values=values) if values else None


def _values(name: str, value: str) -> dict[str, float]:
    """Return what one of OLMo's metrics stands for."""
    rate = positive(value)
    if name in ("throughput/device/tokens_per_second", "throughput/device/tps"):
        return dict(known(tokens_per_s_per_gpu=rate))
    if name in ("throughput/device/batches_per_second", "throughput/device/bps"):
        return dict(known(step_s=1 / rate if rate else None))
    if name in ("train/crossentropyloss", "train/ce loss"):
        return dict(known(loss=number(value)))
    if name in ("optim/total_grad_norm", "optim/total grad norm"):
        return dict(known(grad_norm=number(value)))
    if name.startswith(("optim/learning_rate_group0", "optim/lr")):
        return dict(known(lr=number(value)))
    if name == "system/peak gpu memory (mb)":
        return dict(known(memory_bytes=rate * _MB if rate else None))
    if name.startswith("gpu_memory/") and "peak" in name and "(gib)" in name:
        return dict(known(memory_bytes=rate * _GIB if rate else None))
    return {}

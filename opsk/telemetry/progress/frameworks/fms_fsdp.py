"""What do the blocks of fms-fsdp say? ``step: 100`` and lines ``current step time: 1.2`` below it."""

from __future__ import annotations

import re

from opsk.telemetry.progress.records import Part, Reader, Seen
from opsk.telemetry.progress.values import known, number, positive

_HEAD = re.compile(r"^\s*step: (\d+)\s*$", re.ASCII)
_LINE = re.compile(
    r"^\s*(loss|LR|gradient norm|allocated memory|current step time|current token per gpu per sec): (\S+)\s*$", re.ASCII
)
_NAMES = {
    "loss": "loss",
    "LR": "lr",
    "gradient norm": "grad_norm",
    "allocated memory": "memory_bytes",
    "current step time": "step_s",
    "current token per gpu per sec": "tokens_per_s_per_gpu",
}


class FmsFsdpReader(Reader):
    """Blocks of fms-fsdp's training loop."""

    name = "fms-fsdp"
    rank = 25
    hints = ("step: ", "loss: ", "LR: ", "norm: ", "memory: ", "step time: ", "per sec: ")

    def __init__(self) -> None:
        self._begun = False

    def read(self, text: str) -> Seen | None:
        """Return what one line says."""
        head = _HEAD.match(text)
        if head is not None:
            self._begun = True
            return Seen(part=Part.OPEN, iteration=int(head[1]))
        found = _LINE.match(text) if self._begun else None
        if found is None:
            return None
        name = _NAMES[found[1]]
        value = number(found[2]) if name in ("loss", "lr", "grad_norm") else positive(found[2])
        return Seen(part=Part.MORE, values=known(**{name: value}))

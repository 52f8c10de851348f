"""Parses the blocks of fms-fsdp: ``step: 100`` and lines ``current step time: 1.2`` below it."""

from __future__ import annotations

import re

from opsk.telemetry.progress.records import ParsedLine, Part, Reader
from opsk.telemetry.progress.values import drop_missing, parse_number, parse_positive

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
        self._started = False

    def read(self, text: str) -> ParsedLine | None:
        """Parse one line."""
        head = _HEAD.match(text)
        if head is not None:
            self._started = True
            return ParsedLine(part=Part.OPEN, iteration=int(head[1]))
        match = _LINE.match(text) if self._started else None
        if match is None:
            return None
        name = _NAMES[match[1]]
        value = parse_number(match[2]) if name in ("loss", "lr", "grad_norm") else parse_positive(match[2])
        return ParsedLine(part=Part.MORE, values=drop_missing(**{name: value}))

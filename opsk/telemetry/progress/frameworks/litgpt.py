"""Parses LitGPT's lines: ``Epoch 1 | iter 64 step 1 | loss train: 10.1, val: n/a | iter time: 1234.56 ms (step)``.

An iteration is a micro-batch; ``step`` counts those of the optimizer: it takes as many iterations as lie between.
"""

from __future__ import annotations

import re

from opsk.telemetry.progress.records import ParsedLine, Part, Reader
from opsk.telemetry.progress.values import drop_missing, parse_number, parse_positive

_LINE = re.compile(
    r"\biter\s+(\d+)[:,]?\s*\|?\s*step\s+(\d+)\s*[|:,]\s*loss(?: train)?:?\s*([^,\s|]+)"
    r"[^:]{0,80}(?:val:[^:]{0,80})?iter time:\s*([\d.]+)\s*ms",
    re.ASCII,
)


class LitgptReader(Reader):
    """Lines of LitGPT and lit-gpt."""

    name = "litgpt"
    rank = 20
    hints = ("iter time: ",)

    def __init__(self) -> None:
        self._last: tuple[int, int] | None = None
        self._per_step: float | None = None

    def read(self, text: str) -> ParsedLine | None:
        """Parse one line."""
        match = _LINE.search(text)
        if match is None:
            return None
        iteration, step = int(match[1]), int(match[2])
        last, self._last = self._last, (iteration, step)
        if last is not None and step > last[1] and iteration > last[0]:
            self._per_step = (iteration - last[0]) / (step - last[1])
        elapsed_ms = parse_positive(match[4])
        step_s = elapsed_ms / 1e3 * self._per_step if elapsed_ms and self._per_step else None
        return ParsedLine(
            part=Part.OPEN, iteration=step, values=drop_missing(loss=parse_number(match[3]), step_s=step_s)
        )

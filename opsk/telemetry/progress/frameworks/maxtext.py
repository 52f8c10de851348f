"""Parses MaxText's lines: ``completed step: 10, seconds: 1.2, TFLOP/s/device: 412.3, Tokens/s/device: …``."""

from __future__ import annotations

import re

from opsk.telemetry.progress.records import ParsedLine, Part, Reader
from opsk.telemetry.progress.values import drop_missing, parse_number, parse_positive

_STEP = re.compile(r"completed step: (\d+), seconds: ([\d.]+)", re.ASCII)
_VALUE = re.compile(r"(TFLOP/s/device|Tokens/s/device|loss): ([^,\s]+)", re.ASCII)


class MaxtextReader(Reader):
    """Lines of MaxText."""

    name = "maxtext"
    rank = 20
    hints = ("completed step: ",)

    def read(self, text: str) -> ParsedLine | None:
        """Parse one line."""
        step = _STEP.search(text)
        if step is None:
            return None
        fields = {found[1]: found[2] for found in _VALUE.finditer(text, step.end())}
        values = drop_missing(
            step_s=parse_positive(step[2]),
            loss=parse_number(fields.get("loss", "")),
            tflops_per_gpu=parse_positive(fields.get("TFLOP/s/device", "")),
            tokens_per_s_per_gpu=parse_positive(fields.get("Tokens/s/device", "")),
        )
        return ParsedLine(part=Part.STEP, iteration=int(step[1]), values=values)

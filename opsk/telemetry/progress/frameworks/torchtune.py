"""Parses the lines of torchtune's loggers: ``Step 33 | loss:1.54 lr:9.9e-05 tokens_per_second_per_gpu:101 …``."""

from __future__ import annotations

import re

from opsk.telemetry.progress.records import ParsedLine, Part, Reader
from opsk.telemetry.progress.values import NUMBER, drop_missing, parse_number, parse_positive
from opsk.units import GIB

_STEP = re.compile(r"^\s*Step (\d+)\s*\|", re.ASCII)
_VALUE = re.compile(rf"(\w+):({NUMBER})(?=\s|$)", re.ASCII)


class TorchtuneReader(Reader):
    """Lines of torchtune's loggers."""

    name = "torchtune"
    rank = 20
    hints = ("Step ",)

    def read(self, text: str) -> ParsedLine | None:
        """Parse one line."""
        step = _STEP.match(text)
        if step is None:
            return None
        fields = {found[1]: found[2] for found in _VALUE.finditer(text, step.end())}
        if "loss" not in fields:
            return None
        peak = next((value for name, value in fields.items() if name.startswith("peak_memory")), "")
        peak_gib = parse_positive(peak)
        values = drop_missing(
            loss=parse_number(fields["loss"]),
            lr=parse_number(fields.get("lr", "")),
            grad_norm=parse_number(fields.get("grad_norm", "")),
            step_s=parse_positive(fields.get("time_per_step_s", "")),
            tokens_per_s_per_gpu=parse_positive(fields.get("tokens_per_second_per_gpu", "")),
            memory_bytes=peak_gib * GIB if peak_gib else None,
        )
        return ParsedLine(part=Part.STEP, iteration=int(step[1]), values=values)

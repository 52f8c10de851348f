"""Parses the lines of AWS's FSDP examples: ``Batch 3 Loss: 15.01, Speed: 10.61 samples/sec, lr: 0.0001``."""

from __future__ import annotations

import re

from opsk.telemetry.progress.records import ParsedLine, Part, Reader
from opsk.telemetry.progress.values import drop_missing, parse_number, parse_positive

_LINE = re.compile(r"\bBatch (\d+) Loss: ([^,\s]+), Speed: ([\d.]+) samples/sec, lr: ([\d.e+-]+)", re.ASCII)


class PytorchFsdpReader(Reader):
    """Lines of AWS's FSDP examples; samples are those of the whole job."""

    name = "pytorch-fsdp"
    rank = 20
    hints = (" samples/sec",)

    def read(self, text: str) -> ParsedLine | None:
        """Parse one line."""
        match = _LINE.search(text)
        if match is None:
            return None
        values = drop_missing(
            loss=parse_number(match[2]), samples_per_s=parse_positive(match[3]), lr=parse_number(match[4])
        )
        return ParsedLine(part=Part.STEP, iteration=int(match[1]), values=values)

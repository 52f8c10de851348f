"""Parses picotron's lines: ``[rank 0] Step: 1 | Loss: 10.9 | Global batch size: 1.05M | Tokens/s: 12.3K | …``."""

from __future__ import annotations

import re

from opsk.telemetry.progress.records import ParsedLine, Part, Reader
from opsk.telemetry.progress.values import NUMBER, drop_missing, parse_number, parse_positive, parse_size_bytes

_STEP = re.compile(r"\bStep: (\d+)\s*[|,]", re.ASCII)
_VALUE = re.compile(rf"\b([A-Z][\w/ ]{{0,40}}?):\s*({NUMBER})\s*([KMBT]?(?:GB|ms)?)", re.ASCII)


class PicotronReader(Reader):
    """Lines of picotron."""

    name = "picotron"
    rank = 20
    hints = ("Tokens/s/GPU: ",)

    def read(self, text: str) -> ParsedLine | None:
        """Parse one line."""
        step = _STEP.search(text)
        if step is None or "Tokens/s" not in text:
            return None
        fields = {found[1].lower(): found[2] + found[3] for found in _VALUE.finditer(text, step.end())}
        tokens, rate = parse_positive(fields.get("global batch size", "")), parse_positive(fields.get("tokens/s", ""))
        values = drop_missing(
            loss=parse_number(fields.get("loss", "")),
            batch_tokens=tokens,
            tokens_per_s=rate,
            tokens_per_s_per_gpu=parse_positive(fields.get("tokens/s/gpu", "")),
            memory_bytes=parse_size_bytes(fields.get("memory usage", ""), binary=False),
        )
        return ParsedLine(part=Part.STEP, iteration=int(step[1]), values=values)

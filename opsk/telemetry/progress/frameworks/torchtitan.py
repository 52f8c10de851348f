"""Parses torchtitan's lines.

``step: 10  loss:  7.12  grad_norm: 1.2  memory: 45.12GiB(56.99%)  tps: 7,512  tflops: 401.23  mfu: 40.57%``: tokens per
second of one device. Step times are not printed; they follow from tokens, or from the lines' times.
"""

from __future__ import annotations

import re

from opsk.telemetry.progress.records import EventKind, ParsedLine, Part, Reader
from opsk.telemetry.progress.values import (
    NUMBER,
    drop_missing,
    parse_number,
    parse_positive,
    parse_size_bytes,
    parse_whole,
)

_STEP = re.compile(r"(validate )?\bstep:\s*([\d,]+)\s", re.ASCII)
_FIELDS = re.compile(rf"\b(loss|grad_norm|memory|tps|tflops|lr|end_to_end\(s\)|time):\s*({NUMBER})(\s*GiB)?", re.ASCII)


class TorchtitanReader(Reader):
    """Step lines of torchtitan."""

    name = "torchtitan"
    rank = 20
    hints = ("tps:",)

    def read(self, text: str) -> ParsedLine | None:
        """Parse one line."""
        step = _STEP.search(text)
        if step is None or "tps:" not in text:
            return None
        fields = {found[1]: found[2] + (found[3] or "") for found in _FIELDS.finditer(text, step.end())}
        iteration = parse_whole(step[2])
        if step[1]:
            values = drop_missing(loss=parse_number(fields.get("loss", "")))
            return ParsedLine(part=Part.EVENT, event=EventKind.VALIDATION, iteration=iteration, values=values)
        values = drop_missing(
            loss=parse_number(fields.get("loss", "")),
            grad_norm=parse_number(fields.get("grad_norm", "")),
            lr=parse_number(fields.get("lr", "")),
            memory_bytes=parse_size_bytes(
                fields.get("memory", "") + ("" if "GiB" in fields.get("memory", "") else "GiB")
            ),
            tokens_per_s_per_gpu=parse_positive(fields.get("tps", "")),
            tflops_per_gpu=parse_positive(fields.get("tflops", "")),
        )
        return ParsedLine(part=Part.STEP, iteration=iteration, values=values)

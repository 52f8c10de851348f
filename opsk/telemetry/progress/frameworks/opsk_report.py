"""Parses the lines of `opsk.telemetry.report`: ``opsk:step 12/1000 at=… step_s=2.5 tokens=1048576 loss=2.1``."""

from __future__ import annotations

import re

from opsk.telemetry.jobs.step_report import MARK
from opsk.telemetry.progress.records import ParsedLine, Part, Reader
from opsk.telemetry.progress.values import drop_missing, parse_number, parse_positive

_LINE = re.compile(rf"{MARK} (\d{{1,15}})(?:/(\d{{1,15}}))? at=", re.ASCII)
_WORD = re.compile(r"(?<=\s)([a-z_]{1,32})=(\S{1,40})", re.ASCII)


class OwnLoopReader(Reader):
    """Lines of a training loop that calls ``report``: they take precedence over all others."""

    name = "opsk-report"
    rank = 1
    hints = (f"{MARK} ",)

    def read(self, text: str) -> ParsedLine | None:
        """Parse one line."""
        line = _LINE.search(text)
        if line is None:
            return None
        fields = {word[1]: word[2] for word in _WORD.finditer(text, line.end())}
        step_s, tokens = parse_positive(fields.get("step_s", "")), parse_positive(fields.get("tokens", ""))
        gpus = parse_positive(fields.get("gpus", ""))
        rate = tokens / step_s if tokens and step_s else None
        values = drop_missing(
            step_s=step_s,
            batch=parse_positive(fields.get("samples", "")),
            batch_tokens=tokens,
            tokens_per_s=rate,
            tokens_per_s_per_gpu=rate / gpus if rate and gpus else None,
            tflops_per_gpu=parse_positive(fields.get("tflops_per_gpu", "")),
            memory_bytes=parse_positive(fields.get("memory_bytes", "")),
            loss=parse_number(fields.get("loss", "")),
            grad_norm=parse_number(fields.get("grad_norm", "")),
            lr=parse_number(fields.get("lr", "")),
        )
        total = int(line[2]) if line[2] else None
        return ParsedLine(part=Part.STEP, iteration=int(line[1]), total_iterations=total, values=values)

"""Parses nanotron's lines: numbers with the suffixes K, M and B; the batch is in tokens."""

from __future__ import annotations

import re

from opsk.telemetry.progress.records import ParsedLine, Part, Reader
from opsk.telemetry.progress.values import drop_missing, parse_number, parse_positive, split_piped_fields

_STEP = re.compile(r"\biteration: (\d+) / (\d+)", re.ASCII)


class NanotronReader(Reader):
    """Iteration lines of nanotron."""

    name = "nanotron"
    rank = 20
    hints = ("tokens_per_sec_per_gpu: ",)

    def read(self, text: str) -> ParsedLine | None:
        """Parse one line."""
        match = _STEP.search(text)
        if match is None:
            return None
        fields = dict(split_piped_fields(text[match.start() :]))
        elapsed_ms = parse_positive(
            fields.get("time_per_iteration_ms", fields.get("elapsed_time_per_iteration_ms", ""))
        )
        if elapsed_ms is None:
            return None
        values = drop_missing(
            step_s=elapsed_ms / 1e3,
            tokens_per_s=parse_positive(fields.get("tokens_per_sec", "")),
            tokens_per_s_per_gpu=parse_positive(fields.get("tokens_per_sec_per_gpu", "")),
            tflops_per_gpu=parse_positive(fields.get("model_tflops_per_gpu", "")),
            batch_tokens=parse_positive(fields.get("global_batch_size", "")),
            loss=parse_number(fields.get("lm_loss", "")),
            grad_norm=parse_number(fields.get("grad_norm", "")),
            lr=parse_number(fields.get("lr", "")),
        )
        return ParsedLine(part=Part.STEP, iteration=int(match[1]), total_iterations=int(match[2]), values=values)

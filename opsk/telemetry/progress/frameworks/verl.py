"""Parses verl's lines: ``step:1 - actor/pg_loss:1 - timing_s/step:93 - perf/throughput:1234.5`` (of one GPU)."""

from __future__ import annotations

import re

from opsk.telemetry.progress.records import ParsedLine, Part, Reader
from opsk.telemetry.progress.values import drop_missing, parse_number, parse_positive, split_piped_fields
from opsk.units import GIB

_STEP = re.compile(r"\bstep:(\d+) - ", re.ASCII)


class VerlReader(Reader):
    """Lines of verl's console logger; its steps are those of reinforcement learning, generation included."""

    name = "verl"
    rank = 20
    hints = ("timing_s/step:",)

    def read(self, text: str) -> ParsedLine | None:
        """Parse one line."""
        step = _STEP.search(text)
        if step is None:
            return None
        fields = dict(split_piped_fields(text[step.start() :].replace(" - ", "|")))
        peak_gib = parse_positive(fields.get("perf/max_memory_allocated_gb", ""))
        values = drop_missing(
            step_s=parse_positive(fields.get("timing_s/step", "")),
            tokens_per_s_per_gpu=parse_positive(fields.get("perf/throughput", "")),
            loss=parse_number(fields.get("actor/pg_loss", "")),
            grad_norm=parse_number(fields.get("actor/grad_norm", "")),
            lr=parse_number(fields.get("actor/lr", "")),
            memory_bytes=peak_gib * GIB if peak_gib else None,
        )
        return ParsedLine(part=Part.STEP, iteration=int(step[1]), values=values)

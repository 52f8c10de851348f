"""Parses LLaMA-Factory's own log: JSON lines with steps and the time since the start."""

from __future__ import annotations

import re

from opsk.telemetry.progress.records import EventKind, ParsedLine, Part, Reader
from opsk.telemetry.progress.values import NUMBER, drop_missing, parse_duration_s, parse_number, parse_positive

_VALUE = re.compile(rf'"(\w+)":\s*("[^"]{{0,40}}"|{NUMBER})', re.ASCII)


class LlamaFactoryReader(Reader):
    """Lines of LLaMA-Factory's ``trainer_log.jsonl``."""

    name = "llama-factory"
    rank = 20
    hints = ('"current_steps"',)

    def __init__(self) -> None:
        self._last: tuple[int, float] | None = None

    def read(self, text: str) -> ParsedLine | None:
        """Parse one line; a step takes the time since the line before."""
        fields = {found[1]: found[2].strip('"') for found in _VALUE.finditer(text)}
        step = fields.get("current_steps", "")
        if not step.isdecimal():
            return None
        if "loss" not in fields:
            values = drop_missing(loss=parse_number(fields.get("eval_loss", "")))
            return ParsedLine(part=Part.EVENT, event=EventKind.VALIDATION, iteration=int(step), values=values)
        elapsed_s = parse_duration_s(fields.get("elapsed_time", ""))
        step_s = None
        if self._last is not None and elapsed_s is not None and int(step) > self._last[0]:
            step_s = (elapsed_s - self._last[1]) / (int(step) - self._last[0])
        if elapsed_s is not None:
            self._last = (int(step), elapsed_s)
        values = drop_missing(
            loss=parse_number(fields["loss"]),
            lr=parse_number(fields.get("lr", fields.get("learning_rate", ""))),
            tokens_per_s=parse_positive(fields.get("throughput", "")),
            step_s=step_s if step_s and step_s > 0 else None,
        )
        total = fields.get("total_steps", "")
        return ParsedLine(
            part=Part.STEP,
            iteration=int(step),
            total_iterations=int(total) if total.isdecimal() else None,
            values=values,
        )

"""Parses the lines of NeMo 2 and the progress bars of NeMo 1.

``Training epoch 0, iteration 120/149 | lr: … | global_step: 120 | train_step_timing in s: 0.03 | …`` in any order of
fields; NeMo 1 prints a Lightning bar whose postfix has ``global_step``, in some versions rounded to three digits beyond
999.
"""

from __future__ import annotations

import re

from opsk.telemetry.progress.lines import drop_missing, parse_number, parse_positive, parse_whole, split_piped_fields
from opsk.telemetry.progress.records import ParsedLine, Reader, StepPart

_LINE = re.compile(r"Training epoch (\d+), iteration (\d{1,15})/(\d{1,15})", re.ASCII)
_BAR = re.compile(r"Epoch \d+:?\s[^\[]{0,400}?(\d{1,15})/(\d{1,15}) \[", re.ASCII)
_POSTFIX = re.compile(r"\b(global_step|reduced_train_loss|train_step_timing in s|lr)=\s*([^,\]\s]+)", re.ASCII)


class NemoReader(Reader):
    """Lines of NeMo 2 (and of BioNeMo, Nemotron) and bars of NeMo 1."""

    name = "nemo"
    rank = 15
    hints = ("train_step_timing in s", "Training epoch ", "reduced_train_loss=")

    def read(self, text: str) -> ParsedLine | None:
        """Parse one line."""
        match = _LINE.search(text)
        if match is not None:
            return self._line(text, int(match[2]), int(match[3]))
        if "reduced_train_loss=" in text and (bar := _BAR.search(text)) is not None:
            return self._bar(text, int(bar[1]), int(bar[2]))
        return None

    def _line(self, text: str, iteration: int, last: int) -> ParsedLine | None:
        """Read a line of NeMo 2; iterations count from 0."""
        fields = dict(split_piped_fields(text))
        if not {"train_step_timing in s", "reduced_train_loss", "global_step"} & fields.keys():
            return None
        step = parse_whole(fields.get("global_step", ""))
        values = drop_missing(
            step_s=parse_positive(fields.get("train_step_timing in s", "")),
            loss=parse_number(fields.get("reduced_train_loss", "")),
            grad_norm=parse_number(fields.get("grad_norm", "")),
            lr=parse_number(fields.get("lr", "")),
            batch=parse_positive(fields.get("global_batch_size", "")),
            tflops_per_gpu=parse_positive(fields.get("tflops_per_gpu", "")),
            tokens_per_s_per_gpu=parse_positive(fields.get("tokens_per_sec_per_gpu", "")),
            memory_bytes=parse_positive(fields.get("max_memory_allocated", fields.get("peak_memory_usage", ""))),
        )
        return ParsedLine(
            part=StepPart.STEP,
            iteration=iteration if step is None else step,
            total_iterations=last + 1,
            values=values,
        )

    def _bar(self, text: str, position: int, total: int) -> ParsedLine:
        """Read a bar of NeMo 1."""
        fields = {pair[1]: pair[2] for pair in _POSTFIX.finditer(text)}
        rate = re.search(r"([\d.]+)\s?(s/it|it/s)", text, re.ASCII)
        speed = parse_positive(rate[1]) if rate else None
        stated = parse_positive(fields.get("train_step_timing in s", ""))
        step = parse_whole(fields.get("global_step", ""))
        values = drop_missing(
            step_s=stated or (speed if rate and rate[2] == "s/it" else 1 / speed if speed else None),
            loss=parse_number(fields.get("reduced_train_loss", "")),
            lr=parse_number(fields.get("lr", "")),
        )
        exact = step is not None and step < 1000
        return ParsedLine(
            part=StepPart.STEP, iteration=step if exact else position, total_iterations=total, values=values
        )

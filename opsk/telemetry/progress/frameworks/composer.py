"""Parses the blocks of Composer and LLM Foundry: ``[batch=100/4800]:`` and lines ``Train NAME: VALUE`` below it."""

from __future__ import annotations

import re

from opsk.telemetry.progress.records import EventKind, ParsedLine, Part, Reader
from opsk.telemetry.progress.values import NUMBER, drop_missing, parse_number, parse_positive

_HEAD = re.compile(r"\[(Eval )?batch=(\d+)/(\d+)\]", re.ASCII)
_VALUE = re.compile(rf"\bTrain ([\w./-]+):\s*({NUMBER})", re.ASCII)
_GB = 1e9


class ComposerReader(Reader):
    """Blocks of Composer's console logger."""

    name = "composer"
    rank = 20
    hints = ("batch=", "Train ")

    def read(self, text: str) -> ParsedLine | None:
        """Parse one line."""
        head = _HEAD.search(text)
        if head is not None and head[1]:
            return ParsedLine(part=Part.EVENT, event=EventKind.VALIDATION) if head[2] == head[3] else None
        values = _parse_values({found[1].lower(): found[2] for found in _VALUE.finditer(text)})
        if head is not None:
            return ParsedLine(part=Part.OPEN, iteration=int(head[2]), total_iterations=int(head[3]), values=values)
        return ParsedLine(part=Part.MORE, values=values) if values else None


def _parse_values(metrics: dict[str, str]) -> dict[str, float]:
    """Convert Composer's metrics to values of a record."""
    batches = parse_positive(metrics.get("throughput/batches_per_sec", ""))
    flops = parse_positive(metrics.get("throughput/device/flops_per_sec", ""))
    peak = parse_positive(metrics.get("memory/peak_allocated_mem", metrics.get("memory/peak_reserved_mem", "")))
    rate = next((value for name, value in metrics.items() if name.startswith("lr-")), "")
    return dict(
        drop_missing(
            step_s=1 / batches if batches else None,
            tokens_per_s=parse_positive(metrics.get("throughput/tokens_per_sec", "")),
            tokens_per_s_per_gpu=parse_positive(metrics.get("throughput/device/tokens_per_sec", "")),
            samples_per_s=parse_positive(metrics.get("throughput/samples_per_sec", "")),
            tflops_per_gpu=flops / 1e12 if flops else None,
            memory_bytes=peak * _GB if peak else None,
            loss=parse_number(metrics.get("loss/train/total", "")),
            grad_norm=parse_number(metrics.get("l2_norm/grad/global", "")),
            lr=parse_number(rate),
        )
    )

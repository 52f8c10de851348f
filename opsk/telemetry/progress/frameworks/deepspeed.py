"""Parses DeepSpeed's own timer and pipeline lines.

``RunningAvgSamplesPerSec`` is a mean over the run, so the current rate counts; both are of the whole job. Memory is of
the rank that prints it; its GB are GIB bytes.
"""

from __future__ import annotations

import re

from opsk.telemetry.progress.records import ParsedLine, Part, Reader
from opsk.telemetry.progress.values import drop_missing, parse_number, parse_positive, parse_size_bytes, parse_whole

_TIMER = re.compile(
    r"global_step=(\d+), RunningAvgSamplesPerSec=([^,\s]+)(?:, CurrSamplesPerSec=([^,\s]+))?"
    r"(?:, MemAllocated=([^,\s]+))?(?:, MaxMemAllocated=([^,\s]+))?",
    re.ASCII,
)
_PIPELINE = re.compile(r"\bsteps: (\d+) loss: (\S+) iter time \(s\): (\S+) samples/sec: (\S+)", re.ASCII)
_STEP = re.compile(r"\[Rank 0\] step=(\d+), skipped=\d+, lr=\[([^,\]]+)", re.ASCII)


class DeepSpeedReader(Reader):
    """Lines of DeepSpeed's engine: timers, the pipeline engine's steps, learning rates."""

    name = "deepspeed"
    rank = 40
    hints = ("RunningAvgSamplesPerSec=", " iter time (s): ", "] step=")

    def read(self, text: str) -> ParsedLine | None:
        """Parse one line."""
        if (match := _PIPELINE.search(text)) is not None:
            values = drop_missing(
                loss=parse_number(match[2]), step_s=parse_positive(match[3]), samples_per_s=parse_positive(match[4])
            )
            return ParsedLine(part=Part.STEP, iteration=int(match[1]), values=values)
        if (match := _TIMER.search(text)) is not None:
            peak = parse_size_bytes(match[5] or match[4] or "")
            rate = parse_positive(match[3] or match[2])
            values = drop_missing(samples_per_s=rate, memory_bytes=peak)
            return ParsedLine(part=Part.OPEN, iteration=int(match[1]), values=values)
        if (match := _STEP.search(text)) is not None and match[1] != "0":
            return ParsedLine(
                part=Part.OPEN, iteration=parse_whole(match[1]), values=drop_missing(lr=parse_number(match[2]))
            )
        return None

"""Parses the iteration lines of GPT-NeoX: Megatron's fields after ``samples/sec:``, FLOP/s with their unit."""

from __future__ import annotations

from opsk.telemetry.progress.frameworks.megatron import ITERATION, parse_iteration_values
from opsk.telemetry.progress.records import ParsedLine, Part, Reader


class GptNeoxReader(Reader):
    """Iteration lines of GPT-NeoX; its samples per second are those of the whole job."""

    name = "gpt-neox"
    rank = 9
    hints = ("approx flops per GPU",)

    def read(self, text: str) -> ParsedLine | None:
        """Parse one line."""
        match = ITERATION.search(text)
        if match is None or "approx flops per GPU" not in text:
            return None
        values = parse_iteration_values(text)
        return ParsedLine(part=Part.STEP, iteration=int(match[1]), total_iterations=int(match[2]), values=values)

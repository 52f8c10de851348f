"""What do the iteration lines of GPT-NeoX say? Megatron's fields, behind ``samples/sec:``, FLOP/s with their unit."""

from __future__ import annotations

from opsk.telemetry.progress.frameworks.megatron import ITERATION, iteration_values
from opsk.telemetry.progress.records import Part, Reader, Seen


class GptNeoxReader(Reader):
    """Iteration lines of GPT-NeoX; its samples per second are those of the whole job."""

    name = "gpt-neox"
    rank = 9
    hints = ("approx flops per GPU",)

    def read(self, text: str) -> Seen | None:
        """Return what one line says."""
        found = ITERATION.search(text)
        if found is None or "approx flops per GPU" not in text:
            return None
        values = iteration_values(text)
        return Seen(part=Part.STEP, iteration=int(found[1]), total_iterations=int(found[2]), values=values)

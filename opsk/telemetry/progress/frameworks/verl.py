"""What do verl's lines say? ``step:1 - actor/pg_loss:1 - timing_s/step:93 - perf/throughput:1234.5`` (one GPU's)."""

from __future__ import annotations

import re

from opsk.telemetry.progress.records import Part, Reader, Seen
from opsk.telemetry.progress.values import known, number, piped, positive
from opsk.units import GIB

_STEP = re.compile(r"\bstep:(\d+) - ", re.ASCII)


class VerlReader(Reader):
    """Lines of verl's console logger; its steps are those of reinforcement learning, generation included."""

    name = "verl"
    rank = 20
    hints = ("timing_s/step:",)

    def read(self, text: str) -> Seen | None:
        """Return what one line says."""
        step = _STEP.search(text)
        if step is None:
            return None
        said = dict(piped(text[step.start() :].replace(" - ", "|")))
        peak_gib = positive(said.get("perf/max_memory_allocated_gb", ""))
        values = known(
            step_s=positive(said.get("timing_s/step", "")),
            tokens_per_s_per_gpu=positive(said.get("perf/throughput", "")),
            loss=number(said.get("actor/pg_loss", "")),
            grad_norm=number(said.get("actor/grad_norm", "")),
            lr=number(said.get("actor/lr", "")),
            memory_bytes=peak_gib * GIB if peak_gib else None,
        )
        return Seen(part=Part.STEP, iteration=int(step[1]), values=values)

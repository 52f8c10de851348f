"""What do MaxText's lines say? ``completed step: 10, seconds: 1.2, TFLOP/s/device: 412.3, Tokens/s/device: …``."""

from __future__ import annotations

import re

from opsk.telemetry.progress.records import Part, Reader, Seen
from opsk.telemetry.progress.values import known, number, positive

_STEP = re.compile(r"completed step: (\d+), seconds: ([\d.]+)", re.ASCII)
_VALUE = re.compile(r"(TFLOP/s/device|Tokens/s/device|loss): ([^,\s]+)", re.ASCII)


class MaxtextReader(Reader):
    """Lines of MaxText."""

    name = "maxtext"
    rank = 20
    hints = ("completed step: ",)

    def read(self, text: str) -> Seen | None:
        """Return what one line says."""
        step = _STEP.search(text)
        if step is None:
            return None
        said = {found[1]: found[2] for found in _VALUE.finditer(text, step.end())}
        values = known(
            step_s=positive(step[2]),
            loss=number(said.get("loss", "")),
            tflops_per_gpu=positive(said.get("TFLOP/s/device", "")),
            tokens_per_s_per_gpu=positive(said.get("Tokens/s/device", "")),
        )
        return Seen(part=Part.STEP, iteration=int(step[1]), values=values)

"""What do torchtune's loggers print? ``Step 33 | loss:1.54 lr:9.9e-05 tokens_per_second_per_gpu:101 …``."""

from __future__ import annotations

import re

from opsk.telemetry.progress.records import Part, Reader, Seen
from opsk.telemetry.progress.values import NUMBER, known, number, positive
from opsk.units import GIB

_STEP = re.compile(r"^\s*Step (\d+)\s*\|", re.ASCII)
_VALUE = re.compile(rf"(\w+):({NUMBER})(?=\s|$)", re.ASCII)


class TorchtuneReader(Reader):
    """Lines of torchtune's loggers."""

    name = "torchtune"
    rank = 20
    hints = ("Step ",)

    def read(self, text: str) -> Seen | None:
        """Return what one line says."""
        step = _STEP.match(text)
        if step is None:
            return None
        said = {found[1]: found[2] for found in _VALUE.finditer(text, step.end())}
        if "loss" not in said:
            return None
        peak = next((value for name, value in said.items() if name.startswith("peak_memory")), "")
        peak_gib = positive(peak)
        values = known(
            loss=number(said["loss"]),
            lr=number(said.get("lr", "")),
            grad_norm=number(said.get("grad_norm", "")),
            step_s=positive(said.get("time_per_step_s", "")),
            tokens_per_s_per_gpu=positive(said.get("tokens_per_second_per_gpu", "")),
            memory_bytes=peak_gib * GIB if peak_gib else None,
        )
        return Seen(part=Part.STEP, iteration=int(step[1]), values=values)

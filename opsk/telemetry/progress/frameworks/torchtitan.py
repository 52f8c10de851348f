"""What do torchtitan's lines say?

``step: 10  loss:  7.12  grad_norm: 1.2  memory: 45.12GiB(56.99%)  tps: 7,512  tflops: 401.23  mfu: 40.57%``: tokens per
second of one device. Step times are not printed; they follow from tokens, or from the lines' times.
"""

from __future__ import annotations

import re

from opsk.telemetry.progress.records import EventKind, Part, Reader, Seen
from opsk.telemetry.progress.values import NUMBER, known, number, positive, size_bytes, whole

_STEP = re.compile(r"(validate )?\bstep:\s*([\d,]+)\s", re.ASCII)
_FIELDS = re.compile(rf"\b(loss|grad_norm|memory|tps|tflops|lr|end_to_end\(s\)|time):\s*({NUMBER})(\s*GiB)?", re.ASCII)


class TorchtitanReader(Reader):
    """Step lines of torchtitan."""

    name = "torchtitan"
    rank = 20
    hints = ("tps:",)

    def read(self, text: str) -> Seen | None:
        """Return what one line says."""
        step = _STEP.search(text)
        if step is None or "tps:" not in text:
            return None
        said = {found[1]: found[2] + (found[3] or "") for found in _FIELDS.finditer(text, step.end())}
        iteration = whole(step[2])
        if step[1]:
            values = known(loss=number(said.get("loss", "")))
            return Seen(part=Part.EVENT, event=EventKind.VALIDATION, iteration=iteration, values=values)
        values = known(
            loss=number(said.get("loss", "")),
            grad_norm=number(said.get("grad_norm", "")),
            lr=number(said.get("lr", "")),
            memory_bytes=size_bytes(said.get("memory", "") + ("" if "GiB" in said.get("memory", "") else "GiB")),
            tokens_per_s_per_gpu=positive(said.get("tps", "")),
            tflops_per_gpu=positive(said.get("tflops", "")),
        )
        return Seen(part=Part.STEP, iteration=iteration, values=values)

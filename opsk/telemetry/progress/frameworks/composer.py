"""What do Composer's and LLM Foundry's blocks say? ``[batch=100/4800]:`` and lines ``Train NAME: VALUE`` below it."""

from __future__ import annotations

import re

from opsk.telemetry.progress.records import EventKind, Part, Reader, Seen
from opsk.telemetry.progress.values import NUMBER, known, number, positive

_HEAD = re.compile(r"\[(Eval )?batch=(\d+)/(\d+)\]", re.ASCII)
_VALUE = re.compile(rf"\bTrain ([\w./-]+):\s*({NUMBER})", re.ASCII)
_GB = 1e9


class ComposerReader(Reader):
    """Blocks of Composer's console logger."""

    name = "composer"
    rank = 20
    hints = ("batch=", "Train ")

    def read(self, text: str) -> Seen | None:
        """Return what one line says."""
        head = _HEAD.search(text)
        if head is not None and head[1]:
            return Seen(part=Part.EVENT, event=EventKind.VALIDATION) if head[2] == head[3] else None
        values = _values({found[1].lower(): found[2] for found in _VALUE.finditer(text)})
        if head is not None:
            return Seen(part=Part.OPEN, iteration=int(head[2]), total_iterations=int(head[3]), values=values)
        return Seen(part=Part.MORE, values=values) if values else None


def _values(said: dict[str, str]) -> dict[str, float]:
    """Return what the names of Composer's metrics stand for."""
    batches = positive(said.get("throughput/batches_per_sec", ""))
    flops = positive(said.get("throughput/device/flops_per_sec", ""))
    peak = positive(said.get("memory/peak_allocated_mem", said.get("memory/peak_reserved_mem", "")))
    rate = next((value for name, value in said.items() if name.startswith("lr-")), "")
    return dict(
        known(
            step_s=1 / batches if batches else None,
            tokens_per_s=positive(said.get("throughput/tokens_per_sec", "")),
            tokens_per_s_per_gpu=positive(said.get("throughput/device/tokens_per_sec", "")),
            samples_per_s=positive(said.get("throughput/samples_per_sec", "")),
            tflops_per_gpu=flops / 1e12 if flops else None,
            memory_bytes=peak * _GB if peak else None,
            loss=number(said.get("loss/train/total", "")),
            grad_norm=number(said.get("l2_norm/grad/global", "")),
            lr=number(rate),
        )
    )

"""What does LLaMA-Factory's own log say? JSON lines with steps and the time since the start."""

from __future__ import annotations

import re

from opsk.telemetry.progress.records import EventKind, Part, Reader, Seen
from opsk.telemetry.progress.values import NUMBER, duration_s, known, number, positive

_VALUE = re.compile(rf'"(\w+)":\s*("[^"]{{0,40}}"|{NUMBER})', re.ASCII)


class LlamaFactoryReader(Reader):
    """Lines of LLaMA-Factory's ``trainer_log.jsonl``."""

    name = "llama-factory"
    rank = 20
    hints = ('"current_steps"',)

    def __init__(self) -> None:
        self._last: tuple[int, float] | None = None

    def read(self, text: str) -> Seen | None:
        """Return what one line says; a step takes what has passed since the line before."""
        said = {found[1]: found[2].strip('"') for found in _VALUE.finditer(text)}
        step = said.get("current_steps", "")
        if not step.isdecimal():
            return None
        if "loss" not in said:
            values = known(loss=number(said.get("eval_loss", "")))
            return Seen(part=Part.EVENT, event=EventKind.VALIDATION, iteration=int(step), values=values)
        elapsed_s = duration_s(said.get("elapsed_time", ""))
        step_s = None
        if self._last is not None and elapsed_s is not None and int(step) > self._last[0]:
            step_s = (elapsed_s - self._last[1]) / (int(step) - self._last[0])
        if elapsed_s is not None:
            self._last = (int(step), elapsed_s)
        values = known(
            loss=number(said["loss"]),
            lr=number(said.get("lr", said.get("learning_rate", ""))),
            tokens_per_s=positive(said.get("throughput", "")),
            step_s=step_s if step_s and step_s > 0 else None,
        )
        total = said.get("total_steps", "")
        return Seen(
            part=Part.STEP,
            iteration=int(step),
            total_iterations=int(total) if total.isdecimal() else None,
            values=values,
        )

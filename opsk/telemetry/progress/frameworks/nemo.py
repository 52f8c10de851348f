"""What do the lines of NeMo 2 say, and the bars of NeMo 1?

``Training epoch 0, iteration 120/149 | lr: … | global_step: 120 | train_step_timing in s: 0.03 | …`` in any order of
fields; NeMo 1 prints a Lightning bar whose postfix has ``global_step``, rounded to three digits beyond 999 in some.
"""

from __future__ import annotations

import re

from opsk.telemetry.progress.records import Part, Reader, Seen
from opsk.telemetry.progress.values import known, number, piped, positive, whole

_LINE = re.compile(r"Training epoch (\d+), iteration (\d+)/(\d+)", re.ASCII)
_BAR = re.compile(r"Epoch \d+:?\s[^\[]{0,400}?(\d+)/(\d+) \[", re.ASCII)
_POSTFIX = re.compile(r"\b(global_step|reduced_train_loss|train_step_timing in s|lr)=\s*([^,\]\s]+)", re.ASCII)


class NemoReader(Reader):
    """Lines of NeMo 2 (and of BioNeMo, Nemotron) and bars of NeMo 1."""

    name = "nemo"
    rank = 15
    hints = ("train_step_timing in s", "Training epoch ", "reduced_train_loss=")

    def read(self, text: str) -> Seen | None:
        """Return what one line says."""
        found = _LINE.search(text)
        if found is not None:
            return self._line(text, int(found[2]), int(found[3]))
        if "reduced_train_loss=" in text and (bar := _BAR.search(text)) is not None:
            return self._bar(text, int(bar[1]), int(bar[2]))
        return None

    def _line(self, text: str, iteration: int, last: int) -> Seen | None:
        """Read a line of NeMo 2; iterations count from 0."""
        said = dict(piped(text))
        if not {"train_step_timing in s", "reduced_train_loss", "global_step"} & said.keys():
            return None
        step = whole(said.get("global_step", ""))
        values = known(
            step_s=positive(said.get("train_step_timing in s", "")),
            loss=number(said.get("reduced_train_loss", "")),
            grad_norm=number(said.get("grad_norm", "")),
            lr=number(said.get("lr", "")),
            batch=positive(said.get("global_batch_size", "")),
            tflops_per_gpu=positive(said.get("tflops_per_gpu", "")),
            tokens_per_s_per_gpu=positive(said.get("tokens_per_sec_per_gpu", "")),
            memory_bytes=positive(said.get("max_memory_allocated", said.get("peak_memory_usage", ""))),
        )
        return Seen(
            part=Part.STEP,
            iteration=iteration if step is None else step,
            total_iterations=last + 1,
            values=values,
        )

    def _bar(self, text: str, place: int, total: int) -> Seen:
        """Read a bar of NeMo 1."""
        said = {found[1]: found[2] for found in _POSTFIX.finditer(text)}
        rate = re.search(r"([\d.]+)\s?(s/it|it/s)", text, re.ASCII)
        speed = positive(rate[1]) if rate else None
        stated = positive(said.get("train_step_timing in s", ""))
        step = whole(said.get("global_step", ""))
        values = known(
            step_s=stated or (speed if rate and rate[2] == "s/it" else 1 / speed if speed else None),
            loss=number(said.get("reduced_train_loss", "")),
            lr=number(said.get("lr", "")),
        )
        exact = step is not None and step < 1000
        return Seen(part=Part.STEP, iteration=step if exact else place, total_iterations=total, values=values)

"""What do nanotron's lines say? Numbers with K, M and B behind them; the batch is in tokens."""

from __future__ import annotations

import re

from opsk.telemetry.progress.records import Part, Reader, Seen
from opsk.telemetry.progress.values import known, number, piped, positive

_STEP = re.compile(r"\biteration: (\d+) / (\d+)", re.ASCII)


class NanotronReader(Reader):
    """Iteration lines of nanotron."""

    name = "nanotron"
    rank = 20
    hints = ("tokens_per_sec_per_gpu: ",)

    def read(self, text: str) -> Seen | None:
        """Return what one line says."""
        found = _STEP.search(text)
        if found is None:
            return None
        said = dict(piped(text[found.start() :]))
        elapsed_ms = positive(said.get("time_per_iteration_ms", said.get("elapsed_time_per_iteration_ms", "")))
        if elapsed_ms is None:
            return None
        values = known(
            step_s=elapsed_ms / 1e3,
            tokens_per_s=positive(said.get("tokens_per_sec", "")),
            tokens_per_s_per_gpu=positive(said.get("tokens_per_sec_per_gpu", "")),
            tflops_per_gpu=positive(said.get("model_tflops_per_gpu", "")),
            batch_tokens=positive(said.get("global_batch_size", "")),
            loss=number(said.get("lm_loss", "")),
            grad_norm=number(said.get("grad_norm", "")),
            lr=number(said.get("lr", "")),
        )
        return Seen(part=Part.STEP, iteration=int(found[1]), total_iterations=int(found[2]), values=values)

"""What do the lines of `opsk.telemetry.report` say? ``opsk:step 12/1000 at=… step_s=2.5 tokens=1048576 loss=2.1``."""

from __future__ import annotations

import re

from opsk.telemetry.jobs.own_loop import MARK
from opsk.telemetry.progress.records import Part, Reader, Seen
from opsk.telemetry.progress.values import known, number, positive

_LINE = re.compile(rf"{MARK} (\d{{1,15}})(?:/(\d{{1,15}}))? at=", re.ASCII)
_WORD = re.compile(r"(?<=\s)([a-z_]{1,32})=(\S{1,40})", re.ASCII)


class OwnLoopReader(Reader):
    """Lines of a training loop that calls ``report``: believed before all others, for they were meant for this."""

    name = "opsk-report"
    rank = 1
    hints = (f"{MARK} ",)

    def read(self, text: str) -> Seen | None:
        """Return what one line says."""
        line = _LINE.search(text)
        if line is None:
            return None
        said = {word[1]: word[2] for word in _WORD.finditer(text, line.end())}
        step_s, tokens = positive(said.get("step_s", "")), positive(said.get("tokens", ""))
        gpus = positive(said.get("gpus", ""))
        rate = tokens / step_s if tokens and step_s else None
        values = known(
            step_s=step_s,
            batch=positive(said.get("samples", "")),
            batch_tokens=tokens,
            tokens_per_s=rate,
            tokens_per_s_per_gpu=rate / gpus if rate and gpus else None,
            tflops_per_gpu=positive(said.get("tflops_per_gpu", "")),
            memory_bytes=positive(said.get("memory_bytes", "")),
            loss=number(said.get("loss", "")),
            grad_norm=number(said.get("grad_norm", "")),
            lr=number(said.get("lr", "")),
        )
        total = int(line[2]) if line[2] else None
        return Seen(part=Part.STEP, iteration=int(line[1]), total_iterations=total, values=values)

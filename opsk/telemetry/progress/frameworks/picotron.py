"""What do picotron's lines say? ``[rank 0] Step: 1 | Loss: 10.9 | Global batch size: 1.05M | Tokens/s: 12.3K | …``."""

from __future__ import annotations

import re

from opsk.telemetry.progress.records import Part, Reader, Seen
from opsk.telemetry.progress.values import NUMBER, known, number, positive, size_bytes

_STEP = re.compile(r"\bStep: (\d+)\s*[|,]", re.ASCII)
_VALUE = re.compile(rf"\b([A-Z][\w/ ]{{0,40}}?):\s*({NUMBER})\s*([KMBT]?(?:GB|ms)?)", re.ASCII)


class PicotronReader(Reader):
    """Lines of picotron."""

    name = "picotron"
    rank = 20
    hints = ("Tokens/s/GPU: ",)

    def read(self, text: str) -> Seen | None:
        """Return what one line says."""
        step = _STEP.search(text)
        if step is None or "Tokens/s" not in text:
            return None
        said = {found[1].lower(): found[2] + found[3] for found in _VALUE.finditer(text, step.end())}
        tokens, rate = positive(said.get("global batch size", "")), positive(said.get("tokens/s", ""))
        values = known(
            loss=number(said.get("loss", "")),
            batch_tokens=tokens,
            tokens_per_s=rate,
            tokens_per_s_per_gpu=positive(said.get("tokens/s/gpu", "")),
            memory_bytes=size_bytes(said.get("memory usage", ""), binary=False),
        )
        return Seen(part=Part.STEP, iteration=int(step[1]), values=values)

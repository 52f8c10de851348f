"""What do the lines of AWS's FSDP examples say? ``Batch 3 Loss: 15.01, Speed: 10.61 samples/sec, lr: 0.0001``."""

from __future__ import annotations

import re

from opsk.telemetry.progress.records import Part, Reader, Seen
from opsk.telemetry.progress.values import known, number, positive

_LINE = re.compile(r"\bBatch (\d+) Loss: ([^,\s]+), Speed: ([\d.]+) samples/sec, lr: ([\d.e+-]+)", re.ASCII)


class PytorchFsdpReader(Reader):
    """Lines of AWS's FSDP examples; samples are those of the whole job."""

    name = "pytorch-fsdp"
    rank = 20
    hints = (" samples/sec",)

    def read(self, text: str) -> Seen | None:
        """Return what one line says."""
        found = _LINE.search(text)
        if found is None:
            return None
        values = known(loss=number(found[2]), samples_per_s=positive(found[3]), lr=number(found[4]))
        return Seen(part=Part.STEP, iteration=int(found[1]), values=values)

"""What do DeepSpeed's own timer and pipeline lines say?

``RunningAvgSamplesPerSec`` is a mean over the run, so the current rate counts; both are of the whole job. Memory is of
the rank that prints, in what it calls GB and is GIB bytes.
"""

from __future__ import annotations

import re

from opsk.telemetry.progress.records import Part, Reader, Seen
from opsk.telemetry.progress.values import known, number, positive, size_bytes, whole

_TIMER = re.compile(
    r"global_step=(\d+), RunningAvgSamplesPerSec=([^,\s]+)(?:, CurrSamplesPerSec=([^,\s]+))?"
    r"(?:, MemAllocated=([^,\s]+))?(?:, MaxMemAllocated=([^,\s]+))?",
    re.ASCII,
)
_PIPELINE = re.compile(r"\bsteps: (\d+) loss: (\S+) iter time \(s\): (\S+) samples/sec: (\S+)", re.ASCII)
_STEP = re.compile(r"\[Rank 0\] step=(\d+), skipped=\d+, lr=\[([^,\]]+)", re.ASCII)


class DeepSpeedReader(Reader):
    """Lines of DeepSpeed's engine: timers, the pipeline engine's steps, learning rates."""

    name = "deepspeed"
    rank = 40
    hints = ("RunningAvgSamplesPerSec=", " iter time (s): ", "] step=")

    def read(self, text: str) -> Seen | None:
        """Return what one line says."""
        if (found := _PIPELINE.search(text)) is not None:
            values = known(loss=number(found[2]), step_s=positive(found[3]), samples_per_s=positive(found[4]))
            return Seen(part=Part.STEP, iteration=int(found[1]), values=values)
        if (found := _TIMER.search(text)) is not None:
            peak = size_bytes(found[5] or found[4] or "")
            rate = positive(found[3] or found[2])
            values = known(samples_per_s=rate, memory_bytes=peak)
            return Seen(part=Part.OPEN, iteration=int(found[1]), values=values)
        if (found := _STEP.search(text)) is not None and found[1] != "0":
            return Seen(part=Part.OPEN, iteration=whole(found[1]), values=known(lr=number(found[2])))
        return None

"""Which spread holds for a prediction some of whose inputs nobody stated?"""

from __future__ import annotations

from dataclasses import replace

from opsk.costmodel.efficiency import Spread
from opsk.costmodel.spread import widened_log_sigma


def widened(spread: Spread, *, time_inputs: int, memory_inputs: int) -> Spread:
    """Return the spread with ``time_inputs`` assumed inputs that the time depends on, ``memory_inputs`` the memory."""
    time = widened_log_sigma(spread.time_log_sigma, spread.time_assumed_log_sigma, time_inputs)
    memory = widened_log_sigma(spread.memory_log_sigma, spread.memory_assumed_log_sigma, memory_inputs)
    return replace(spread, time_log_sigma=float(time), memory_log_sigma=float(memory))

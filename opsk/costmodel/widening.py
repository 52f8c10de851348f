"""Which spread holds for a prediction some of whose inputs nobody stated?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from opsk.costmodel.efficiency import Efficiency, Spread
from opsk.costmodel.inputs import MEMORY_INPUTS, TIME_INPUTS
from opsk.costmodel.spread import widened_log_sigma
from opsk.workload.plan import Software


@lru_cache(maxsize=256)
def widened(spread: Spread, *, time_inputs: int, memory_inputs: int) -> Spread:
    """Return the spread with ``time_inputs`` assumed inputs that the time depends on, ``memory_inputs`` the memory."""
    time = widened_log_sigma(spread.time_log_sigma, spread.time_assumed_log_sigma, time_inputs)
    memory = widened_log_sigma(spread.memory_log_sigma, spread.memory_assumed_log_sigma, memory_inputs)
    return replace(spread, time_log_sigma=float(time), memory_log_sigma=float(memory))


def assumed_inputs(
    efficiency: Efficiency, assumed: Iterable[str], *, architecture: str, software: Software
) -> tuple[int, int]:
    """Return how many inputs of the time, and of the memory, were assumed.

    A family of software that was never measured on a chip generation counts as one more assumed input of the time: its
    efficiencies are put together from what it reaches elsewhere and what others reach there.
    """
    fields = set(assumed)
    is_new = not efficiency.knows(architecture, software)
    return len(fields & TIME_INPUTS) + is_new, len(fields & MEMORY_INPUTS)


def with_assumed(
    efficiency: Efficiency, assumed: Iterable[str], *, architecture: str, software: Software
) -> Efficiency:
    """Return the efficiencies with the spread that holds where the named fields (``plan.recompute``) were assumed."""
    time_inputs, memory_inputs = assumed_inputs(efficiency, assumed, architecture=architecture, software=software)
    return replace(efficiency, spread=widened(efficiency.spread, time_inputs=time_inputs, memory_inputs=memory_inputs))

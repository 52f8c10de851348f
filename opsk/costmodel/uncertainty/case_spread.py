"""Computes the spread of a prediction from its assumed inputs, the cases that were measured, and the site's offset."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from opsk.costmodel.efficiency.cases import (
    MEASURED,
    Case,
    Offsets,
    SoftwareOffset,
    find_cell,
    find_missing_aspects,
    find_offset,
)
from opsk.costmodel.efficiency.efficiency import Efficiency, Spread
from opsk.costmodel.uncertainty.chance import widen_log_sigma
from opsk.costmodel.uncertainty.inputs import MEMORY_INPUTS, TIME_INPUTS

MEASURED_MEMORY_LOG_SIGMA, MEASURED_TIME_LOG_SIGMA = 0.2, 0.7
"""What is added for models that were measured layer by layer without a GPU: workspaces of convolutions and copies of
layouts are left out of the memory, and the time is that of a transformer with as much work."""
_MIN_SHARE = 0.7
"""Least share of the spread that remains where the site's offset is known: the differences between runs."""


@lru_cache(maxsize=4096)
def widen_spread(
    spread: Spread,
    *,
    time_inputs: int,
    memory_inputs: int,
    time_lacks: frozenset[str] = frozenset(),
    memory_lacks: frozenset[str] = frozenset(),
) -> Spread:
    """Return the spread of a case with assumed inputs and without similar runs.

    Parameters
    ----------
    spread
        Spread of a case similar to measured runs, with every input stated.
    time_inputs, memory_inputs
        Assumed inputs that the time and the memory depend on.
    time_lacks, memory_lacks
        `opsk.costmodel.efficiency.cases.ASPECTS` of which no run was measured.
    """
    time = widen_log_sigma(spread.time_log_sigma, spread.time_assumed_log_sigma, time_inputs)
    memory = widen_log_sigma(spread.memory_log_sigma, spread.memory_assumed_log_sigma, memory_inputs)
    new_time = (getattr(spread, f"time_new_{name}_log_sigma") for name in time_lacks)
    new_memory = (getattr(spread, f"memory_new_{name}_log_sigma") for name in memory_lacks)
    return replace(
        spread,
        time_log_sigma=_root_of_sum(float(time), new_time),
        memory_log_sigma=_root_of_sum(float(memory), new_memory),
    )


def _root_of_sum(first: float, others: Iterable[float]) -> float:
    """Return the root of the sum of squares."""
    added = sum(other**2 for other in others)
    return (first**2 + added) ** 0.5 if added else first


@lru_cache(maxsize=256)
def narrow_log_sigma(log_sigma: float, offset_log_sigma: float, known_log_sigma: float) -> float:
    """Return the spread where a site's offset is known better than that of the sources it was estimated from."""
    gained = max(offset_log_sigma**2 - known_log_sigma**2, 0.0)
    return max(log_sigma**2 - gained, (_MIN_SHARE * log_sigma) ** 2) ** 0.5 if gained else log_sigma


def find_plan_log_sigma(spread: Spread) -> float:
    """Return the spread of the ratio of two plans' times on one machine: what a site's runs have in common cancels."""
    return math.sqrt(max(spread.time_log_sigma**2 - spread.time_offset_log_sigma**2, 0.0))


def assumed_inputs(assumed: Iterable[str]) -> tuple[int, int]:
    """Return how many inputs of the time, and of the memory, were assumed."""
    fields = set(assumed)
    return len(fields & TIME_INPUTS), len(fields & MEMORY_INPUTS)


def _narrow(spread: Spread, known: SoftwareOffset) -> Spread:
    """Return the spread where a site's offset is known, or where the site's own jobs show how far the next one is.

    The latter holds for assumed inputs as well: the site's jobs were read from scripts of the same kind. What measured
    nodes show without jobs does not.
    """
    time, memory = known.time_run_log_sigma, known.memory_run_log_sigma
    return replace(
        spread,
        time_log_sigma=time
        or narrow_log_sigma(spread.time_log_sigma, spread.time_offset_log_sigma, known.time_log_sigma),
        time_assumed_log_sigma=(known.time_jobs and time) or spread.time_assumed_log_sigma,
        memory_log_sigma=memory
        or narrow_log_sigma(spread.memory_log_sigma, spread.memory_offset_log_sigma, known.memory_log_sigma),
        memory_assumed_log_sigma=memory or spread.memory_assumed_log_sigma,
    )


def _choose_offsets(offsets: Offsets, case: Case) -> Offsets:
    """Return the offsets with that of the case's cell in place of its family's, cached by identity."""
    cell = find_cell(offsets, case.cells)
    if not cell:
        return offsets
    key = (id(offsets), cell)
    cached = _CHOSEN.get(key)
    if cached is None:
        if len(_CHOSEN) >= MAX_CHOSEN:
            _CHOSEN.clear()
        cached = _CHOSEN[key] = ({**offsets, case.software: offsets[cell]}, offsets)
    return cached[0]


MAX_CHOSEN = 256
_CHOSEN: dict[tuple[int, str], tuple[Offsets, Offsets]] = {}


def apply_case_spread(efficiency: Efficiency, assumed: Iterable[str], case: Case) -> Efficiency:
    """Return the efficiencies with the spread of a case, and with the offset of its cell where a site has learnt one.

    Parameters
    ----------
    efficiency
        As measured.
    assumed
        Names of fields (``plan.recompute``) that were assumed.
    case
        What is predicted.
    """
    time_inputs, memory_inputs = assumed_inputs(assumed)
    spread, offsets = efficiency.spread, efficiency.offset
    known = find_offset(offsets, case.software, case.cells)
    if known is not None:
        spread = _narrow(spread, known)
    offsets = _choose_offsets(offsets, case)
    spread = widen_spread(
        spread,
        time_inputs=time_inputs,
        memory_inputs=memory_inputs,
        time_lacks=find_missing_aspects(case, efficiency.fitted),
        memory_lacks=find_missing_aspects(case, efficiency.fitted_memory),
    )
    if case.kind == MEASURED:
        spread = replace(
            spread,
            time_log_sigma=_root_of_sum(spread.time_log_sigma, (MEASURED_TIME_LOG_SIGMA,)),
            memory_log_sigma=_root_of_sum(spread.memory_log_sigma, (MEASURED_MEMORY_LOG_SIGMA,)),
        )
    return replace(efficiency, spread=spread, offset=offsets)

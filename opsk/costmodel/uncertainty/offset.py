"""How much slower, and fuller, than its physics says is software of a family: everywhere, or at one site?

An offset is ln(measured / predicted), common to all runs of a family. The ones that ship are what open sources have in
common; ``opsk calibrate`` gives a site its own. It multiplies times, or memory, after they were predicted.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from opsk.costmodel.efficiency.efficiency import Spread
from opsk.costmodel.efficiency.software_offset import Offsets, SoftwareOffset, offset_of
from opsk.costmodel.elementwise import exp, looked_up
from opsk.costmodel.table import SOFTWARE, FloatColumn, MemoryTable, PlanTable, Range, StageMemory, TimeTable
from opsk.costmodel.uncertainty.chance import fit_probability

MOST_TABLES = 64


_NONE = SoftwareOffset()


def factor_of(offsets: Offsets, plans: PlanTable, quantity: str) -> FloatColumn | None:
    """Return what multiplies the ``time`` or the ``memory`` of every plan; ``None`` where that is 1 for all."""
    if not offsets:
        return None
    row = 0 if quantity == "time" else 1
    table = _table(offsets)
    if not table[row].any():
        return None
    return exp(looked_up(table, row, plans.software))


def _table(offsets: Offsets) -> FloatColumn:
    """Return the offsets of time and memory of all families, shape (2, families), made once for a mapping."""
    found = _TABLES.get(id(offsets))
    if found is None:
        if len(_TABLES) >= MOST_TABLES:
            _TABLES.clear()
        families = [offset_of(offsets, member.value) or _NONE for member in SOFTWARE]
        table = np.array([[family.time_log for family in families], [family.memory_log for family in families]])
        found = _TABLES[id(offsets)] = (table, offsets)
    return found[0]


_TABLES: dict[int, tuple[FloatColumn, Offsets]] = {}


_PARTS = ("components", "communication", "windows")
"""Times of a `TimeTable` by name."""


def slower(time: TimeTable, factor: FloatColumn) -> TimeTable:
    """Return a time and its parts, what its links carry too, multiplied by a factor."""
    times: dict[str, Any] = {
        part: {name: column * factor for name, column in getattr(time, part).items()} for part in _PARTS
    }
    names = ("tokens_per_s_per_gpu", "tflops_per_gpu", "mfu", "hfu")
    rates: dict[str, Any] = {name: _scaled(getattr(time, name), 1.0 / factor) for name in names}
    return replace(time, step_s=_scaled(time.step_s, factor), **rates, **times)


def fuller(memory: MemoryTable, factor: FloatColumn, spread: Spread) -> MemoryTable:
    """Return a memory and its parts multiplied by a factor, and the chance to fit that follows."""
    needed = _scaled(memory.needed_bytes, factor)
    return replace(
        memory,
        total_bytes=_scaled(memory.total_bytes, factor),
        needed_bytes=needed,
        components={name: column * factor for name, column in memory.components.items()},
        allocated_bytes=memory.allocated_bytes * factor,
        reserved_bytes=memory.reserved_bytes * factor,
        device_bytes=memory.device_bytes * factor,
        by_stage=StageMemory(
            **{item.name: getattr(memory.by_stage, item.name) * factor for item in fields(StageMemory)}
        ),
        fit_probability=fit_probability(needed.expected, memory.capacity_bytes, spread),
    )


def _scaled(value: Range, factor: FloatColumn) -> Range:
    """Return a range multiplied by a factor."""
    return Range(low=value.low * factor, expected=value.expected * factor, high=value.high * factor)

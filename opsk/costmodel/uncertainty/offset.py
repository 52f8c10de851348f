"""Applies the offset of a software family to predicted times and memory: the shipped one, or a site's own.

An offset is ln(measured / predicted), common to all runs of a family. The shipped ones are those that open sources
share; ``opsk calibrate`` computes a site's own. It multiplies times, or memory, after they were predicted.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from opsk.costmodel.efficiency.cases import Offsets, SoftwareOffset, find_offset
from opsk.costmodel.efficiency.efficiency import Spread
from opsk.costmodel.elementwise import exp, lookup
from opsk.costmodel.table import SOFTWARE, FloatColumn, MemoryTable, PlanTable, Range, StageMemory, TimeTable
from opsk.costmodel.uncertainty.chance import fit_probability

MAX_TABLES = 64


_NONE = SoftwareOffset()


def compute_offset_factor(offsets: Offsets, plans: PlanTable, quantity: str) -> FloatColumn | None:
    """Return the factor on the ``time`` or the ``memory`` of every plan; ``None`` where it is 1 for all."""
    if not offsets:
        return None
    row = 0 if quantity == "time" else 1
    table = _get_offset_table(offsets)
    if not table[row].any():
        return None
    return exp(lookup(table, row, plans.software))


def _get_offset_table(offsets: Offsets) -> FloatColumn:
    """Return the offsets of time and memory of all families, shape (2, families), cached by mapping."""
    cached = _TABLES.get(id(offsets))
    if cached is None:
        if len(_TABLES) >= MAX_TABLES:
            _TABLES.clear()
        families = [find_offset(offsets, member.value) or _NONE for member in SOFTWARE]
        table = np.array([[family.time_log for family in families], [family.memory_log for family in families]])
        cached = _TABLES[id(offsets)] = (table, offsets)
    return cached[0]


_TABLES: dict[int, tuple[FloatColumn, Offsets]] = {}


_PARTS = ("components", "communication", "windows")
"""Times of a `TimeTable` by name."""


def scale_time(time: TimeTable, factor: FloatColumn) -> TimeTable:
    """Multiply a time, its parts and its communication by a factor."""
    times: dict[str, Any] = {
        part: {name: column * factor for name, column in getattr(time, part).items()} for part in _PARTS
    }
    names = ("tokens_per_s_per_gpu", "tflops_per_gpu", "mfu", "hfu")
    rates: dict[str, Any] = {name: _scale(getattr(time, name), 1.0 / factor) for name in names}
    return replace(time, step_s=_scale(time.step_s, factor), **rates, **times)


def scale_memory(memory: MemoryTable, factor: FloatColumn, spread: Spread) -> MemoryTable:
    """Multiply a memory and its parts by a factor, and recompute the chance to fit."""
    needed = _scale(memory.needed_bytes, factor)
    return replace(
        memory,
        total_bytes=_scale(memory.total_bytes, factor),
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


def _scale(value: Range, factor: FloatColumn) -> Range:
    """Return a range multiplied by a factor."""
    return Range(low=value.low * factor, expected=value.expected * factor, high=value.high * factor)

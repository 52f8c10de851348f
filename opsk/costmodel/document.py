"""Converts one row of a prediction to the JSON object that ``opsk predict`` and ``opsk check`` share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from opsk.costmodel.table import MOMENTS, EnergyTable, FloatColumn, MemoryTable, PredictionTable, Range, TimeTable
from opsk.costmodel.uncertainty.verdict import compute_verdict


def prediction_document(table: PredictionTable, index: int) -> dict[str, Any]:
    """Return memory, time and energy of row ``index`` as plain values; ranges are ``{low, expected, high}``."""
    return {
        "verdict": compute_verdict(_entry(table.memory.fit_probability, index)).value,
        "memory": _memory(table.memory, index),
        "time": _time(table.time, index),
        "energy": energy_document(table.energy, index),
    }


def _memory(memory: MemoryTable, index: int) -> dict[str, Any]:
    """Return the memory of the fullest GPU; ``stage`` counts from 0."""
    return {
        "capacity_bytes": _entry(memory.capacity_bytes, index),
        "total_bytes": range_document(memory.total_bytes, index),
        "allocated_bytes": _entry(memory.allocated_bytes, index),
        "reserved_bytes": _entry(memory.reserved_bytes, index),
        "device_bytes": _entry(memory.device_bytes, index),
        "needed_bytes": range_document(memory.needed_bytes, index),
        "components": _entries(memory.components, index),
        "stage": int(_entry(memory.stage, index)),
        "moment": MOMENTS[int(_entry(memory.moment, index))],
        "fit_probability": _entry(memory.fit_probability, index),
    }


def _time(time: TimeTable, index: int) -> dict[str, Any]:
    """Return the time of a step; ``communication`` has the total and the exposed time of each axis."""
    return {
        "step_s": range_document(time.step_s, index),
        "tokens_per_s_per_gpu": range_document(time.tokens_per_s_per_gpu, index),
        "tflops_per_gpu": range_document(time.tflops_per_gpu, index),
        "mfu": range_document(time.mfu, index),
        "hfu": range_document(time.hfu, index),
        "model_flop": _entry(time.model_flop, index),
        "hardware_flop": _entry(time.hardware_flop, index),
        "components": _entries(time.components, index),
        "communication": {
            axis: {"total_s": _entry(total, index), "exposed_s": _entry(time.components[axis], index)}
            for axis, total in time.communication.items()
        },
    }


def energy_document(energy: EnergyTable, index: int) -> dict[str, Any]:
    """Return energy and power; ``host_w`` and ``network_w`` are one GPU's shares, ``job_w`` is all of the job."""
    return {
        "step_j": range_document(energy.step_j, index),
        "j_per_token": range_document(energy.j_per_token, index),
        "gpu_w": _entry(energy.gpu_w, index),
        "host_w": _entry(energy.host_w, index),
        "network_w": _entry(energy.network_w, index),
        "job_w": _entry(energy.job_w, index),
        "components": _entries(energy.components, index),
    }


def range_document(values: Range, index: int) -> dict[str, float]:
    """Return one entry of a range."""
    return {
        "low": _entry(values.low, index),
        "expected": _entry(values.expected, index),
        "high": _entry(values.high, index),
    }


def _entries(columns: Mapping[str, FloatColumn], index: int) -> dict[str, float]:
    """Return one entry of each column."""
    return {name: _entry(column, index) for name, column in columns.items()}


def _entry(column: Any, index: int) -> float:
    """Return one entry of a column, or the value that all plans share."""
    return float(column[index] if np.ndim(column) else column)

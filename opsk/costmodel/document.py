"""How does one row of a prediction look as JSON? The shape that ``opsk predict`` and ``opsk check`` share."""

from __future__ import annotations

from typing import Any

from opsk.costmodel.table import PredictionTable, Range
from opsk.costmodel.verdict import verdict_of


def prediction_document(table: PredictionTable, index: int) -> dict[str, Any]:
    """Return memory, time and energy of row ``index`` as plain values; ranges are ``{low, expected, high}``."""
    memory, time, energy = table.memory, table.time, table.energy
    fit_probability = float(memory.fit_probability[index])
    return {
        "verdict": verdict_of(fit_probability).value,
        "memory": {
            "capacity_bytes": float(memory.capacity_bytes),
            "total_bytes": _range(memory.total_bytes, index),
            "components": {name: float(column[index]) for name, column in memory.components.items()},
            "stage": int(memory.stage[index]),
            "fit_probability": fit_probability,
        },
        "time": {
            "step_s": _range(time.step_s, index),
            "tokens_per_s_per_gpu": _range(time.tokens_per_s_per_gpu, index),
            "tflops_per_gpu": _range(time.tflops_per_gpu, index),
            "mfu": _range(time.mfu, index),
            "hfu": _range(time.hfu, index),
            "model_flop": float(time.model_flop[index]),
            "hardware_flop": float(time.hardware_flop[index]),
            "components": {name: float(column[index]) for name, column in time.components.items()},
        },
        "energy": {
            "step_j": _range(energy.step_j, index),
            "j_per_token": _range(energy.j_per_token, index),
            "gpu_w": float(energy.gpu_w[index]),
        },
    }


def _range(values: Range, index: int) -> dict[str, float]:
    """Return one entry of a range."""
    return {
        "low": float(values.low[index]),
        "expected": float(values.expected[index]),
        "high": float(values.high[index]),
    }

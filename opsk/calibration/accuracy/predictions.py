"""Predicts every run of a table.

Runs with the same spread and the same offsets are predicted together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from opsk.calibration.runs.conventions import QUANTITIES, step_work
from opsk.calibration.runs.runs import Run
from opsk.costmodel.efficiency.cases import build_case
from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.efficiency.efficiency import Efficiency, Spread
from opsk.costmodel.predict import predict_rows
from opsk.costmodel.table import PlanTable, PredictionTable
from opsk.costmodel.uncertainty.case_spread import apply_case_spread
from opsk.costmodel.uncertainty.verdict import Verdict, compute_verdict
from opsk.errors import OpskError

MAX_STEP_S = 1e7
"""A step of more than a hundred days is an error in the row, not a prediction."""
MEMORY_DEFINITIONS = ("allocated", "reserved", "device")
_RANK_STAGES = {"first": 0, "last": 2}
"""Index of the stage of the first and the last rank among the candidate stages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A predicted number with its range."""

    low: float
    expected: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the width of the range over the expected value [ratio]."""
        return (self.high - self.low) / (2 * self.expected)

    def holds(self, value: float) -> bool:
        """Return whether a measured value lies in the range."""
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The prediction of one run.

    Parameters
    ----------
    quantities
        Step time and rates, keys of `QUANTITIES`; TFLOP/s, MFU and HFU in the conventions of the run's source.
    memory_bytes
        Memory by the run's ``mem_definition`` and ``mem_rank``, with its range [bytes].
    definitions
        The same rank's memory by every definition: ``allocated``, ``reserved``, ``device`` [bytes].
    fit_probability
        Chance that the fullest GPU holds it, whose device has ``capacity_bytes``.
    """

    quantities: Mapping[str, Interval]
    memory_bytes: Interval
    definitions: Mapping[str, float]
    capacity_bytes: float
    fit_probability: float

    @property
    def verdict(self) -> Verdict:
        """Whether it fits."""
        return compute_verdict(self.fit_probability)


def predict_runs(
    runs: Sequence[Run], efficiency: Efficiency = DEFAULT
) -> tuple[list[Prediction | None], dict[int, str]]:
    """Return the prediction of every run, ``None`` where there is none, and the reasons by index.

    Where one run of a table cannot be predicted, all of that table are predicted one by one.
    """
    predictions: list[Prediction | None] = [None] * len(runs)
    errors: dict[int, str] = {}
    groups: dict[tuple[Spread, int], list[int]] = {}
    chosen_by_group: dict[tuple[Spread, int], Efficiency] = {}
    for index, run in enumerate(runs):
        case = build_case(run.model, run.plan, run.cluster)
        chosen = apply_case_spread(efficiency, (entry.field for entry in run.assumed), case)
        key = (chosen.spread, id(chosen.offset))
        chosen_by_group.setdefault(key, chosen)
        groups.setdefault(key, []).append(index)
    for key, indices in groups.items():
        chosen = chosen_by_group[key]
        try:
            results = _predict([runs[index] for index in indices], chosen)
        except (OpskError, OverflowError, FloatingPointError):
            results = [_predict_single(runs[index], chosen) for index in indices]
        for index, result in zip(indices, results, strict=True):
            if isinstance(result, str):
                errors[index] = result
            else:
                predictions[index] = result
    return predictions, errors


def _predict_single(run: Run, efficiency: Efficiency) -> Prediction | str:
    """Return the prediction of one run, or why there is none."""
    try:
        return _predict([run], efficiency)[0]
    except (OpskError, OverflowError, FloatingPointError) as error:
        return str(error)


def _predict(runs: Sequence[Run], efficiency: Efficiency) -> list[Prediction | str]:
    """Return the predictions of runs in one table; an error message for impossible numbers."""
    plans = PlanTable.of([run.plan for run in runs])
    table = predict_rows([run.model for run in runs], plans, [run.cluster for run in runs], efficiency)
    works = np.array([step_work(runs).of(name) for name in QUANTITIES])
    step = table.time.step_s
    steps = np.broadcast_arrays(step.low, step.expected, step.high, np.zeros(len(runs)))[:3]
    low_s, expected_s, high_s = (column.tolist() for column in steps)
    results: list[Prediction | str] = []
    for index, run in enumerate(runs):
        if not 0 < expected_s[index] < MAX_STEP_S:
            results.append(f"a step of {expected_s[index]:.3g} s comes out of these numbers: check them")
            continue
        seconds = (low_s[index], expected_s[index], high_s[index])
        quantities = {
            name: _build_interval(name, float(work), seconds)
            for name, work in zip(QUANTITIES, works[:, index], strict=True)
        }
        results.append(_add_memory(quantities, table, index, run))
    return results


def _build_interval(name: str, work: float, seconds: tuple[float, float, float]) -> Interval:
    """Return a step time, or the rate of some work; the slowest step gives the lowest rate."""
    low, expected, high = seconds
    if name == "step_s":
        return Interval(low=low, expected=expected, high=high)
    return Interval(low=work / high, expected=work / expected, high=work / low)


def _add_memory(quantities: Mapping[str, Interval], table: PredictionTable, index: int, run: Run) -> Prediction | str:
    """Return a prediction with its memory by the run's definition and rank."""
    memory = table.memory
    total = memory.total_bytes
    low, expected, high = (float(column[index]) for column in (total.low, total.expected, total.high))
    definitions = rank_memory(table, index, run.measured.mem_rank)
    memory_bytes = definitions[run.measured.mem_definition]
    if not (np.isfinite(memory_bytes) and memory_bytes > 0):
        return f"a memory of {memory_bytes:.3g} bytes comes out of these numbers: check them"
    return Prediction(
        quantities=quantities,
        memory_bytes=Interval(
            low=memory_bytes * low / expected, expected=memory_bytes, high=memory_bytes * high / expected
        ),
        definitions=definitions,
        capacity_bytes=float(np.broadcast_to(memory.capacity_bytes, total.expected.shape)[index]),
        fit_probability=float(memory.fit_probability[index]),
    )


def rank_memory(table: PredictionTable, index: int, rank: str) -> dict[str, float]:
    """Return the memory of one rank by every definition [bytes]: ``max`` is the fullest stage's."""
    memory = table.memory
    if rank == "max":
        columns = (memory.allocated_bytes, memory.reserved_bytes, memory.device_bytes)
    else:
        stage = 0 if rank == "first" else -1
        by_stage = memory.by_stage
        columns = (by_stage.allocated[stage], by_stage.reserved[stage], by_stage.device[stage])
    return {name: float(column[index]) for name, column in zip(MEMORY_DEFINITIONS, columns, strict=True)}

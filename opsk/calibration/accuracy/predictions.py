"""What does the cost model say of every run of a table?

Runs whose ranges are as wide are predicted together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from opsk.calibration.runs.conventions import QUANTITIES, step_work
from opsk.calibration.runs.runs import Run
from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.efficiency.efficiency import Efficiency, Spread
from opsk.costmodel.efficiency.nearness import case_of
from opsk.costmodel.predict import predict_rows
from opsk.costmodel.table import PlanTable, PredictionTable
from opsk.costmodel.uncertainty.verdict import Verdict, verdict_of
from opsk.costmodel.uncertainty.widening import with_assumed
from opsk.errors import OpskError

LONGEST_STEP_S = 1e7
"""A step of more than a hundred days is a slip in the row, not a prediction."""
MEMORY_DEFINITIONS = ("allocated", "reserved", "device")
_CANDIDATES = {"first": 0, "last": 2}
"""Place of the stage of the first and the last rank among the candidate stages."""


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
        """Tell whether a measured value lies in the range."""
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What the cost model says of one run.

    Parameters
    ----------
    quantities
        Step time and rates, keys of `QUANTITIES`; TFLOP/s, MFU and HFU in the conventions of the run's source.
    memory_bytes
        Memory as the run's ``mem_definition`` and ``mem_rank`` ask for it, with its range [bytes].
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
        return verdict_of(self.fit_probability)


def predictions_of(
    runs: Sequence[Run], efficiency: Efficiency = DEFAULT
) -> tuple[list[Prediction | None], dict[int, str]]:
    """Return the prediction of every run, ``None`` where there is none, and by place why not.

    Where one run of a table cannot be predicted, all of that table are predicted one by one.
    """
    found: list[Prediction | None] = [None] * len(runs)
    wrong: dict[int, str] = {}
    groups: dict[Spread, list[int]] = {}
    for place, run in enumerate(runs):
        case = case_of(run.model, run.plan, run.cluster)
        chosen = with_assumed(efficiency, (entry.field for entry in run.assumed), case)
        groups.setdefault(chosen.spread, []).append(place)
    for spread, places in groups.items():
        chosen = replace(efficiency, spread=spread)
        try:
            answers = _predict([runs[place] for place in places], chosen)
        except (OpskError, OverflowError, FloatingPointError):
            answers = [_alone(runs[place], chosen) for place in places]
        for place, answer in zip(places, answers, strict=True):
            if isinstance(answer, str):
                wrong[place] = answer
            else:
                found[place] = answer
    return found, wrong


def _alone(run: Run, efficiency: Efficiency) -> Prediction | str:
    """Return the prediction of one run, or why there is none."""
    try:
        return _predict([run], efficiency)[0]
    except (OpskError, OverflowError, FloatingPointError) as error:
        return str(error)


def _predict(runs: Sequence[Run], efficiency: Efficiency) -> list[Prediction | str]:
    """Return the predictions of runs in one table; numbers that cannot be are told instead."""
    plans = PlanTable.of([run.plan for run in runs])
    table = predict_rows([run.model for run in runs], plans, [run.cluster for run in runs], efficiency)
    works = np.array([step_work(runs).of(name) for name in QUANTITIES])
    step = table.time.step_s
    steps = np.broadcast_arrays(step.low, step.expected, step.high, np.zeros(len(runs)))[:3]
    low_s, expected_s, high_s = (column.tolist() for column in steps)
    answers: list[Prediction | str] = []
    for place, run in enumerate(runs):
        if not 0 < expected_s[place] < LONGEST_STEP_S:
            answers.append(f"a step of {expected_s[place]:.3g} s comes out of these numbers: check them")
            continue
        seconds = (low_s[place], expected_s[place], high_s[place])
        quantities = {
            name: _interval(name, float(work), seconds) for name, work in zip(QUANTITIES, works[:, place], strict=True)
        }
        answers.append(_with_memory(quantities, table, place, run))
    return answers


def _interval(name: str, work: float, seconds: tuple[float, float, float]) -> Interval:
    """Return a step time, or the rate of some work; the slowest step gives the lowest rate."""
    low, expected, high = seconds
    if name == "step_s":
        return Interval(low=low, expected=expected, high=high)
    return Interval(low=work / high, expected=work / expected, high=work / low)


def _with_memory(quantities: Mapping[str, Interval], table: PredictionTable, place: int, run: Run) -> Prediction | str:
    """Return a prediction with its memory by the run's definition and rank."""
    memory = table.memory
    total = memory.total_bytes
    low, expected, high = (float(column[place]) for column in (total.low, total.expected, total.high))
    definitions = rank_memory(table, place, run.measured.mem_rank)
    asked = definitions[run.measured.mem_definition]
    if not (np.isfinite(asked) and asked > 0):
        return f"a memory of {asked:.3g} bytes comes out of these numbers: check them"
    return Prediction(
        quantities=quantities,
        memory_bytes=Interval(low=asked * low / expected, expected=asked, high=asked * high / expected),
        definitions=definitions,
        capacity_bytes=float(np.broadcast_to(memory.capacity_bytes, total.expected.shape)[place]),
        fit_probability=float(memory.fit_probability[place]),
    )


def rank_memory(table: PredictionTable, place: int, rank: str) -> dict[str, float]:
    """Return the memory of one rank by every definition [bytes]: ``max`` is the fullest stage's."""
    memory = table.memory
    if rank == "max":
        columns = (memory.allocated_bytes, memory.reserved_bytes, memory.device_bytes)
    else:
        stage = 0 if rank == "first" else -1
        by_stage = memory.by_stage
        columns = (by_stage.allocated[stage], by_stage.reserved[stage], by_stage.device[stage])
    return {name: float(column[place]) for name, column in zip(MEMORY_DEFINITIONS, columns, strict=True)}

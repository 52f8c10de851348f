"""Which document answers ``opsk validate``: every row's prediction, its error where measured, and the summary?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from opsk.calibration.accuracy.predictions import MEMORY_DEFINITIONS, Interval, Prediction, predictions_of
from opsk.calibration.accuracy.reliability import Reliability
from opsk.calibration.accuracy.scoring import Report, Score, ScoredRun, report_of, scored
from opsk.calibration.runs.conventions import QUANTITIES
from opsk.calibration.runs.runs import Runs, UnpredictableRun
from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.uncertainty.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """Every row of a table, predicted and scored, or with the reason why it could not be."""

    rows: tuple[ScoredRun, ...]
    unpredictable: tuple[UnpredictableRun, ...]
    report: Report
    fit: str
    unknown_columns: tuple[str, ...] = ()


def validate_runs(runs: Runs, efficiency: Efficiency = DEFAULT) -> Validation:
    """Return the predictions of a table's rows and how far they are off."""
    found, wrong = predictions_of(runs.runs, efficiency)
    rows = tuple(
        scored(run, prediction) for run, prediction in zip(runs.runs, found, strict=True) if prediction is not None
    )
    impossible = [
        UnpredictableRun(id=runs.runs[place].id, line=runs.runs[place].line, why=why) for place, why in wrong.items()
    ]
    failed = sorted([*runs.unpredictable, *impossible], key=lambda row: row.line)
    return Validation(
        rows=rows,
        unpredictable=tuple(failed),
        report=report_of(rows),
        fit=efficiency.fit,
        unknown_columns=runs.unknown_columns,
    )


def validation_document(validation: Validation) -> dict[str, Any]:
    """Return the JSON document, rows in the order of the table."""
    rows = [(row.run.line, _row(row)) for row in validation.rows]
    rows += [(row.line, _unpredicted(row)) for row in validation.unpredictable]
    return {
        "rows": [row for _, row in sorted(rows, key=lambda entry: entry[0])],
        "summary": _summary(validation),
        "unknown_columns": list(validation.unknown_columns),
        "efficiency": validation.fit,
    }


def _row(row: ScoredRun) -> dict[str, Any]:
    """Return one predicted row."""
    run, prediction = row.run, row.prediction
    return {
        "id": run.id,
        "predicted": _predicted(prediction),
        "measured": {name: value for name, value in asdict(run.measured).items() if value is not None},
        "error": {"time": _score(row.time), "memory": _score(row.memory)},
        "stated": {"time": run.states_time_inputs, "memory": run.states_memory_inputs},
        "assumed": [asdict(entry) for entry in run.assumed],
        "problems": list(run.problems),
    }


def _predicted(prediction: Prediction) -> dict[str, Any]:
    """Return the expected values as the contract names them, with the ranges beside."""
    ranges = {name: _interval(interval) for name, interval in prediction.quantities.items()}
    return {
        **{name: prediction.quantities[name].expected for name in QUANTITIES},
        "verdict": prediction.verdict.value,
        "memory_bytes": prediction.memory_bytes.expected,
        "memory": {f"{name}_bytes": prediction.definitions[name] for name in MEMORY_DEFINITIONS},
        "capacity_bytes": prediction.capacity_bytes,
        "fit_probability": prediction.fit_probability,
        "range": {**ranges, "memory_bytes": _interval(prediction.memory_bytes)},
    }


def _unpredicted(row: UnpredictableRun) -> dict[str, Any]:
    """Return a row without a prediction: the same keys, without numbers."""
    return {
        "id": row.id,
        "predicted": {
            **dict.fromkeys(QUANTITIES),
            "verdict": Verdict.UNKNOWN.value,
            "memory_bytes": None,
            "memory": {f"{name}_bytes": None for name in MEMORY_DEFINITIONS},
            "capacity_bytes": None,
            "fit_probability": None,
            "range": None,
        },
        "measured": {},
        "error": {"time": None, "memory": None},
        "stated": None,
        "assumed": [],
        "problems": [row.why],
    }


def _interval(interval: Interval) -> dict[str, float]:
    """Return a range."""
    return {"low": interval.low, "expected": interval.expected, "high": interval.high}


def _score(score: Score | None) -> dict[str, Any] | None:
    """Return one comparison."""
    if score is None:
        return None
    return {
        "quantity": score.quantity,
        "predicted": score.predicted,
        "measured": score.measured,
        "error": score.error,
        "in_range": score.is_held,
    }


def _summary(validation: Validation) -> dict[str, Any]:
    """Return the summary."""
    report = validation.report
    return {
        "rows": len(validation.rows) + len(validation.unpredictable),
        "predicted": len(validation.rows),
        "unpredictable": {row.id: row.why for row in validation.unpredictable},
        **{f"by_{group}": _plain(members) for group, members in report.groups.items()},
        "time": _plain(report.time),
        "memory": _plain(report.memory),
        "out_of_memory": asdict(report.out_of_memory),
        "reliability": {name: _reliability(value) for name, value in report.reliability.items()},
    }


def _plain(value: Any) -> Any:
    """Return summaries as plain values."""
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    return None if value is None else asdict(value)


def _reliability(value: Reliability | None) -> dict[str, Any] | None:
    """Return a reliability table."""
    return None if value is None else {**asdict(value), "skill": value.skill}

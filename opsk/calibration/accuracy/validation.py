"""Builds the document of ``opsk validate``: each row's prediction, its error where measured, and a summary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from opsk.calibration.accuracy.predictions import MEMORY_DEFINITIONS, Interval, Prediction, predict_runs
from opsk.calibration.accuracy.scoring import Reliability, Report, Score, ScoredRun, build_report, score_run
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
    """Predict and score the rows of a table."""
    predictions, errors = predict_runs(runs.runs, efficiency)
    rows = tuple(
        score_run(run, prediction)
        for run, prediction in zip(runs.runs, predictions, strict=True)
        if prediction is not None
    )
    unpredicted = [
        UnpredictableRun(id=runs.runs[index].id, line=runs.runs[index].line, why=why) for index, why in errors.items()
    ]
    failed = sorted([*runs.unpredictable, *unpredicted], key=lambda row: row.line)
    return Validation(
        rows=rows,
        unpredictable=tuple(failed),
        report=build_report(rows),
        fit=efficiency.fit,
        unknown_columns=runs.unknown_columns,
    )


def validation_document(validation: Validation) -> dict[str, Any]:
    """Return the JSON document, rows in the order of the table."""
    rows = [(row.run.line, _format_row(row)) for row in validation.rows]
    rows += [(row.line, _format_unpredictable(row)) for row in validation.unpredictable]
    return {
        "rows": [row for _, row in sorted(rows, key=lambda entry: entry[0])],
        "summary": _format_summary(validation),
        "unknown_columns": list(validation.unknown_columns),
        "efficiency": validation.fit,
    }


def _format_row(row: ScoredRun) -> dict[str, Any]:
    """Return one predicted row."""
    run, prediction = row.run, row.prediction
    return {
        "id": run.id,
        "predicted": _format_prediction(prediction),
        "measured": {name: value for name, value in asdict(run.measured).items() if value is not None},
        "error": {"time": _format_score(row.time), "memory": _format_score(row.memory)},
        "stated": {"time": run.states_time_inputs, "memory": run.states_memory_inputs},
        "assumed": [asdict(entry) for entry in run.assumed],
        "problems": list(run.problems),
    }


def _format_prediction(prediction: Prediction) -> dict[str, Any]:
    """Return the expected values by the names of the contract, and the ranges."""
    ranges = {name: _format_interval(interval) for name, interval in prediction.quantities.items()}
    return {
        **{name: prediction.quantities[name].expected for name in QUANTITIES},
        "verdict": prediction.verdict.value,
        "memory_bytes": prediction.memory_bytes.expected,
        "memory": {f"{name}_bytes": prediction.definitions[name] for name in MEMORY_DEFINITIONS},
        "capacity_bytes": prediction.capacity_bytes,
        "fit_probability": prediction.fit_probability,
        "range": {**ranges, "memory_bytes": _format_interval(prediction.memory_bytes)},
    }


def _format_unpredictable(row: UnpredictableRun) -> dict[str, Any]:
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


def _format_interval(interval: Interval) -> dict[str, float]:
    """Return a range."""
    return {"low": interval.low, "expected": interval.expected, "high": interval.high}


def _format_score(score: Score | None) -> dict[str, Any] | None:
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


def _format_summary(validation: Validation) -> dict[str, Any]:
    """Return the summary."""
    report = validation.report
    return {
        "rows": len(validation.rows) + len(validation.unpredictable),
        "predicted": len(validation.rows),
        "unpredictable": {row.id: row.why for row in validation.unpredictable},
        **{f"by_{group}": _to_plain(members) for group, members in report.groups.items()},
        "time": _to_plain(report.time),
        "memory": _to_plain(report.memory),
        "out_of_memory": asdict(report.out_of_memory),
        "reliability": {name: _format_reliability(value) for name, value in report.reliability.items()},
    }


def _to_plain(value: Any) -> Any:
    """Return summaries as plain values."""
    if isinstance(value, Mapping):
        return {key: _to_plain(entry) for key, entry in value.items()}
    return None if value is None else asdict(value)


def _format_reliability(value: Reliability | None) -> dict[str, Any] | None:
    """Return a reliability table."""
    return None if value is None else {**asdict(value), "skill": value.skill}

"""Builds the JSON document of ``opsk throughput``."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from opsk.telemetry.progress.records import MEASURED, Event, EventKind, StepRecord
from opsk.telemetry.progress.runs import Log, Run

_ACCURATE_ENOUGH = 100
"""A rate printed with three digits after the point is taken for a step time from 0.1 a second on: 1 % of rounding."""


def build_throughput_document(run: Run, *, skip_warm_up: bool) -> dict[str, Any]:
    """Return the answer."""
    tally = run.tally
    steady = tally.compute_steady_state(skip_warm_up=skip_warm_up)
    first, last = tally.first, tally.last
    events = [event for log in run.logs for event in log.events]
    return {
        "framework": run.framework,
        "first_iteration": first.iteration if first else None,
        "last_iteration": last.iteration if last else None,
        "total_iterations": last.total_iterations if last else None,
        "restarts": run.restarts,
        "median": {**steady.medians, "from": "steps" if len(tally) else None}
        if len(tally)
        else _build_whole_run(events),
        "steady": {
            "records": steady.records,
            "warm_up_records": steady.warm_up_records,
            "spread": steady.spread,
            "stalls": [dataclasses.asdict(stall) for stall in steady.stalls],
            "stall_count": steady.stall_count,
            "stalled_s": steady.stalled_s,
        },
        "loss": {"first": _format_loss(first), "last": _format_loss(last), "finite": _is_finite(last)},
        "peak_memory_bytes": _compute_peak(tally.peak_memory_bytes, events),
        "derived": dict(sorted(tally.derived.items())),
        "steps": [build_step_document(record) for record in run.records],
        "steps_omitted": max(len(tally) - len(run.records), 0),
        "events": [_build_event(event) for event in events if event.kind is not EventKind.MEMORY],
        "logs": [_build_log(log) for log in run.logs],
    }


def build_step_document(record: StepRecord) -> dict[str, Any]:
    """Return one step; values that are not finite are added as text."""
    shown = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    odd = {name: str(shown[name]) for name in MEASURED if shown[name] is not None and not math.isfinite(shown[name])}
    return {**shown, "not_finite": odd} if odd else shown


def _build_event(event: Event) -> dict[str, Any]:
    """Return one event."""
    return {
        "kind": event.kind.value,
        "iteration": event.iteration,
        "seconds": event.seconds,
        "values": dict(event.values),
        "line": event.line,
        "file": event.file,
    }


def _build_log(log: Log) -> dict[str, Any]:
    """Return how one log was read."""
    return {
        "file": log.file,
        "framework": log.framework,
        "records": len(log.tally),
        "restarts": log.restarts,
        "duplicate_lines": log.duplicates,
        "torn": log.torn,
        "gpus": log.facts.get("world"),
        "sequence_tokens": log.facts.get("seq"),
        "global_batch": log.facts.get("batch"),
        "problem": log.problem,
    }


def _build_whole_run(events: list[Event]) -> dict[str, Any]:
    """Return the means of a run whose log has a summary but no steps."""
    summary = next((event.values for event in reversed(events) if event.kind is EventKind.SUMMARY), {})
    steps = summary.get("train_steps_per_second") or 0.0
    return {
        "step_s": 1 / steps if steps * 1000 >= _ACCURATE_ENOUGH else None,
        "tokens_per_s": None,
        "tokens_per_s_per_gpu": None,
        "tflops_per_gpu": None,
        "samples_per_s": summary.get("train_samples_per_second"),
        "from": "summary" if summary else None,
    }


def _format_loss(record: StepRecord | None) -> float | str | None:
    """Return the loss of a record; as text where it is not finite."""
    if record is None or record.loss is None:
        return None
    return record.loss if math.isfinite(record.loss) else str(record.loss)


def _is_finite(record: StepRecord | None) -> bool | None:
    return None if record is None or record.loss is None else math.isfinite(record.loss)


def _compute_peak(stated: float | None, events: list[Event]) -> float | None:
    """Return the peak memory of all ranks that report it."""
    reported = [event.values.get("memory_bytes", 0.0) for event in events if event.kind is EventKind.MEMORY]
    return max([stated or 0.0, *reported]) or None

"""Prints the progress of a run for people."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from opsk.telemetry.progress.records import MEASURED, Event, EventKind, StepRecord
from opsk.telemetry.progress.runs import Log, Run
from opsk.text import escape, format_bytes, format_duration

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


_WIDTH_WITHOUT_TERMINAL = 110
_BARS = "▁▂▃▄▅▆▇█"
_PLAIN_BARS = "_.-=+*#@"
_SPARKS = 60
_KINDS = {
    "checkpoint": ("checkpoint line", "checkpoint lines"),
    "validation": ("validation", "validations"),
    "clock_back": ("time that the clock went back", "times that the clock went back"),
}


def print_throughput(document: Mapping[str, Any], run: Run) -> None:
    """Print the answer of ``opsk throughput`` for people."""
    console = Console(highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console.width = _WIDTH_WITHOUT_TERMINAL
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    bars = _choose_bars(console.encoding)
    for name, text in _build_rows(document, run, bars):
        table.add_row(Text(name, style="bold"), Text(escape(text)))
    console.print(table)


def _build_rows(document: Mapping[str, Any], run: Run, bars: str) -> list[tuple[str, str]]:
    """Return the rows, each with a heading."""
    rows = [("run", _format_progress(document))]
    median, steady = document["median"], document["steady"]
    if document["framework"] is None and not document["steps"]:
        return [*rows, ("logs", _format_names(document))]
    rows.append(("speed", format_speed(median)))
    if steady["records"]:
        rows.append(("", _format_basis(steady, median)))
        line = render_sparkline(run.tally.step_times(), bars)
        if line:
            rows.append(("steps", f"{line}  step time, first to last"))
    if document["loss"]["last"] is not None:
        rows.append(
            ("loss", f"{_format_number(document['loss']['first'])} → {_format_number(document['loss']['last'])}")
        )
    if document["peak_memory_bytes"]:
        rows.append(("memory", f"{format_bytes(document['peak_memory_bytes'])} at most, as the framework counts"))
    events = _format_events(document["events"])
    if events:
        rows.append(("events", events))
    if document["derived"]:
        rows.append(("computed", ", ".join(document["derived"]) + ": not printed in the log, computed from what is"))
    rows += [("problem", f"{log['file']}: {log['problem']}") for log in document["logs"] if log["problem"]]
    rows += [("torn", f"{log['file']} ends within a line") for log in document["logs"] if log["torn"]]
    return rows


def _format_names(document: Mapping[str, Any]) -> str:
    return ", ".join(log["file"] for log in document["logs"])


def _format_progress(document: Mapping[str, Any]) -> str:
    """Return framework, progress, and number of restarts."""
    if document["framework"] is None:
        return "no known progress lines"
    text = str(document["framework"])
    first, last, total = (document[name] for name in ("first_iteration", "last_iteration", "total_iterations"))
    if last is not None:
        text += f", step {first:,} to {last:,}" + (f" of {total:,}" if total else "")
    again = document["restarts"]
    return text + (f", {again} restart{'s' if again > 1 else ''}" if again else "")


def format_speed(median: Mapping[str, Any]) -> str:
    """Return the medians."""
    parts = []
    if median["step_s"]:
        parts.append(f"{format_duration(median['step_s'])} a step")
    for name, what in (
        ("tflops_per_gpu", "TFLOP/s/GPU"),
        ("tokens_per_s_per_gpu", "tokens/s/GPU"),
        ("tokens_per_s", "tokens/s"),
        ("samples_per_s", "samples/s"),
    ):
        if median[name]:
            parts.append(f"{_format_rate(median[name])} {what}")
    text = " · ".join(parts) or "not reported"
    return f"{text}, mean of the whole run" if median["from"] == "summary" else text


def _format_basis(steady: Mapping[str, Any], median: Mapping[str, Any]) -> str:
    """Return the basis of the medians."""
    count = steady["records"] - steady["warm_up_records"]
    text = f"median of {count:,} record{'s' if count != 1 else ''}"
    if steady["warm_up_records"]:
        text += f" after {steady['warm_up_records']} of warm-up"
    elif steady["records"] == 1:
        text += ", which may include start-up"
    if steady["spread"] is not None:
        text += f", ±{100 * steady['spread']:.1f} % between the quartiles"
    if steady["stall_count"]:
        lost = format_duration(steady["stalled_s"])
        text += f"; {steady['stall_count']} of more than three times the median, {lost} lost"
    return text


def _format_events(events: Sequence[Mapping[str, Any]]) -> str:
    """Return the number of events of each kind."""
    parts = []
    for kind, words in _KINDS.items():
        matching = [event for event in events if event["kind"] == kind]
        if matching:
            took = sum(event["seconds"] or 0.0 for event in matching)
            spent = f" ({format_duration(took)})" if took else ""
            parts.append(f"{len(matching)} {words[len(matching) > 1]}{spent}")
    return ", ".join(parts)


def render_sparkline(values: Sequence[float], bars: str = _BARS) -> str:
    """Return numbers as a line of bars: means of neighbours where there are many, gaps for unknown values."""
    known = [value for value in values if not math.isnan(value)]
    if len(known) < 2:
        return ""
    width = min(_SPARKS, len(values))
    cells = [values[len(values) * cell // width : len(values) * (cell + 1) // width] for cell in range(width)]
    means = [_compute_mean(cell) for cell in cells]
    present = sorted(mean for mean in means if mean is not None)
    top = max(present[int(0.95 * (len(present) - 1))], present[len(present) // 2] * 1.5)
    return "".join(" " if mean is None else bars[min(int(mean / top * len(bars)), len(bars) - 1)] for mean in means)


def _compute_mean(values: Sequence[float]) -> float | None:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else None


def _choose_bars(encoding: str) -> str:
    """Return bar characters that the terminal's encoding has."""
    try:
        _BARS.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return _PLAIN_BARS
    return _BARS


def _format_rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _format_number(value: float | str | None) -> str:
    return "–" if value is None else value if isinstance(value, str) else f"{value:.4g}"

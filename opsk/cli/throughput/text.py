"""Prints the progress of a run for people."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from opsk.telemetry.progress.runs import Run
from opsk.text import escape, format_bytes, format_duration

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
        rows.append(("computed", ", ".join(document["derived"]) + ": not printed, they follow from what is"))
    rows += [("problem", f"{log['file']}: {log['problem']}") for log in document["logs"] if log["problem"]]
    rows += [("torn", f"{log['file']} ends within a line") for log in document["logs"] if log["torn"]]
    return rows


def _format_names(document: Mapping[str, Any]) -> str:
    return ", ".join(log["file"] for log in document["logs"])


def _format_progress(document: Mapping[str, Any]) -> str:
    """Return framework, progress, and number of restarts."""
    if document["framework"] is None:
        return "no progress lines that opsk knows"
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
    text = " · ".join(parts) or "not told"
    return f"{text}, mean of the whole run" if median["from"] == "summary" else text


def _format_basis(steady: Mapping[str, Any], median: Mapping[str, Any]) -> str:
    """Return the basis of the medians."""
    count = steady["records"] - steady["warm_up_records"]
    text = f"median of {count:,} record{'s' if count != 1 else ''}"
    if steady["warm_up_records"]:
        text += f" after {steady['warm_up_records']} of warm-up"
    elif steady["records"] == 1:
        text += ", which may hold start-up"
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

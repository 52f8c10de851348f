"""How is it shown to people where a job loses time? A bar of the measured step, and a line a cause."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from opsk.diagnosis.losses.values import Cause
from opsk.text import escape, format_duration

_WIDTH_WITHOUT_TERMINAL = 110
_BAR = 60
_SIGNS = {
    Cause.STRAGGLER: ("S", "red"),
    Cause.THERMAL_CAP: ("T", "bright_red"),
    Cause.POWER_CAP: ("P", "yellow"),
    Cause.CONGESTED_LINK: ("N", "magenta"),
    Cause.WRONG_PLAN: ("W", "blue"),
    Cause.DATA_LOADING: ("D", "bright_yellow"),
    Cause.CHECKPOINTING: ("C", "bright_blue"),
    Cause.RECOMPUTE: ("R", "bright_magenta"),
    Cause.UNKNOWN: ("?", "bright_black"),
}


def picture(document: Mapping[str, Any]) -> None:
    """Print the answer of ``opsk losses`` for people."""
    console = Console(highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console.width = _WIDTH_WITHOUT_TERMINAL
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row(Text("measured", style="bold"), Text(_measured(document)))
    table.add_row(Text("expected", style="bold"), Text(_expected(document)))
    if document["gap"] is not None:
        table.add_row(Text("gap", style="bold"), Text(_gap(document)))
        table.add_row(Text("step", style="bold"), _bar(document, console))
    for finding in document["findings"]:
        sign, colour = _SIGNS[Cause(finding["cause"])]
        table.add_row(Text(f"  {sign}", style=f"bold {colour}"), Text(escape(_said(finding))))
    table.add_row(Text("seen with", style="bold"), Text(escape(_sources(document["seen"]))))
    console.print(table)


def _measured(document: Mapping[str, Any]) -> str:
    if document["measured_step_s"] is None:
        return _awaited(document["awaits"])
    typical, mean = document["measured_step_s"], document["mean_step_s"]
    said = f"{format_duration(typical)} a step"
    if mean > 1.005 * typical:
        said += f", {format_duration(mean)} with what happens between steps"
    return said + _mfu(document["measured_mfu"])


def _awaited(awaits: Mapping[str, int] | None) -> str:
    """Return what the measurement waits for."""
    if awaits is None or not awaits["step_times"]:
        return "waits for the first progress line: no log tells of a step yet"
    return f"measuring: {awaits['step_times']} of {awaits['needed']} step times"


def _expected(document: Mapping[str, Any]) -> str:
    expected = document["expected_step_s"]
    if expected is None:
        return "nobody predicted it: give --plan, or the number of a job with advice in its record"
    low, high = document["expected_range_s"]
    between = f"{format_duration(low)}–{format_duration(high)}"
    return f"{format_duration(expected)} a step ({between}){_mfu(document['expected_mfu'])}"


def _mfu(ratio: float | None) -> str:
    return "" if ratio is None else f" · MFU {ratio:.1%}"


def _gap(document: Mapping[str, Any]) -> str:
    """Return how much of a step could be saved, and what that is against the error."""
    gap = document["gap"]
    if gap < 0.005:
        if document["expected_step_s"] is None:
            return "not known: nothing was found, and nobody predicted the step"
        return "none: as fast as predicted, and nothing found"
    said = f"{gap:.1%} of the step could be saved"
    if document["expected_step_s"] is not None:
        where = "within" if document["is_within_error"] else "beyond"
        said += f"; the measured time is {where} the prediction's error"
    return said


def _bar(document: Mapping[str, Any], console: Console) -> Text:
    """Return the measured step as a bar: what would be left of it, and what each cause takes."""
    text, width = Text(), min(_BAR, max(console.width - 12, 20))
    cells = [(finding["cause"], round(finding["share"] * width)) for finding in document["findings"]]
    lost = sum(count for _, count in cells)
    text.append(_block(console.encoding) * max(width - lost, 0), style="green")
    for cause, count in cells:
        sign, colour = _SIGNS[Cause(cause)]
        text.append(sign * count, style=f"bold {colour}")
    return text


def _block(encoding: str) -> str:
    """Return a sign that the terminal can show."""
    try:
        "█".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return "#"
    return "█"


def _said(finding: Mapping[str, Any]) -> str:
    """Return one cause as a line."""
    words = f"{finding['share']:6.1%}  {finding['cause'].replace('_', ' ')}"
    if finding["where"]:
        words += f"  {finding['where']}"
    if finding["cause"] != Cause.UNKNOWN:
        words += f"  ({finding['confidence']:.0%} sure)"
    return f"{words}: {finding['text']}"


def _sources(seen: Mapping[str, int]) -> str:
    """Return what there was to look at; what is missing cannot be blamed."""
    there = [f"{count:,} {name}" for name, count in seen.items() if count]
    missing = [name for name, count in seen.items() if not count]
    return ", ".join(there or ["nothing"]) + (f"; not seen: {', '.join(missing)}" if missing else "")

"""Prints the losses of a job for people: a bar of the measured step, and a line per cause."""

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
_SYMBOLS = {
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


def print_losses(document: Mapping[str, Any]) -> None:
    """Print the answer of ``opsk losses`` for people."""
    console = Console(highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console.width = _WIDTH_WITHOUT_TERMINAL
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row(Text("measured", style="bold"), Text(_format_measured(document)))
    table.add_row(Text("expected", style="bold"), Text(_format_expected(document)))
    if document["gap"] is not None:
        table.add_row(Text("gap", style="bold"), Text(_format_gap(document)))
        table.add_row(Text("step", style="bold"), _render_bar(document, console))
    for finding in document["findings"]:
        symbol, colour = _SYMBOLS[Cause(finding["cause"])]
        table.add_row(Text(f"  {symbol}", style=f"bold {colour}"), Text(escape(_format_finding(finding))))
    table.add_row(Text("seen with", style="bold"), Text(escape(_format_sources(document["seen"]))))
    console.print(table)


def _format_measured(document: Mapping[str, Any]) -> str:
    if document["measured_step_s"] is None:
        return _format_awaited(document["awaits"])
    typical, mean = document["measured_step_s"], document["mean_step_s"]
    text = f"{format_duration(typical)} a step"
    if mean > 1.005 * typical:
        text += f", {format_duration(mean)} with what happens between steps"
    return text + _format_mfu(document["measured_mfu"])


def _format_awaited(awaits: Mapping[str, int] | None) -> str:
    """Return the progress of the measurement."""
    if awaits is None or not awaits["step_times"]:
        return "waits for the first progress line: no log tells of a step yet"
    return f"measuring: {awaits['step_times']} of {awaits['needed']} step times"


def _format_expected(document: Mapping[str, Any]) -> str:
    expected = document["expected_step_s"]
    if expected is None:
        return "nobody predicted it: give --plan, or the number of a job with advice in its record"
    low, high = document["expected_range_s"]
    between = f"{format_duration(low)}–{format_duration(high)}"
    return f"{format_duration(expected)} a step ({between}){_format_mfu(document['expected_mfu'])}"


def _format_mfu(ratio: float | None) -> str:
    return "" if ratio is None else f" · MFU {ratio:.1%}"


def _format_gap(document: Mapping[str, Any]) -> str:
    """Return the share of a step that could be saved, against the prediction's error."""
    gap = document["gap"]
    if gap < 0.005:
        if document["expected_step_s"] is None:
            return "not known: nothing was found, and nobody predicted the step"
        return "none: as fast as predicted, and nothing found"
    text = f"{gap:.1%} of the step could be saved"
    if document["expected_step_s"] is not None:
        where = "within" if document["is_within_error"] else "beyond"
        text += f"; the measured time is {where} the prediction's error"
    return text


def _render_bar(document: Mapping[str, Any], console: Console) -> Text:
    """Return the measured step as a bar: the useful time, and the share of each cause."""
    text, width = Text(), min(_BAR, max(console.width - 12, 20))
    cells = [(finding["cause"], round(finding["share"] * width)) for finding in document["findings"]]
    lost = sum(count for _, count in cells)
    text.append(_choose_block(console.encoding) * max(width - lost, 0), style="green")
    for cause, count in cells:
        symbol, colour = _SYMBOLS[Cause(cause)]
        text.append(symbol * count, style=f"bold {colour}")
    return text


def _choose_block(encoding: str) -> str:
    """Return a block character that the terminal's encoding has."""
    try:
        "█".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return "#"
    return "█"


def _format_finding(finding: Mapping[str, Any]) -> str:
    """Return one finding as a line."""
    words = f"{finding['share']:6.1%}  {finding['cause'].replace('_', ' ')}"
    if finding["where"]:
        words += f"  {finding['where']}"
    if finding["cause"] != Cause.UNKNOWN:
        words += f"  ({finding['confidence']:.0%} sure)"
    return f"{words}: {finding['text']}"


def _format_sources(seen: Mapping[str, int]) -> str:
    """Return the available and the missing sources of evidence."""
    present = [f"{count:,} {name}" for name, count in seen.items() if count]
    missing = [name for name, count in seen.items() if not count]
    return ", ".join(present or ["nothing"]) + (f"; not seen: {', '.join(missing)}" if missing else "")

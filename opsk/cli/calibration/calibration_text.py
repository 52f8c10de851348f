"""Prints a calibration for people: parameters, offsets, errors and ranges."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from opsk.text import escape, to_json_values

_WIDTH_WITHOUT_TERMINAL = 110


def print_calibration(document: Mapping[str, Any]) -> None:
    """Print the answer of ``opsk calibrate`` for people."""
    shown = to_json_values(document)
    console = Console(highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console.width = _WIDTH_WITHOUT_TERMINAL
    console.print(Text(escape(f"fitted to {shown['fit']['description']}"), style="bold"), soft_wrap=True)
    console.print(_build_parameter_table(shown["parameters"]))
    console.print(_format_unidentified(shown["parameters"]), soft_wrap=True)
    console.print()
    console.print(_build_offset_table(document["offsets"]))
    console.print()
    console.print(_build_error_table(shown["fit"], shown["cross_validation"]))
    console.print(_format_spread(shown["spread"]), soft_wrap=True)
    if shown["output"]:
        console.print(Text(escape(f"written to {shown['output']}")), soft_wrap=True)


def _build_parameter_table(parameters: Mapping[str, Any]) -> Table:
    """Return the table of parameters that the runs identify."""
    table = Table(box=None, pad_edge=False)
    table.add_column("parameter")
    for name in ("value", "±", "prior", "runs"):
        table.add_column(name, justify="right")
    table.add_column("unit")
    for name, known in parameters.items():
        if known["identified"]:
            numbers = [f"{known[key]:.3g}" for key in ("value", "standard_error", "prior")]
            table.add_row(Text(escape(name)), *numbers, str(known["runs"] or "shared"), known["unit"])
    return table


def _format_unidentified(parameters: Mapping[str, Any]) -> Text:
    """Return the number of parameters that stayed at their prior."""
    count = sum(not known["identified"] for known in parameters.values())
    return Text(f"{count} of {len(parameters)} parameters are not told apart from their prior by these runs")


def _build_offset_table(offsets: Sequence[Mapping[str, Any]]) -> Table:
    """Return how much slower than predicted sources, or the site, run each family of software."""
    table = Table(box=None, pad_edge=False)
    table.add_column("offset of time")
    for name in ("measured / predicted", "±", "runs"):
        table.add_column(name, justify="right")
    for offset in offsets:
        name = f"{offset['source'] or 'all sources'}, {offset['software'] or 'any software'}"
        table.add_row(
            Text(escape(name)),
            f"{math.exp(offset['log']):.2f}",
            f"{offset['log_sigma']:.2f}",
            str(offset["runs"]),
        )
    return table


def _build_error_table(fit: Mapping[str, Any], validated: Mapping[str, Any] | None) -> Table:
    """Return the errors by source, and of all."""
    table = Table(box=None, pad_edge=False)
    table.add_column("source")
    for name in ("runs", "median", "P90", "bias", "left out: median", "P90", "bias"):
        table.add_column(name, justify="right")
    rows = [
        (name, figures, (validated or {}).get("by_source", {}).get(name)) for name, figures in fit["by_source"].items()
    ]
    rows += [(name, fit[name], (validated or {}).get(name)) for name in ("stated", "assumed", "overall") if fit[name]]
    for name, inside, outside in rows:
        table.add_row(Text(escape(name)), str(inside["runs"]), *_format_figures(inside), *_format_figures(outside))
    return table


def _format_figures(figures: Mapping[str, float] | None) -> list[str]:
    """Return median, P90 and bias as shares."""
    if figures is None:
        return ["", "", ""]
    return [f"{figures['median']:.1%}", f"{figures['p90']:.1%}", f"{figures['bias']:+.1%}"]


def _format_spread(spread: Mapping[str, Any]) -> Text:
    """Return the width of the ranges, and their coverage."""
    held = spread["coverage"]
    words = [f"{name.replace('_', ' ')} {share:.0%}" for name, share in held.items() if isinstance(share, float)]
    sigmas = [f"{name} {spread[name]:.3f}" for name in spread if name != "coverage"]
    return Text(f"ranges: {', '.join(sigmas)}; they hold of {', of '.join(words)}")

"""Renders the page on how good predictions have been at this site: the answer of `opsk accuracy` as lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opsk.text import format_bytes, format_count, format_duration
from opsk_tui.text import fit_text, safe
from opsk_tui.widgets.document import Line, Section, section

_GROUPS = {"by_week": "By week", "by_user": "By user", "by_framework": "By framework", "by_gpu": "By GPU"}
_NAME_WIDTH, _JOB_WIDTH = 16, 38
_FIGURES = {"jobs": 6, "median": 8, "P90": 6, "in range": 10}
"""Columns of each quantity, and their widths: all of a row fits into 80 characters."""
NO_JOBS = "No job has been predicted and measured yet: opsk accuracy says what is missing."


def build_accuracy_sections(document: Mapping[str, Any]) -> list[Section]:
    """Return the sections of the page.

    Parameters
    ----------
    document
        As `opsk.app.accuracy.document.build_accuracy_document` returns it, in plain values.
    """
    if not document["compared"]:
        return [section("", [[(NO_JOBS, "watch")]])]
    heading = f"{document['compared']:,} of {format_count(document['predicted'], 'predicted job')} measured"
    lines: list[Line] = [[(heading, "text")]]
    if document["is_few"]:
        lines.append([("few jobs: these figures say little yet", "watch")])
    if document["hides_others"]:
        lines.append([("jobs of other users are counted and not named (PrivateData)", "dim")])
    lines += [_build_header(), _build_row("all jobs", document["overall"])]
    if document["fit"]["since"] is not None:
        lines.append(_build_row(f"fit of {document['fit']['since'][:10]}", document["fit"]))
    return [
        section("How good predictions were here", lines),
        *(
            section(title, [_build_row(name, figures) for name, figures in document[key].items()])
            for key, title in _GROUPS.items()
        ),
        section("Missed by the most", [line for missed in document["worst"] for line in _build_missed_lines(missed)]),
    ]


def _build_header() -> Line:
    titles = [
        (quantity if name == "jobs" else name).rjust(width)
        for quantity in ("time", "mem.")
        for name, width in _FIGURES.items()
    ]
    return [(" " * _NAME_WIDTH, "dim"), *((title, "dim") for title in titles)]


def _build_row(name: str, figures: Mapping[str, Any]) -> Line:
    values = [
        value.rjust(width)
        for quantity in ("time", "memory")
        for value, width in zip(_format_figures(figures[quantity]), _FIGURES.values(), strict=True)
    ]
    return [(fit_text(safe(name), _NAME_WIDTH), "strong"), *((value, "text") for value in values)]


def _format_figures(figures: Mapping[str, Any] | None) -> Sequence[str]:
    if figures is None:
        return ["·"] * len(_FIGURES)
    coverage = figures["coverage"]
    return [
        str(figures["jobs"]),
        f"{figures['median_absolute_error']:.0%}",
        f"{figures['p90_absolute_error']:.0%}",
        "·" if coverage is None else f"{coverage:.0%}",
    ]


def _build_missed_lines(missed: Mapping[str, Any]) -> list[Line]:
    """Return a line on a job, and one on the reason where it is known."""
    format_value = format_duration if missed["quantity"] == "time" else format_bytes
    predicted, measured = (format_value(missed[name]) for name in ("predicted", "measured"))
    job = " ".join(safe(missed[name]) for name in ("job", "user", "framework", "gpu") if missed[name])
    error = f" {missed['error']:+5.0%} {missed['quantity']} {measured}, predicted {predicted}"
    lines: list[Line] = [[(fit_text(job, _JOB_WIDTH), "strong"), (error, "text")]]
    return [*lines, [(f"  {safe(missed['reason'])}", "dim")]] if missed["reason"] else lines

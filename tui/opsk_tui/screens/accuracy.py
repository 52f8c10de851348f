"""Renders the page on how good predictions have been at this site: the answer of `opsk accuracy` as lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opsk.text import format_bytes, format_count, format_duration
from opsk_tui.text import fit_text, safe
from opsk_tui.widgets.document import Line, Section, section

_GROUPS = {"by_week": "By week", "by_user": "By user", "by_framework": "By framework", "by_gpu": "By GPU"}
_NAME_WIDTH, _FIGURE_WIDTH = 20, 9
_FIGURES = ("jobs", "median", "P90", "in range")
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
        section("Missed by the most", [_build_missed_line(missed) for missed in document["worst"]]),
    ]


def _build_header() -> Line:
    titles = [f"{quantity} {name}" if name == "jobs" else name for quantity in ("time", "mem.") for name in _FIGURES]
    return [(" " * _NAME_WIDTH, "dim"), *((title.rjust(_FIGURE_WIDTH + 1), "dim") for title in titles)]


def _build_row(name: str, figures: Mapping[str, Any]) -> Line:
    values = [value for quantity in ("time", "memory") for value in _format_figures(figures[quantity])]
    return [
        (fit_text(safe(name), _NAME_WIDTH), "strong"),
        *((value.rjust(_FIGURE_WIDTH + 1), "text") for value in values),
    ]


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


def _build_missed_line(missed: Mapping[str, Any]) -> Line:
    is_time = missed["quantity"] == "time"
    predicted, measured = (
        (format_duration if is_time else format_bytes)(missed[name]) for name in ("predicted", "measured")
    )
    job = " ".join(safe(missed[name]) for name in ("job", "user", "framework", "gpu") if missed[name])
    reason = safe(missed["reason"] or "reason not known")
    return [
        (fit_text(job, 44), "strong"),
        (f"  {missed['error']:+5.0%}  {missed['quantity']} {measured}, predicted {predicted}", "text"),
        (f"  {reason}", "dim"),
    ]

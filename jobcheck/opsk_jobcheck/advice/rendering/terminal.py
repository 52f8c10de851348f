"""Renders advice as plain, escaped terminal lines: the six most useful lines, all of them, or two."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import StrEnum

from opsk.text import format_count
from opsk.workload.advice_record import Verdict
from opsk_jobcheck.advice.advice import Advice
from opsk_jobcheck.advice.layout import LABEL_WIDTH, MAX_WIDTH, Line, Weight, cut, is_ascii_only, to_ascii
from opsk_jobcheck.advice.rendering import sections
from opsk_jobcheck.advice.rendering.counted import render_count
from opsk_jobcheck.advice.rendering.ranged import is_quiet, render_over_range
from opsk_jobcheck.advice.rendering.sections import render_network, render_sharing
from opsk_jobcheck.advice.roles import render_roles
from opsk_jobcheck.advice.serving import render_serving

__all__ = ["MAX_LINES", "Detail", "is_ascii_only", "lines", "mark_array_task", "parse_detail", "short_lines"]

MAX_LINES = 6
"""Number of lines that a submission prints by default."""
HOW_TO_SEE = "OPSK_ADVICE=long or opsk check --detail long"
SHORT = "many submissions wait: what may go better was not looked for; opsk check does"
_COUNTED = ("problem", "reason", "change", "finding")
"""Topics that are counted in the line on omitted content."""
_FACTS = ("values read", "values assumed")


class Detail(StrEnum):
    """The level of detail: the most useful six lines, all of it, or two lines."""

    DEFAULT = "default"
    LONG = "long"
    SHORT = "short"


def parse_detail(environment: Mapping[str, str]) -> Detail:
    """Return the detail that ``OPSK_ADVICE`` requests; its caller handles unknown values and ``off``."""
    requested = environment.get("OPSK_ADVICE", "").strip().lower()
    return Detail(requested) if requested in (Detail.LONG, Detail.SHORT) else Detail.DEFAULT


def lines(advice: Advice, detail: Detail | str = Detail.DEFAULT, *, ascii_only: bool = False) -> tuple[str, ...]:
    """Return the advice as lines without prefix or colour; none where there is nothing to say but in the long form.

    Parameters
    ----------
    ascii_only
        True for a terminal that shows ASCII only.
    """
    if detail == Detail.SHORT:
        rows = list(_render_short(advice))
    elif detail == Detail.LONG:
        rows = [row for line in _build_lines(advice) for row in line.rows()]
    else:
        rows = _select_lines(_build_lines(advice), names_omitted=sections.is_explained(advice))
    return tuple(to_ascii(row) if ascii_only else row for row in rows)


def short_lines(advice: Advice, *, ascii_only: bool = False) -> tuple[str, ...]:
    """Return the advice in two lines, for a submission whose user sees no other lines."""
    return lines(advice, Detail.SHORT, ascii_only=ascii_only)


def mark_array_task(rows: tuple[str, ...], *, is_array: bool, ascii_only: bool = False) -> tuple[str, ...]:
    """Return the lines; those of a job array say that they are about one of its tasks."""
    if not is_array or not rows:
        return rows
    note = " · each task of the array"
    return (f"{rows[0]}{to_ascii(note) if ascii_only else note}", *rows[1:])


def _render_short(advice: Advice) -> tuple[str, ...]:
    """Return headline and verdict; without a verdict, the first line on what is wrong or missing."""
    if advice.serving is not None:
        return sections.headline(advice).row(), next(render_serving(advice.serving)).row()
    if advice.over_range is not None:
        row = next(render_over_range(advice))
        return () if row.weight is Weight.NEVER else (sections.headline(advice).row(), row.row())
    if advice.is_limit and is_quiet(advice):
        return ()
    if advice.is_limit:
        return sections.headline(advice).row(), next(sections.limit(advice)).row()
    if advice.verdict is not Verdict.UNKNOWN:
        return sections.headline(advice).row(), sections.memory(advice).row()
    parts = (*_list_unknown(advice), *sections.problems(advice))
    first = next((line for line in parts if line.weight is not Weight.NEVER), None)
    return () if first is None else (sections.headline(advice).row(), first.row())


def _build_lines(advice: Advice) -> list[Line]:
    """Return all lines of the advice, in reading order."""
    parts = [sections.headline(advice)]
    if advice.serving is not None:
        parts += render_serving(advice.serving)
    elif advice.verdict is Verdict.UNKNOWN:
        parts += _list_unknown(advice)
    elif advice.over_range is not None:
        parts += render_over_range(advice)
    elif advice.is_limit:
        weight = Weight.NEVER if is_quiet(advice) else None
        parts += [line if weight is None else replace(line, weight=weight) for line in sections.limit(advice)]
    elif advice.roles is not None:
        parts += [sections.memory(advice), *render_roles(advice)]
    else:
        out = sections.changes_that_fit(advice) if advice.verdict is not Verdict.FITS else ()
        parts += [sections.memory(advice), *out]
        parts += [] if sections.is_measured(advice) else [sections.speed(advice)]
        parts += [*sections.improvements(advice), *sections.best(advice), *sections.conversion(advice)]
        parts += _build_network_lines(advice)
    if advice.runs is not None and advice.verdict is not Verdict.UNKNOWN:
        parts.append(sections.runs(advice.runs))
    if advice.is_short:
        parts.append(Line(label="short", text=SHORT, brief=SHORT, weight=Weight.VERDICT))
    return [*parts, *sections.problems(advice), *sections.read(advice), *sections.list_assumptions(advice)]


def _list_unknown(advice: Advice) -> list[Line]:
    """Return the lines of a job without a verdict: why there is none, what would mend that, and what is known."""
    known = [line for line in (render_count(advice), sections.room(advice)) if line is not None]
    return [*known, *sections.unknown(advice), *sections.mending(advice)]


def _build_network_lines(advice: Advice) -> Iterable[Line]:
    """Yield the lines on the placement of the ranks, and on the sharing of links."""
    if text := render_network(advice):
        weight = Weight.NETWORK if advice.placement.placement is not None else Weight.NO_NETWORK
        brief = cut(text.replace(" of the traffic between nodes stays", " of traffic stays"), MAX_WIDTH - LABEL_WIDTH)
        yield Line(label="network", text=text, brief=brief, weight=weight, topic="network")
    if text := render_sharing(advice):
        yield Line(label="shares", text=text, weight=Weight.SHARES, topic="shared links")


def _select_lines(parts: list[Line], *, names_omitted: bool) -> list[str]:
    """Return the most important lines, in their order; the last one lists what was omitted and how to see it.

    A headline alone says nothing: then there are none.

    Parameters
    ----------
    names_omitted
        Whether lines that belong to the long form only are named too; otherwise only what was cut is.
    """
    rows = [line for line in parts if line.weight is not Weight.NEVER]
    if all(line.weight is Weight.HEADLINE for line in rows):
        return []
    if names_omitted:
        # the row of a problem does not name the script
        is_all = len(parts) == len(rows) and all(line.is_whole or line.topic == "problem" for line in rows)
    else:
        is_all = True
    if is_all and len(rows) <= MAX_LINES and not any(line.is_cut for line in rows):
        return [line.row() for line in rows]
    order = sorted(range(len(rows)), key=lambda index: (rows[index].weight, index))
    selected = set(order[: MAX_LINES - 1])
    chosen = [line for index, line in enumerate(rows) if index in selected]
    return [
        *(line.row() for line in chosen),
        _render_omitted([line for line in parts if all(line is not other for other in chosen)]),
    ]


def _render_omitted(omitted: list[Line]) -> str:
    """Return the line that lists what was omitted."""
    counts = {topic: sum(line.topic == topic for line in omitted) for topic in _COUNTED}
    numbers = [format_count(count, topic) for topic, count in counts.items() if count]
    others = list(dict.fromkeys(line.topic for line in omitted if line.topic and line.topic not in _COUNTED))
    if set(_FACTS) <= set(others):
        others = [*(topic for topic in others if topic not in _FACTS), "values read and assumed"]
    words = ", ".join([*numbers, *others]) or "all in full"
    text = f"{words}: {HOW_TO_SEE}"
    return Line(label="more", text=text, brief=text, weight=Weight.OTHER).row()

"""Renders a report as one HTML file: no scripts, no outside assets, all foreign text escaped.

Jinja2 escapes what goes into the page; the drawings escape their own texts and are inserted as they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from opsk.errors import UnavailableError
from opsk.postmortem.reasoning.owners import describe_owner
from opsk.postmortem.report.text import (
    format_divergence,
    format_memory,
    format_place,
    format_size,
    format_source,
    format_time,
    list_moments,
    sanitise,
)
from opsk.postmortem.values import Cause, Finding, Moment, RankProgress, Report, Role

_WIDTH = 960
_ROW = 22
_LEFT = 250
_MAX_ROWS = 40
_MAX_CELLS = 4096
_CELL = 14
_MAX_REPORTING_RANKS = 8
_COLOURS = {
    Role.ROOT: "#c0392b",
    Role.CASCADE: "#d68910",
    Role.CONFIRMATION: "#7d6608",
    Role.PROGRESS: "#1e8449",
    Role.END: "#2c3e50",
    Role.ADVICE: "#7f8c8d",
}
_MAX_EVIDENCE = 24


def _escape_text(value: str) -> str:
    """Return hostile text for SVG."""
    return escape(sanitise(value), quote=True)


def render_timeline_svg(moments: Sequence[Moment]) -> str:
    """Return the timeline: a row a moment, its place on the axis of time; empty where there is no moment.

    A moment without a time stands in its order, with a hollow mark where the moment before it is.
    """
    shown = moments[:_MAX_ROWS]
    if not shown:
        return ""
    times = [moment.time_s for moment in shown if moment.time_s is not None]
    first, last = min(times, default=0.0), max(times, default=0.0)
    height = _ROW * (len(shown) + 2)
    rows = [
        f'<svg class="timeline" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="timeline" '
        'xmlns="http://www.w3.org/2000/svg">'
    ]
    rows += _render_axis(first, last, height) if times else []
    at = first
    for number, moment in enumerate(shown):
        at = moment.time_s if moment.time_s is not None else at
        x = _time_to_x(at, first, last) if times else float(_LEFT)
        rows += _render_moment(moment, x, _ROW * (number + 1.7))
    return "".join([*rows, "</svg>"])


def _time_to_x(time_s: float, first: float, last: float) -> float:
    """Return the position of a time: seconds before the end on a logarithmic axis, since most happens there."""
    span = max(last - first, 1e-3)
    before = max(last - time_s, 0.0)
    part = 1.0 - math.log1p(before) / math.log1p(span)
    return _LEFT + part * (_WIDTH - _LEFT - 20)


def _render_axis(first: float, last: float, height: int) -> list[str]:
    """Return the axis with its two ends."""
    rows = [f'<line x1="{_LEFT}" y1="{_ROW}" x2="{_WIDTH - 20}" y2="{_ROW}" class="axis"/>']
    rows.append(f'<text x="{_LEFT}" y="{_ROW - 6}" class="tick">{format_time(first)}</text>')
    rows.append(f'<text x="{_WIDTH - 20}" y="{_ROW - 6}" class="tick" text-anchor="end">{format_time(last)}</text>')
    for before, words in ((3600, "1 h"), (60, "1 min"), (1, "1 s")):
        if last - first > 2 * before:
            x = _time_to_x(last - before, first, last)
            rows.append(f'<line x1="{x:.1f}" y1="{_ROW}" x2="{x:.1f}" y2="{height - 4}" class="grid"/>')
            rows.append(f'<text x="{x:.1f}" y="{height - 4}" class="tick" text-anchor="middle">−{words}</text>')
    return rows


def _render_moment(moment: Moment, x: float, y: float) -> list[str]:
    """Render one row: the place on the left, a mark on the axis, the event next to it."""
    colour = _COLOURS[moment.role]
    is_hollow = moment.time_s is None
    fill = f'fill="none" stroke="{colour}" stroke-width="2"' if is_hollow else f'fill="{colour}"'
    place = format_place(moment.place)
    side = ("end", -10) if x > _WIDTH * 0.62 else ("start", 10)
    label = _escape_text(moment.what[:74] + ("…" if len(moment.what) > 74 else ""))
    return [
        f'<text x="0" y="{y + 4:.1f}" class="place">{_escape_text(place[:36])}</text>',
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" {fill}><title>{format_time(moment.time_s) or "no time on the line"} '
        f"{_escape_text(moment.what)}</title></circle>",
        f'<text x="{x + side[1]:.1f}" y="{y + 4:.1f}" text-anchor="{side[0]}" class="what">{label}</text>',
    ]


def render_ranks_svg(report: Report) -> str:
    """Render all ranks as a map: root, behind, silent, waiting, or ended; empty for fewer than two."""
    ranks = {each.rank: each for each in report.evidence.ranks if each.rank is not None}
    parted = report.divergence
    known = set(ranks)
    if parted is not None:
        known |= {*parted.behind, *parted.never_arrived, *parted.waiting}
    if len(known) < 2 or max(known) >= _MAX_CELLS:
        return ""
    world = max(known) + 1
    columns = 64 if world > 256 else 32 if world > 64 else 16 if world > 16 else 8
    lines = math.ceil(world / columns)
    width, height = columns * _CELL + 60, lines * _CELL + 6
    cells = [_render_cell(rank, columns, report, ranks.get(rank)) for rank in range(world)]
    labels = [
        f'<text x="50" y="{line * _CELL + 11}" text-anchor="end" class="tick">{line * columns}</text>'
        for line in range(lines)
    ]
    return (
        f'<svg class="ranks" viewBox="0 0 {width} {height}" width="{width}" role="img" aria-label="ranks" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(labels)}{"".join(cells)}</svg>'
    )


def _render_cell(rank: int, columns: int, report: Report, progress: RankProgress | None) -> str:
    """Return one rank."""
    kind, words = _classify_rank(rank, report, progress)
    x, y = 56 + rank % columns * _CELL, rank // columns * _CELL
    last = f"; last: {progress.last_text[:120]}" if progress is not None and progress.last_text else ""
    return (
        f'<rect x="{x}" y="{y}" width="{_CELL - 2}" height="{_CELL - 2}" class="rank {kind}">'
        f"<title>{_escape_text(f'rank {rank}: {words}{last}')}</title></rect>"
    )


def _find_reporting_ranks(root: Cause) -> frozenset[int | None]:
    """Return the ranks that report a failure of a node or link, where they are few: it has no rank of its own."""
    ranks = frozenset(finding.place.rank for finding in root.findings if finding.role is Role.ROOT) - {None}
    return ranks if root.where.node and root.where.rank is None and len(ranks) <= _MAX_REPORTING_RANKS else frozenset()


def _classify_rank(rank: int, report: Report, progress: RankProgress | None) -> tuple[str, str]:
    """Return the role of a rank in this failure."""
    parted, root = report.divergence, report.root
    if root is not None and rank in (root.where.rank, *_find_reporting_ranks(root)):
        return "root", "where it began"
    if parted is not None:
        for kind, members, words in (
            ("behind", parted.behind, "behind the others"),
            ("silent", parted.never_arrived, "never told that it waits"),
            ("waiting", parted.waiting, "waited"),
        ):
            if rank in members:
                return kind, words
    if progress is None:
        return "absent", "no log"
    return ("well", "ended well") if progress.ended_well else ("ended", "ended")


@cache
def _load_template() -> Any:
    """Return the page's template."""
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        raise UnavailableError("HTML reports need Jinja2", hint="pip install opsk[postmortem]") from error
    text = (files("opsk.postmortem.report") / "report.html.jinja").read_text("utf-8")
    return Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True).from_string(
        text
    )


def render_html(report: Report) -> str:
    """Return a report as one HTML file.

    Raises
    ------
    UnavailableError
        Jinja2 is not installed.
    """
    from markupsafe import Markup

    page: str = _load_template().render(
        **_build_context(report),
        timeline=Markup(render_timeline_svg((*report.before, *list_moments(report)))),
        ranks=Markup(render_ranks_svg(report)),
    )
    return page


def _build_context(report: Report) -> dict[str, Any]:
    """Return the values of the template, all texts printable."""
    root = report.root
    return {
        "title": _format_title(report),
        "subtitle": _format_subtitle(report),
        "owner": sanitise(describe_owner(report)),
        "memory": sanitise(format_memory(report.facts)),
        "root": _cause_context(root) if root is not None else None,
        "nothing": "Nothing failed." if report.state == "ended well" else "No cause can be told from what there is.",
        "why": [sanitise(step) for step in root.why] if root is not None else [],
        "actions": [
            {"audience": each.audience.value, "what": sanitise(each.what), "command": sanitise(each.command)}
            for each in report.actions
        ],
        "evidence": [
            _evidence_context(finding) for finding in (root.lines if root is not None else ())[:_MAX_EVIDENCE]
        ],
        "alternatives": [_cause_context(cause) for cause in report.alternatives],
        "missing": [
            {"what": sanitise(each.what), "why": sanitise(each.why), "how": sanitise(each.how)}
            for each in report.missing
        ],
        "recurrence": [
            {"subject": sanitise(each.subject), "failures": each.failures, "days": each.days, "jobs": each.jobs,
             "text": sanitise(each.text)}
            for each in report.recurrence
        ],
        "facts": [
            (sanitise(name.replace("_", " ")), _format_value(name, value)) for name, value in report.facts.items()
        ],
        "skews": ", ".join(f"{sanitise(skew.node)} {skew.ahead_s:+.1f} s" for skew in report.skews[:8] if skew.ahead_s),
        "collective": f"Ranks parted in {divergence}." if (divergence := format_divergence(report.divergence)) else "",
        "notes": [sanitise(each) for each in report.evidence.notes[:_MAX_ROWS]],
        "unreadable": [sanitise(each) for each in report.evidence.unreadable[:_MAX_ROWS]],
        "gathered": "Looked at: " + (", ".join(
            f"{sanitise(name)} ({sanitise(what)})" for name, what in report.evidence.gathered.items()) or "nothing"),
    }  # fmt: skip


def _format_title(report: Report) -> str:
    """Return the headline."""
    job = report.job
    name = f"Job {sanitise(job.job_id, 40)}" if job is not None and job.job_id else "Post-mortem"
    return f"{name}: {sanitise(report.state, 60)}"


def _format_subtitle(report: Report) -> str:
    """Return job, user, nodes and times."""
    job = report.job
    if job is None:
        return ""
    parts = [
        sanitise(job.name, 80),
        f"user {sanitise(job.user, 40)}" if job.user else "",
        f"{len(job.nodes)} nodes",
    ]
    parts += [f"{format_time(job.start_s)} to {format_time(job.end_s)} UTC" if job.start_s is not None else ""]
    return " · ".join(part for part in parts if part)


def _cause_context(cause: Cause) -> dict[str, Any]:
    """Return one cause."""
    return {
        "class": cause.failure.value, "what": sanitise(cause.what), "where": format_place(cause.where),
        "percent": round(100 * cause.confidence),
    }  # fmt: skip


def _evidence_context(finding: Finding) -> dict[str, Any]:
    """Return one line of evidence of the cause."""
    return {
        "source": sanitise(format_source(finding), 220),
        "text": sanitise(finding.text),
        "count": finding.count,
    }


def _format_value(name: str, value: float) -> str:
    """Return a number with its unit."""
    return format_size(value) if name.endswith("_bytes") else f"{value:,.6g}"

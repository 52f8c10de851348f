"""Renders a report as one HTML file: no scripts, no outside assets, all foreign text escaped.

Jinja2 escapes what goes into the page; the drawings escape their own texts and are inserted as they are.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from opsk.errors import UnavailableError
from opsk.postmortem.report.svg import render_ranks_svg, render_timeline_svg
from opsk.postmortem.report.text import format_divergence, format_place, format_size, format_time, sanitise
from opsk.postmortem.values import Cause, Finding, Report

_MAX_EVIDENCE = 24
_MAX_ROWS = 40


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
        timeline=Markup(render_timeline_svg(report.timeline)),
        ranks=Markup(render_ranks_svg(report)),
    )
    return page


def _build_context(report: Report) -> dict[str, Any]:
    """Return the values of the template, all texts printable."""
    root = report.root
    return {
        "title": _format_title(report),
        "subtitle": _format_subtitle(report),
        "root": _cause_context(root) if root is not None else None,
        "nothing": "Nothing failed." if report.state == "ended well" else "No cause can be told from what there is.",
        "why": [sanitise(step) for step in root.why] if root is not None else [],
        "actions": [
            {"audience": each.audience.value, "what": sanitise(each.what), "command": sanitise(each.command)}
            for each in report.actions
        ],
        "evidence": [
            _evidence_context(finding) for finding in (root.findings if root is not None else ())[:_MAX_EVIDENCE]
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
        "source": sanitise(finding.source, 200),
        "line": finding.line,
        "text": sanitise(finding.text),
        "count": finding.count,
    }


def _format_value(name: str, value: float) -> str:
    """Return a number with its unit."""
    return format_size(value) if name.endswith("_bytes") else f"{value:,.6g}"

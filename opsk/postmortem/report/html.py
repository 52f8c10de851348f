"""How does a report read in a browser? One file: no scripts, no outside assets, every text of others escaped.

Jinja2 escapes what goes into the page; the drawings escape their own texts and are put in as they are.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from opsk.errors import UnavailableError
from opsk.postmortem.report.drawing import ranks_svg, timeline_svg
from opsk.postmortem.report.text import clock, parted_words, place_words, shown, size_words
from opsk.postmortem.values import Cause, Report, Sign

_MOST_EVIDENCE = 24
_MOST_ROWS = 40


@cache
def _template() -> Any:
    """Return the page's template."""
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        raise UnavailableError("HTML reports need Jinja2", hint="pip install opsk[postmortem]") from error
    text = (files("opsk.postmortem.report") / "report.html.jinja").read_text("utf-8")
    return Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True).from_string(
        text
    )


def html_report(report: Report) -> str:
    """Return a report as one HTML file.

    Raises
    ------
    UnavailableError
        Jinja2 is not installed.
    """
    from markupsafe import Markup

    page: str = _template().render(
        **_facts(report),
        timeline=Markup(timeline_svg(report.timeline)),
        ranks=Markup(ranks_svg(report)),
    )
    return page


def _facts(report: Report) -> dict[str, Any]:
    """Return what the template shows, every text printable."""
    root = report.root
    return {
        "title": _title(report),
        "subtitle": _subtitle(report),
        "root": _cause(root) if root is not None else None,
        "nothing": "Nothing failed." if report.state == "ended well" else "No cause can be told from what there is.",
        "why": [shown(step) for step in root.why] if root is not None else [],
        "actions": [
            {"audience": each.audience.value, "what": shown(each.what), "command": shown(each.command)}
            for each in report.actions
        ],
        "evidence": [_evidence(sign) for sign in (root.signs if root is not None else ())[:_MOST_EVIDENCE]],
        "alternatives": [_cause(cause) for cause in report.alternatives],
        "missing": [
            {"what": shown(each.what), "why": shown(each.why), "how": shown(each.how)} for each in report.missing
        ],
        "recurrence": [
            {"subject": shown(each.subject), "failures": each.failures, "days": each.days, "jobs": each.jobs,
             "text": shown(each.text)}
            for each in report.recurrence
        ],
        "facts": [(shown(name.replace("_", " ")), _value(name, value)) for name, value in report.facts.items()],
        "skews": ", ".join(f"{shown(skew.node)} {skew.ahead_s:+.1f} s" for skew in report.skews[:8] if skew.ahead_s),
        "collective": f"Ranks parted in {told}." if (told := parted_words(report.divergence)) else "",
        "unreadable": [shown(each) for each in report.evidence.unreadable[:_MOST_ROWS]],
        "gathered": "Looked at: " + (", ".join(
            f"{shown(name)} ({shown(what)})" for name, what in report.evidence.gathered.items()) or "nothing"),
    }  # fmt: skip


def _title(report: Report) -> str:
    """Return the headline."""
    job = report.job
    name = f"Job {shown(job.job_id, 40)}" if job is not None and job.job_id else "Post-mortem"
    return f"{name}: {shown(report.state, 60)}"


def _subtitle(report: Report) -> str:
    """Return who ran what when."""
    job = report.job
    if job is None:
        return ""
    parts = [shown(job.name, 80), f"user {shown(job.user, 40)}" if job.user else "", f"{len(job.nodes)} nodes"]
    parts += [f"{clock(job.start_s)} to {clock(job.end_s)} UTC" if job.start_s is not None else ""]
    return " · ".join(part for part in parts if part)


def _cause(cause: Cause) -> dict[str, Any]:
    """Return one cause."""
    return {
        "class": cause.failure.value, "what": shown(cause.what), "where": place_words(cause.where),
        "percent": round(100 * cause.confidence),
    }  # fmt: skip


def _evidence(sign: Sign) -> dict[str, Any]:
    """Return one line that the cause stands on."""
    return {"source": shown(sign.source, 200), "line": sign.line, "text": shown(sign.text), "count": sign.count}


def _value(name: str, value: float) -> str:
    """Return a number with its unit."""
    return size_words(value) if name.endswith("_bytes") else f"{value:,.6g}"

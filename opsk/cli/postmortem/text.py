"""Prints a report in a terminal: the cause, the reasoning, the timeline, missing evidence, and actions."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from opsk.postmortem.reasoning.places import describe_place
from opsk.postmortem.report.text import format_divergence, format_memory
from opsk.postmortem.values import Cause, Moment, Report
from opsk.text import escape

_MAX_MOMENTS = 14


def print_report(report: Report) -> None:
    """Print a report."""
    for line in format_report(report):
        click.echo(line)


def format_report(report: Report) -> list[str]:
    """Return the lines of a report; all foreign text is escaped."""
    shown = [
        *_format_head(report),
        *_format_reasons(report.root),
        *_format_alternatives(report),
        *_format_memory(report),
        *_format_divergence(report),
        *_format_timeline(report),
    ]
    return [*shown, *_format_missing(report), *_format_actions(report), *_format_unreadable(report)]


def _format_head(report: Report) -> list[str]:
    """Return state and cause."""
    name = f"job {escape(report.job.job_id)}  " if report.job is not None and report.job.job_id else ""
    first = f"{name}{escape(report.state)}"
    if report.root is None:
        nothing = {
            "ended well": "nothing failed",
            "COMPLETED": "nothing failed",
            "unknown": "nothing tells of a failure",
        }
        return [first, nothing.get(report.state, "no cause can be told from what there is")]
    root = report.root
    return [
        first,
        f"cause   {root.failure}, {root.confidence:.0%} sure: {escape(root.what)}",
        f"where   {escape(describe_place(root.where))}",
    ]


def _format_reasons(root: Cause | None) -> list[str]:
    """Return the reasoning for the cause, and its evidence."""
    if root is None:
        return []
    steps = [f"        {escape(step)}" for step in root.why]
    seen = [
        f"        {escape(finding.source)}:{finding.line}: {escape(finding.text[:160])}"
        for finding in root.findings[:3]
    ]
    return ["why", *steps, *(["evidence", *seen] if seen else [])]


def _format_alternatives(report: Report) -> list[str]:
    """Return the alternatives."""
    if not report.alternatives:
        return []
    rows = []
    for cause in report.alternatives:
        where = escape(describe_place(cause.where))
        rows.append(f"        {cause.confidence:4.0%}  {cause.failure}: {escape(cause.what[:110])} ({where})")
    return ["else", *rows]


def _format_memory(report: Report) -> list[str]:
    """Return the facts on exhausted memory."""
    text = format_memory(report.facts)
    return [f"memory  {escape(text)}"] if text else []


def _format_divergence(report: Report) -> list[str]:
    """Return where the ranks diverged."""
    text = format_divergence(report.divergence)
    return [f"hang    {escape(text)}"] if text else []


def _format_timeline(report: Report) -> list[str]:
    """Return the first moments."""
    if not report.timeline:
        return []
    rows = [f"        {_format_moment(moment)}" for moment in report.timeline[:_MAX_MOMENTS]]
    left = len(report.timeline) - _MAX_MOMENTS
    return ["when", *rows, *([f"        and {left} more: --json, --md or --html"] if left > 0 else [])]


def _format_moment(moment: Moment) -> str:
    """Return one moment."""
    when = format_time(moment.time_s)
    place = describe_place(moment.place)
    where = "" if place == "the job" else f"  ({escape(place)})"
    return f"{when}  {escape(moment.what[:110])}{where}"


def format_time(time_s: float | None) -> str:
    """Format a time for people, in UTC as assumed for the logs."""
    if time_s is None or not 0 <= time_s < 1e11:
        return "time unknown           "
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:23]


def _format_missing(report: Report) -> list[str]:
    """Return the missing evidence."""
    rows = []
    for item in report.missing:
        how = f" ({escape(item.how)})" if item.how else ""
        rows.append(f"        {escape(item.what)}: {escape(item.why)}{how}")
    return ["missing", *rows] if rows else []


def _format_actions(report: Report) -> list[str]:
    """Return the actions."""
    rows = []
    for action in report.actions:
        rows.append(f"        {action.audience}: {escape(action.what)}")
        if action.command:
            rows.append(f"            {escape(action.command)}")
    return ["do", *rows] if rows else []


def _format_unreadable(report: Report) -> list[str]:
    """Return the unreadable files."""
    return [f"unread  {escape(problem)}" for problem in report.evidence.unreadable]

"""How does a report look in a terminal? The cause first, then why, what happened when, what is missing, what to do."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from opsk.postmortem.reasoning.places import words
from opsk.postmortem.report.text import memory_words, parted_words
from opsk.postmortem.values import Cause, Moment, Report
from opsk.text import escape

_MOMENTS = 14


def picture(report: Report) -> None:
    """Print a report."""
    for line in lines(report):
        click.echo(line)


def lines(report: Report) -> list[str]:
    """Return the lines of a report; every text of others is harmless."""
    said = [
        *_head(report),
        *_why(report.root),
        *_others(report),
        *_memory(report),
        *_collective(report),
        *_timeline(report),
    ]
    return [*said, *_missing(report), *_actions(report), *_unreadable(report)]


def _head(report: Report) -> list[str]:
    """Return what it was."""
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
        f"where   {escape(words(root.where))}",
    ]


def _why(root: Cause | None) -> list[str]:
    """Return the steps to the cause, and its evidence."""
    if root is None:
        return []
    steps = [f"        {escape(step)}" for step in root.why]
    seen = [f"        {escape(sign.source)}:{sign.line}: {escape(sign.text[:160])}" for sign in root.signs[:3]]
    return ["why", *steps, *(["evidence", *seen] if seen else [])]


def _others(report: Report) -> list[str]:
    """Return the alternatives."""
    if not report.alternatives:
        return []
    rows = []
    for cause in report.alternatives:
        where = escape(words(cause.where))
        rows.append(f"        {cause.confidence:4.0%}  {cause.failure}: {escape(cause.what[:110])} ({where})")
    return ["else", *rows]


def _memory(report: Report) -> list[str]:
    """Return what is known of memory that ran out."""
    told = memory_words(report.facts)
    return [f"memory  {escape(told)}"] if told else []


def _collective(report: Report) -> list[str]:
    """Return where ranks parted."""
    told = parted_words(report.divergence)
    return [f"hang    {escape(told)}"] if told else []


def _timeline(report: Report) -> list[str]:
    """Return the first moments."""
    if not report.timeline:
        return []
    rows = [f"        {_row(moment)}" for moment in report.timeline[:_MOMENTS]]
    left = len(report.timeline) - _MOMENTS
    return ["when", *rows, *([f"        and {left} more: --json, --md or --html"] if left > 0 else [])]


def _row(moment: Moment) -> str:
    """Return one moment."""
    at = clock(moment.time_s)
    place = words(moment.place)
    where = "" if place == "the job" else f"  ({escape(place)})"
    return f"{at}  {escape(moment.what[:110])}{where}"


def clock(time_s: float | None) -> str:
    """Return a time as people read it, in UTC as the logs are taken to be."""
    if time_s is None or not 0 <= time_s < 1e11:
        return "time unknown           "
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:23]


def _missing(report: Report) -> list[str]:
    """Return what would settle it."""
    rows = []
    for each in report.missing:
        how = f" ({escape(each.how)})" if each.how else ""
        rows.append(f"        {escape(each.what)}: {escape(each.why)}{how}")
    return ["missing", *rows] if rows else []


def _actions(report: Report) -> list[str]:
    """Return what to do."""
    rows = []
    for each in report.actions:
        rows.append(f"        {each.audience}: {escape(each.what)}")
        if each.command:
            rows.append(f"            {escape(each.command)}")
    return ["do", *rows] if rows else []


def _unreadable(report: Report) -> list[str]:
    """Return what could not be read."""
    return [f"unread  {escape(problem)}" for problem in report.evidence.unreadable]

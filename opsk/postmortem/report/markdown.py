"""Renders a report as Markdown, for a ticket or a chat."""

from __future__ import annotations

import re

from opsk.postmortem.reasoning.owners import describe_owner
from opsk.postmortem.report.text import (
    format_divergence,
    format_memory,
    format_percent,
    format_place,
    format_source,
    format_time,
    list_moments,
    sanitise,
)
from opsk.postmortem.values import Cause, Report

_MARKUP = re.compile(r"([\\`*_{}\[\]<>()#+!|~$&-])")
_LINKS = re.compile(r"(?i)(https?|ftp|javascript|data|file|www)([:.])")
_MOMENTS = 30


def escape_markdown(text: str) -> str:
    """Return hostile text so that Markdown shows it to the letter; nothing in it becomes a link."""
    return _LINKS.sub(r"\1\\\2", _MARKUP.sub(r"\\\1", sanitise(text)))


def format_code(text: str) -> str:
    """Return hostile text as code: within more backticks than it holds."""
    plain = sanitise(text)
    longest = max((len(run) for run in re.findall(r"`+", plain)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{fence}{pad}{plain}{pad}{fence}" if plain else "` `"


def render_markdown(report: Report) -> str:
    """Return a report as Markdown."""
    job = report.job
    name = f"Job {escape_markdown(job.job_id)}" if job is not None and job.job_id else "Job"
    parts = [
        f"# {name}: {escape_markdown(report.state)}",
        "",
        *([f"Whose problem: {escape_markdown(owner)}", ""] if (owner := describe_owner(report)) else []),
        *_render_root(report),
        *_render_why(report.root),
        *_render_alternatives(report),
    ]
    divergence, memory = format_divergence(report.divergence), format_memory(report.facts)
    parts += ["## Memory", "", escape_markdown(memory), ""] if memory else []
    parts += [
        *(["## Where ranks parted", "", escape_markdown(divergence), ""] if divergence else []),
        *_render_timeline(report),
        *_render_missing(report),
        *_render_actions(report),
        *_render_evidence(report.root),
        *_render_unreadable(report),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _render_root(report: Report) -> list[str]:
    """Return the cause."""
    root = report.root
    if root is None:
        if describe_owner(report):
            return []
        return ["No cause was found." if report.state != "ended well" else "Nothing failed.", ""]
    return [
        f"**{root.failure.value}** ({format_percent(root.confidence)} sure): {escape_markdown(root.what)}",
        "",
        f"Where: {escape_markdown(format_place(root.where))}",
        "",
    ]


def _render_why(root: Cause | None) -> list[str]:
    """Return the steps to the cause."""
    return (
        ["## Why", "", *(f"- {escape_markdown(step)}" for step in root.why), ""]
        if root is not None and root.why
        else []
    )


def _render_alternatives(report: Report) -> list[str]:
    """Render the alternatives."""
    rows = []
    for cause in report.alternatives:
        where = escape_markdown(format_place(cause.where))
        rows.append(
            f"- {format_percent(cause.confidence)} {cause.failure.value}: {escape_markdown(cause.what)}, {where}"
        )
    return ["## What else it may have been", "", *rows, ""] if rows else []


def _render_timeline(report: Report) -> list[str]:
    """Render the timeline."""
    moments = (*report.before, *list_moments(report))[:_MOMENTS]
    is_timed = any(moment.time_s is not None for moment in moments)
    rows = [
        (f"| {format_time(moment.time_s) or 'unknown'} " if is_timed else "")
        + f"| {escape_markdown(moment.what)} | {escape_markdown(format_place(moment.place))} |"
        for moment in moments
    ]
    if not rows:
        return []
    if not is_timed:
        return ["## What happened, in the order of the log", "", "| what | where |", "| --- | --- |", *rows, ""]
    return ["## What happened when (UTC)", "", "| when | what | where |", "| --- | --- | --- |", *rows, ""]


def _render_missing(report: Report) -> list[str]:
    """Render the missing evidence."""
    rows = [
        f"- {escape_markdown(each.what)}: {escape_markdown(each.why)}. {escape_markdown(each.how)}".rstrip()
        for each in report.missing
    ]
    return ["## What is missing", "", *rows, ""] if rows else []


def _render_actions(report: Report) -> list[str]:
    """Render the actions."""
    rows = [
        f"- {each.audience.value}: {escape_markdown(each.what)}"
        + (f" {format_code(each.command)}" if each.command else "")
        for each in report.actions
    ]
    return ["## What to do", "", *rows, ""] if rows else []


def _render_evidence(root: Cause | None) -> list[str]:
    """Render the evidence of the cause."""
    if root is None or not root.findings:
        return []
    rows = [f"- {format_code(format_source(finding))}: {format_code(finding.text)}" for finding in root.lines[:12]]
    return ["## Evidence", "", *rows, ""]


def _render_unreadable(report: Report) -> list[str]:
    """Render the evidence that could not be read."""
    notes = [f"- {escape_markdown(each)}" for each in report.evidence.notes]
    rows = [f"- {escape_markdown(each)}" for each in report.evidence.unreadable]
    return [
        *(["## Notes on the evidence", "", *notes, ""] if notes else []),
        *(["## What could not be read", "", *rows, ""] if rows else []),
    ]

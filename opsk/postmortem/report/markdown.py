"""How does a report read as Markdown, for a ticket or a chat?"""

from __future__ import annotations

import re

from opsk.postmortem.report.text import clock, memory_words, parted_words, percent, place_words, shown
from opsk.postmortem.values import Cause, Report

_MARKUP = re.compile(r"([\\`*_{}\[\]<>()#+!|~$&-])")
_LINKS = re.compile(r"(?i)(https?|ftp|javascript|data|file|www)([:.])")
_MOMENTS = 30


def escaped(text: str) -> str:
    """Return hostile text so that Markdown shows it to the letter; nothing in it becomes a link."""
    return _LINKS.sub(r"\1\\\2", _MARKUP.sub(r"\\\1", shown(text)))


def code(text: str) -> str:
    """Return hostile text as code: within more backticks than it holds."""
    plain = shown(text)
    longest = max((len(run) for run in re.findall(r"`+", plain)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{fence}{pad}{plain}{pad}{fence}" if plain else "` `"


def markdown_report(report: Report) -> str:
    """Return a report as Markdown."""
    job = report.job
    name = f"Job {escaped(job.job_id)}" if job is not None and job.job_id else "Job"
    parts = [f"# {name}: {escaped(report.state)}", "", *_root(report), *_why(report.root), *_alternatives(report)]
    told, memory = parted_words(report.divergence), memory_words(report.facts)
    parts += ["## Memory", "", escaped(memory), ""] if memory else []
    parts += [
        *(["## Where ranks parted", "", escaped(told), ""] if told else []),
        *_timeline(report),
        *_missing(report),
        *_actions(report),
        *_evidence(report.root),
        *_unreadable(report),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _root(report: Report) -> list[str]:
    """Return the cause."""
    root = report.root
    if root is None:
        return ["No cause was found." if report.state != "ended well" else "Nothing failed.", ""]
    return [
        f"**{root.failure.value}** ({percent(root.confidence)} sure): {escaped(root.what)}",
        "",
        f"Where: {escaped(place_words(root.where))}",
        "",
    ]


def _why(root: Cause | None) -> list[str]:
    """Return the steps to the cause."""
    return ["## Why", "", *(f"- {escaped(step)}" for step in root.why), ""] if root is not None and root.why else []


def _alternatives(report: Report) -> list[str]:
    """Return what else it may have been."""
    rows = []
    for cause in report.alternatives:
        where = escaped(place_words(cause.where))
        rows.append(f"- {percent(cause.confidence)} {cause.failure.value}: {escaped(cause.what)}, {where}")
    return ["## What else it may have been", "", *rows, ""] if rows else []


def _timeline(report: Report) -> list[str]:
    """Return what happened when."""
    rows = [
        f"| {clock(moment.time_s) or 'unknown'} | {escaped(moment.what)} | {escaped(place_words(moment.place))} |"
        for moment in report.timeline[:_MOMENTS]
    ]
    return (
        ["## What happened when (UTC)", "", "| when | what | where |", "| --- | --- | --- |", *rows, ""] if rows else []
    )


def _missing(report: Report) -> list[str]:
    """Return what would settle it."""
    rows = [f"- {escaped(each.what)}: {escaped(each.why)}. {escaped(each.how)}".rstrip() for each in report.missing]
    return ["## What is missing", "", *rows, ""] if rows else []


def _actions(report: Report) -> list[str]:
    """Return what to do."""
    rows = [
        f"- {each.audience.value}: {escaped(each.what)}" + (f" {code(each.command)}" if each.command else "")
        for each in report.actions
    ]
    return ["## What to do", "", *rows, ""] if rows else []


def _evidence(root: Cause | None) -> list[str]:
    """Return the lines that the cause stands on."""
    if root is None or not root.signs:
        return []
    rows = [f"- {code(f'{sign.source}:{sign.line}')}: {code(sign.text)}" for sign in root.signs[:12]]
    return ["## Evidence", "", *rows, ""]


def _unreadable(report: Report) -> list[str]:
    """Return what could not be read."""
    rows = [f"- {escaped(each)}" for each in report.evidence.unreadable]
    return ["## What could not be read", "", *rows, ""] if rows else []

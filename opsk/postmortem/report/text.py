"""Formats times, places and foreign text for a report; all foreign text is printable afterwards."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from opsk.postmortem.values import Divergence, Finding, Moment, Origin, Place, Report
from opsk.text import escape
from opsk.units import GIB

MAX_CHARS = 400
_MAX_TIME_S = 1e11
_TERM = re.compile(r"predicted_\w+_bytes")


def sanitise(text: str, longest: int = MAX_CHARS) -> str:
    """Return hostile text in printable characters, truncated; it still needs escaping for its target."""
    return escape(text[:longest] + ("…" if len(text) > longest else ""))


def format_time(time_s: float | None) -> str:
    """Return a time in UTC to the millisecond; empty where it is not known."""
    if time_s is None or not 0 <= time_s < _MAX_TIME_S:
        return ""
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:23]


def list_moments(report: Report) -> tuple[Moment, ...]:
    """Return what a timeline shows of a failure; nothing where that would only repeat the cause."""
    root, moments = report.root, report.timeline
    repeats = root is not None and all(
        each.time_s is None and each.what == root.what and each.place == root.where for each in moments
    )
    return () if repeats else tuple(moments)


def format_place(place: Place) -> str:
    """Return a place as harmless text."""
    from opsk.postmortem.reasoning.places import describe_place

    return sanitise(describe_place(place))


def format_source(finding: Finding) -> str:
    """Return where a finding stands: file and line, or the byte of a job's output where the line is not known."""
    if finding.has_line:
        return f"{finding.source}:{finding.line}"
    return finding.source if finding.origin is Origin.KERNEL else f"{finding.source} (byte {finding.order})"


def format_divergence(divergence: Divergence | None) -> str:
    """Return where ranks diverged, who is behind and who did not arrive, in a sentence; empty where none waited."""
    if divergence is None:
        return ""
    number = f" number {divergence.seq}" if divergence.seq is not None else ""
    parts = [f"{len(divergence.waiting)} rank{'' if len(divergence.waiting) == 1 else 's'} waited"]
    parts += [f"behind: {_format_lagging(divergence)}"] if divergence.behind else []
    parts += [f"did not come: {name_ranks(divergence.never_arrived)}"] if divergence.never_arrived else []
    parts += [f"no line there is of {name_ranks(divergence.unseen)}"] if divergence.unseen else []
    return f"{sanitise(divergence.op, 40) or 'a collective'}{number}: {'; '.join(parts)}"


def _format_lagging(divergence: Divergence) -> str:
    """Return the ranks behind, and how far."""
    text = name_ranks(divergence.behind)
    if divergence.completed is None or divergence.lowest_completed is None:
        return text
    if divergence.lowest_completed >= divergence.completed:
        return text
    return f"{text} (completed {divergence.lowest_completed}, the others {divergence.completed})"


def name_ranks(ranks: Sequence[int]) -> str:
    """Return some ranks, ``rank 5`` or ``ranks 0-4, 6``, and how many more."""
    from opsk.postmortem.reasoning.places import format_ranks

    return f"rank{'' if len(ranks) == 1 else 's'} {format_ranks(ranks)}"


def format_percent(ratio: float) -> str:
    """Return a probability as people read it."""
    return f"{100 * ratio:.0f} %"


def format_memory(facts: Mapping[str, float]) -> str:
    """Return the facts about an out-of-memory error in a sentence: when, and sizes; empty where there are none."""
    sizes = [
        f"{words} {format_size(facts[name])}"
        for name, words in (
            ("asked_bytes", "asked for"),
            ("largest_asked_bytes", "at most"),
            ("free_bytes", "free"),
            ("allocated_bytes", "held by PyTorch"),
            ("reserved_bytes", "more reserved by it"),
            ("in_use_bytes", "in use"),
            ("capacity_bytes", "the GPU has"),
            ("predicted_bytes", "predicted"),
        )
        if name in facts
    ]
    when = _format_step(facts) if sizes else ""
    terms = [
        f"{sanitise(name.removeprefix('predicted_').removesuffix('_bytes'), 40)} {format_size(facts[name])}"
        for name in facts
        if _TERM.fullmatch(name)
    ]
    return when + ", ".join(sizes) + (f" (most of it: {', '.join(terms)})" if terms else "")


def _format_step(facts: Mapping[str, float]) -> str:
    """Return which step ran out of memory."""
    last = facts.get("last_iteration")
    return "before the first step was reported: " if last is None else f"in the step after {last:.0f}: "


def format_size(size_bytes: float) -> str:
    """Return bytes in GiB."""
    return f"{size_bytes / GIB:.2f} GiB"

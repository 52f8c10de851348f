"""Prints the findings of site checks for people, the worst first, each with its place and a hint."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

import click

from opsk.app.doctor.finding import Finding, Level
from opsk.text import escape

WIDTH = 100
_INDENT = " " * 4
_MARKS = {Level.WRONG: "✗", Level.UNKNOWN: "?", Level.NOTE: "·", Level.SOUND: "✓"}


def print_findings(findings: Sequence[Finding], *, everything: bool) -> None:
    """Print the findings, the worst first, and the count of each level."""
    for level, mark in _MARKS.items():
        for finding in findings:
            if finding.level is level and (everything or level is not Level.SOUND):
                _print_finding(finding, mark)
    counts = {level: sum(finding.level is level for finding in findings) for level in _MARKS}
    more = "" if everything or not counts[Level.SOUND] else " (shown with --all)"
    verdict = f"{counts[Level.WRONG]} wrong" if counts[Level.WRONG] else "nothing wrong"
    could = f", {counts[Level.UNKNOWN]} could not be checked" if counts[Level.UNKNOWN] else ""
    click.echo(f"{verdict}{could}, {counts[Level.SOUND]} sound{more}")


def _print_finding(finding: Finding, mark: str) -> None:
    head = f"{mark} {finding.check}: {escape(finding.what)}"
    lines = wrap(head, WIDTH, subsequent_indent=_INDENT, break_long_words=False, break_on_hyphens=False)
    if finding.where and finding.where not in finding.what:
        lines.append(f"{_INDENT}at {escape(finding.where)}")
    if finding.hint:
        first, rest = f"{_INDENT}→ ", f"{_INDENT}  "
        lines += wrap(
            escape(finding.hint), WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False,
            break_on_hyphens=False,
        )  # fmt: skip
    click.echo("\n".join(lines))

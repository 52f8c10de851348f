"""Renders what earlier runs of the program used, after the advice or instead of it."""

from __future__ import annotations

from opsk.history.findings import Finding, FindingKind, History
from opsk_jobcheck.advice.layout import Line, Weight, to_ascii

_LABEL = "history"
_SHOWN = {"short": 1, "default": 2}
"""Number of sentences by detail; all where it is not named."""


def history_lines(history: History, detail: str, *, ascii_only: bool = False) -> tuple[str, ...]:
    """Return the lines without prefix: memory first, then what warns, the rest only in detail.

    Parameters
    ----------
    detail
        ``short``, ``default`` or ``long``.
    """
    chosen = _select(history.findings, _SHOWN.get(detail, len(history.findings)))
    rows: list[str] = []
    for index, finding in enumerate(chosen):
        text = f"! {finding.text}" if finding.is_warning else finding.text
        rows += Line(label="" if index else _LABEL, text=text, weight=Weight.OTHER).rows()
    return tuple(to_ascii(row) if ascii_only else row for row in rows)


def _select(findings: tuple[Finding, ...], number: int) -> list[Finding]:
    """Return so many findings in their order: those that warn, then memory, then the others."""
    ranked = sorted(findings, key=lambda finding: (not finding.is_warning, finding.kind is not FindingKind.MEMORY))
    chosen = ranked[:number]
    return [finding for finding in findings if any(finding is other for other in chosen)]

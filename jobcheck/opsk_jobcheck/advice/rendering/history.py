"""Renders what earlier runs of the program used, after the advice or instead of it."""

from __future__ import annotations

from opsk.history.findings import Finding, FindingKind, History
from opsk_jobcheck.advice.layout import Line, Weight, to_ascii

_LABEL = "history"


def history_lines(history: History, detail: str, *, is_alone: bool = True, ascii_only: bool = False) -> tuple[str, ...]:
    """Return the lines without prefix: what warns, then memory; the rest only in the long form.

    Parameters
    ----------
    detail
        ``short``, ``default`` or ``long``.
    is_alone
        There is no other advice; with other advice, one sentence is added.
    """
    number = len(history.findings) if detail == "long" else 3 if is_alone and detail != "short" else 1
    chosen = _select(history.findings, number)
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

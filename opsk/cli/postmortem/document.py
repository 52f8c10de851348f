"""Builds the JSON document of ``opsk postmortem``; its keys are part of the contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opsk.postmortem.reasoning.actions import find_meaning
from opsk.postmortem.reasoning.places import describe_place
from opsk.postmortem.values import Cause, Finding, Moment, Origin, Place, Report, Role

KINDS = {"kernel.xid": "xid", "torch.watchdog_timeout": "nccl_watchdog"}
"""Kinds of evidence with a separate name; all others are named after their signature."""
_NUMBERS = ("code", "seq", "enqueued", "completed", "numel_in", "numel_out", "timeout_ms", "ran_ms", "exit", "status")
MAX_EVIDENCE = 2000
_ORDER = {Role.ROOT: 0, Role.CONFIRMATION: 1, Role.CASCADE: 2}


def build_postmortem_document(report: Report) -> dict[str, Any]:
    """Return the JSON document of a report."""
    shown = _select_findings(report.evidence.findings)
    return {
        "state": report.state,
        "job": report.job,
        "root_cause": _build_cause(report.root) if report.root is not None else None,
        "alternatives": [_build_cause(cause) for cause in report.alternatives],
        "timeline": [_build_moment(moment) for moment in report.timeline],
        "evidence": [build_evidence_row(finding) for finding in shown],
        "evidence_left_out": len(report.evidence.findings) - len(shown),
        "divergence": report.divergence,
        "ranks": report.evidence.ranks,
        "clock_skews": report.skews,
        "missing": report.missing,
        "actions": report.actions,
        "recurrence": report.recurrence,
        "facts": report.facts,
        "gathered": report.evidence.gathered,
        "unreadable": report.evidence.unreadable,
    }


def _select_findings(findings: Sequence[Finding]) -> Sequence[Finding]:
    """Return all findings, or of too many the most relevant: the kernel's, time-outs, possible causes."""
    if len(findings) <= MAX_EVIDENCE:
        return findings
    weight = {
        id(finding): (finding.origin is not Origin.KERNEL, finding.signature not in KINDS, _ORDER.get(finding.role, 3))
        for finding in findings
    }
    selected = {id(finding) for finding in sorted(findings, key=lambda finding: weight[id(finding)])[:MAX_EVIDENCE]}
    return [finding for finding in findings if id(finding) in selected]


def _build_cause(cause: Cause) -> dict[str, Any]:
    """Return a cause; ``where`` is for people, ``place`` for programs."""
    return {
        "class": cause.failure,
        "what": cause.what,
        "where": describe_place(cause.where),
        "confidence": round(cause.confidence, 4),
        "place": build_place_row(cause.where),
        "why": cause.why,
        "evidence": [
            {"source": finding.source, "line": finding.line, "text": finding.text} for finding in cause.findings[:8]
        ],
    }


def _build_moment(moment: Moment) -> dict[str, Any]:
    """Return one entry of the timeline."""
    row: dict[str, Any] = {"time_s": moment.time_s, "what": moment.what, "role": moment.role}
    row |= build_place_row(moment.place)
    if moment.finding is not None:
        row |= {"source": moment.finding.source, "line": moment.finding.line, "text": moment.finding.text}
    return row


def build_evidence_row(finding: Finding) -> dict[str, Any]:
    """Return one piece of evidence."""
    row: dict[str, Any] = {
        "kind": KINDS.get(finding.signature, finding.signature),
        "role": finding.role,
        "origin": finding.origin,
        "class": finding.failure,
        "what": find_meaning(finding),
        "time_s": finding.time_s,
        "count": finding.count,
        "source": finding.source,
        "line": finding.line,
        "text": finding.text,
    }
    row |= {name: _parse_number(name, value) for name, value in finding.fields.items() if name not in row}
    row |= build_place_row(finding.place)
    if "pci" in row:
        row["pci"] = str(row["pci"]).partition(".")[0]
    return row


def _parse_number(name: str, value: str) -> str | int:
    """Return a numeric field as an integer."""
    return int(value) if name in _NUMBERS and value.lstrip("-").isdecimal() and len(value) < 19 else value


def build_place_row(place: Place) -> dict[str, Any]:
    """Return the known fields of a place."""
    names = ("node", "rank", "local_rank", "node_rank", "gpu_index", "gpu_uuid", "pci", "hca", "peer")
    return {name: value for name in names if (value := getattr(place, name)) not in ("", None)}

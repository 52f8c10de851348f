"""What does ``opsk postmortem --json`` answer? The report as plain values, its keys part of the contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opsk.postmortem.reasoning.meanings import meaning
from opsk.postmortem.reasoning.places import words
from opsk.postmortem.values import Cause, Moment, Origin, Place, Report, Role, Sign

KINDS = {"kernel.xid": "xid", "torch.watchdog_timeout": "nccl_watchdog"}
"""Kinds of evidence that have a name of their own; all others are called as their signature."""
_NUMBERS = ("code", "seq", "enqueued", "completed", "numel_in", "numel_out", "timeout_ms", "ran_ms", "exit", "status")
MOST_EVIDENCE = 2000
_ORDER = {Role.ROOT: 0, Role.CONFIRMATION: 1, Role.CASCADE: 2}


def postmortem_document(report: Report) -> dict[str, Any]:
    """Return the JSON document of a report."""
    shown = _shown(report.evidence.signs)
    return {
        "state": report.state,
        "job": report.job,
        "root_cause": _cause(report.root) if report.root is not None else None,
        "alternatives": [_cause(cause) for cause in report.alternatives],
        "timeline": [_moment(moment) for moment in report.timeline],
        "evidence": [evidence_row(sign) for sign in shown],
        "evidence_left_out": len(report.evidence.signs) - len(shown),
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


def _shown(signs: Sequence[Sign]) -> Sequence[Sign]:
    """Return all signs, or of too many those that tell most: the kernel's, time-outs, what can have begun it."""
    if len(signs) <= MOST_EVIDENCE:
        return signs
    weight = {
        id(sign): (sign.origin is not Origin.KERNEL, sign.signature not in KINDS, _ORDER.get(sign.role, 3))
        for sign in signs
    }
    kept = {id(sign) for sign in sorted(signs, key=lambda sign: weight[id(sign)])[:MOST_EVIDENCE]}
    return [sign for sign in signs if id(sign) in kept]


def _cause(cause: Cause) -> dict[str, Any]:
    """Return a cause; ``where`` is for people, ``place`` for programs."""
    return {
        "class": cause.failure,
        "what": cause.what,
        "where": words(cause.where),
        "confidence": round(cause.confidence, 4),
        "place": place_row(cause.where),
        "why": cause.why,
        "evidence": [{"source": sign.source, "line": sign.line, "text": sign.text} for sign in cause.signs[:8]],
    }


def _moment(moment: Moment) -> dict[str, Any]:
    """Return one entry of the timeline."""
    row: dict[str, Any] = {"time_s": moment.time_s, "what": moment.what, "role": moment.role}
    row |= place_row(moment.place)
    if moment.sign is not None:
        row |= {"source": moment.sign.source, "line": moment.sign.line, "text": moment.sign.text}
    return row


def evidence_row(sign: Sign) -> dict[str, Any]:
    """Return one piece of evidence."""
    row: dict[str, Any] = {
        "kind": KINDS.get(sign.signature, sign.signature),
        "role": sign.role,
        "origin": sign.origin,
        "class": sign.failure,
        "what": meaning(sign),
        "time_s": sign.time_s,
        "count": sign.count,
        "source": sign.source,
        "line": sign.line,
        "text": sign.text,
    }
    row |= {name: _number(name, value) for name, value in sign.fields.items() if name not in row}
    row |= place_row(sign.place)
    if "pci" in row:
        row["pci"] = str(row["pci"]).partition(".")[0]
    return row


def _number(name: str, value: str) -> str | int:
    """Return a field that is a number as one."""
    return int(value) if name in _NUMBERS and value.lstrip("-").isdecimal() and len(value) < 19 else value


def place_row(place: Place) -> dict[str, Any]:
    """Return what is known of a place."""
    names = ("node", "rank", "local_rank", "node_rank", "gpu_index", "gpu_uuid", "pci", "hca", "peer")
    return {name: value for name in names if (value := getattr(place, name)) not in ("", None)}

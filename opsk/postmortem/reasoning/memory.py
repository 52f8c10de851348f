"""Compares predicted with measured GPU memory after an out-of-memory error, and lists what would have fit."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from opsk.errors import InputError
from opsk.postmortem.values import Action, Audience, FailureClass, Finding, JobFacts, Report
from opsk.units import GIB
from opsk.workload.advice_record import AdviceRecord

_SIZE = re.compile(r"([\d.]{1,12}) ([KMGT])i?B")
_ASKED = re.compile(
    r"(?:[Tt]ried to allocate|trying to allocate|[Aa]ttempting to (?:reserve|allocate)|Failed to allocate request for)"
    r" (?:(?P<bytes>\d{4,18}) ?[Bb]ytes|(?P<number>\d{1,9}(?:\.\d{1,6})?) ?(?P<unit>[KMGT])i?B?)"
)
_IN_USE = re.compile(r"has (?P<size>[\d.]{1,12} [KMGT]iB) memory in use")
_POWERS = {"K": 1, "M": 2, "G": 3, "T": 4}
_MAX_TERMS, _MAX_FITTING = 4, 2
_READ = {
    "asked": "asked_bytes",
    "capacity": "capacity_bytes",
    "free": "free_bytes",
    "allocated": "allocated_bytes",
    "reserved": "reserved_bytes",
}


def extract_memory_facts(findings: Sequence[Finding], job: JobFacts | None) -> dict[str, float]:
    """Return the sizes in the message of a failed allocation, and in the job's prediction [bytes]."""
    facts: dict[str, float] = {}
    for finding in findings:
        if finding.failure is not FailureClass.GPU_MEMORY:
            continue
        for field, name in _READ.items():
            size = parse_size_bytes(finding.fields.get(field, ""))
            if size is not None:
                facts.setdefault(name, size)
        if (asked := _read_asked(finding.text)) is not None:
            facts.setdefault("asked_bytes", asked)
            if asked > facts["asked_bytes"]:
                facts["largest_asked_bytes"] = max(asked, facts.get("largest_asked_bytes", 0.0))
        if (in_use := _IN_USE.search(finding.text)) is not None and "allocated_bytes" not in facts:
            facts.setdefault("in_use_bytes", parse_size_bytes(in_use["size"]) or 0.0)
    record = _parse_record(job)
    if record is not None and record.mem_bytes is not None:
        facts["predicted_bytes"] = record.mem_bytes
    if record is not None and record.capacity_bytes is not None:
        facts.setdefault("capacity_bytes", record.capacity_bytes)
    if record is not None and record.fit is not None:
        facts["predicted_fit_probability"] = record.fit
    return facts


def _read_asked(text: str) -> float | None:
    """Return what a failed allocation asked for, as PyTorch or XLA say it [bytes]."""
    match = _ASKED.search(text)
    if match is None:
        return None
    if match["bytes"]:
        return float(match["bytes"])
    number = float(match["number"])
    return number * 1024.0 ** _POWERS[match["unit"]]


def _parse_record(job: JobFacts | None) -> AdviceRecord | None:
    """Parse the advice in the job's record."""
    try:
        return AdviceRecord.parse(job.admin_comment) if job is not None and job.admin_comment else None
    except InputError:
        return None


def parse_size_bytes(text: str) -> float | None:
    """Return a size as PyTorch writes it (``79.10 GiB``) [bytes]; ``None`` where it is none."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    try:
        return float(match[1]) * 1024.0 ** _POWERS[match[2]]
    except ValueError:
        return None


def add_prediction(report: Report, document: Mapping[str, Any]) -> Report:
    """Return a report on an out-of-memory error with the terms of the prediction, and with what would have fit.

    Parameters
    ----------
    document
        An answer of ``opsk check`` on the job's script.
    """
    root, memory = report.root, document.get("memory")
    if root is None or root.failure is not FailureClass.GPU_MEMORY or not isinstance(memory, Mapping):
        return report
    components = memory.get("components")
    terms = {name: _to_number(value) for name, value in components.items()} if isinstance(components, Mapping) else {}
    largest = sorted((name for name in terms if terms[name] > 0), key=lambda name: -terms[name])[:_MAX_TERMS]
    facts = {f"predicted_{name}_bytes": terms[name] for name in largest}
    total = memory.get("total_bytes")
    expected = _to_number(total.get("expected") if isinstance(total, Mapping) else total)
    if expected:
        facts = {"predicted_bytes": expected} | facts
    why = (f"of the memory that was predicted {largest[0]} is the largest part",) if largest else ()
    return replace(
        report, root=replace(root, why=(*root.why, *why)), facts={**report.facts, **facts},
        actions=(*_list_fitting(document), *report.actions),
    )  # fmt: skip


def _list_fitting(document: Mapping[str, Any]) -> tuple[Action, ...]:
    """Return the changes that were predicted to fit."""
    actions: list[Action] = []
    for suggestion in document.get("suggestions") or ():
        if isinstance(suggestion, Mapping) and suggestion.get("verdict") == "fits" and len(actions) < _MAX_FITTING:
            ratio = _to_number(suggestion.get("step_ratio"))
            slower = f", a step takes {ratio:.2f} times as long" if ratio else ""
            flags, size_gib = suggestion.get("flags"), _to_number(suggestion.get("memory_bytes")) / GIB
            actions.append(Action(
                what=f"would fit: {suggestion.get('what')}: {size_gib:.1f} GiB{slower}",
                command=" ".join(map(str, flags)) if isinstance(flags, (list, tuple)) else "",
                audience=Audience.USER, source="opsk check",
            ))  # fmt: skip
    return tuple(actions)


def _to_number(value: object) -> float:
    """Return a number; 0 where there is none."""
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else 0.0

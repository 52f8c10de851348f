"""When the GPU's memory ran out: what was predicted, of which terms, what was measured, and what would have fit?"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from opsk.errors import InputError
from opsk.postmortem.values import Action, Audience, FailureClass, JobFacts, Report, Sign
from opsk.units import GIB
from opsk.workload.advice_record import AdviceRecord

_SIZE = re.compile(r"([\d.]{1,12}) ([KMGT])i?B")
_POWERS = {"K": 1, "M": 2, "G": 3, "T": 4}
_MOST_TERMS, _MOST_FITTING = 4, 2
_READ = {
    "asked": "asked_bytes",
    "capacity": "capacity_bytes",
    "free": "free_bytes",
    "allocated": "allocated_bytes",
    "reserved": "reserved_bytes",
}


def memory_facts(signs: Sequence[Sign], job: JobFacts | None) -> dict[str, float]:
    """Return sizes that the message of a failed allocation gives, and what the job's record predicted [bytes]."""
    found: dict[str, float] = {}
    for sign in signs:
        if sign.signature != "torch.cuda_oom":
            continue
        for field, name in _READ.items():
            size = size_bytes(sign.fields.get(field, ""))
            if size is not None:
                found.setdefault(name, size)
    record = _record(job)
    if record is not None and record.mem_bytes is not None:
        found["predicted_bytes"] = record.mem_bytes
    if record is not None and record.capacity_bytes is not None:
        found.setdefault("capacity_bytes", record.capacity_bytes)
    if record is not None and record.fit is not None:
        found["predicted_fit_probability"] = record.fit
    return found


def _record(job: JobFacts | None) -> AdviceRecord | None:
    """Return the advice that the job's record keeps."""
    try:
        return AdviceRecord.parse(job.admin_comment) if job is not None and job.admin_comment else None
    except InputError:
        return None


def size_bytes(text: str) -> float | None:
    """Return a size as PyTorch writes it (``79.10 GiB``) [bytes]; ``None`` where it is none."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        return None
    try:
        return float(found[1]) * 1024.0 ** _POWERS[found[2]]
    except ValueError:
        return None


def with_prediction(report: Report, document: Mapping[str, Any]) -> Report:
    """Return a report on memory that ran out with the terms of what was predicted, and with what would have fit.

    Parameters
    ----------
    document
        An answer of ``opsk check`` on the job's script.
    """
    root, memory = report.root, document.get("memory")
    if root is None or root.failure is not FailureClass.GPU_MEMORY or not isinstance(memory, Mapping):
        return report
    told = memory.get("components")
    terms = {name: _amount(value) for name, value in told.items()} if isinstance(told, Mapping) else {}
    largest = sorted((name for name in terms if terms[name] > 0), key=lambda name: -terms[name])[:_MOST_TERMS]
    facts = {f"predicted_{name}_bytes": terms[name] for name in largest}
    total = memory.get("total_bytes")
    expected = _amount(total.get("expected") if isinstance(total, Mapping) else total)
    if expected:
        facts = {"predicted_bytes": expected} | facts
    why = (f"of the memory that was predicted {largest[0]} is the largest part",) if largest else ()
    return replace(
        report, root=replace(root, why=(*root.why, *why)), facts={**report.facts, **facts},
        actions=(*_fitting(document), *report.actions),
    )  # fmt: skip


def _fitting(document: Mapping[str, Any]) -> tuple[Action, ...]:
    """Return the changes that were predicted to fit."""
    found: list[Action] = []
    for each in document.get("suggestions") or ():
        if isinstance(each, Mapping) and each.get("verdict") == "fits" and len(found) < _MOST_FITTING:
            ratio = _amount(each.get("step_ratio"))
            slower = f", a step takes {ratio:.2f} times as long" if ratio else ""
            flags = each.get("flags")
            found.append(Action(
                what=f"would fit: {each.get('what')}: {_amount(each.get('memory_bytes')) / GIB:.1f} GiB{slower}",
                command=" ".join(map(str, flags)) if isinstance(flags, (list, tuple)) else "",
                audience=Audience.USER, source="opsk check",
            ))  # fmt: skip
    return tuple(found)


def _amount(value: object) -> float:
    """Return a number; 0 where there is none."""
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else 0.0

"""Notes which job Slurm's lines in the logs are about, where it is not the one that was asked for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from opsk.postmortem.values import Evidence, JobFacts, Origin

_JOB = re.compile(r"\*\*\* (?:JOB|STEP) (?P<job>\d{1,10})\b|\b[Ss]tep(?:Id)?=(?P<step>\d{1,10})\b")
_MAX_NAMED = 4


def with_job_notes(evidence: Evidence) -> Evidence:
    """Return evidence that notes logs of another job, and logs of several jobs."""
    sources: dict[str, list[str]] = {}
    for finding in evidence.findings:
        match = _JOB.search(finding.text) if finding.origin is Origin.LAUNCHER else None
        if match is not None:
            sources.setdefault(match["job"] or match["step"], []).append(finding.source)
    asked = _list_numbers(evidence.job)
    if asked:
        notes = [
            f"{source}: Slurm's lines there are of job {number}, not of {evidence.job.job_id if evidence.job else ''}"
            for number, those in sources.items() if number not in asked for source in dict.fromkeys(those)
        ][:_MAX_NAMED]  # fmt: skip
        is_other = not asked & set(sources)
        return replace(evidence, notes=(*evidence.notes, *notes)) if notes and is_other else evidence
    if len(sources) < 2:
        return evidence
    note = f"the logs are of several jobs: {_list(sources)}; what follows is explained as if they were one"
    return replace(evidence, notes=(*evidence.notes, note))


def _list_numbers(job: JobFacts | None) -> set[str]:
    """Return all numbers of a job: of an array task and of a part of a heterogeneous job, too."""
    if job is None or ("_" in job.job_id and job.number in ("", job.job_id)):
        return set()  # a task of an array has a number of its own, which Slurm's record tells
    return {job.number, *re.split(r"[_+.]", job.job_id)[:1], job.job_id} - {""}


def _list(numbers: Iterable[str]) -> str:
    """Return some numbers."""
    ordered = sorted(numbers)
    more = f" and {len(ordered) - _MAX_NAMED} more" if len(ordered) > _MAX_NAMED else ""
    return ", ".join(ordered[:_MAX_NAMED]) + more

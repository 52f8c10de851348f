"""Builds the timeline: the moments that matter across ranks and nodes, in one clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from opsk.postmortem.reasoning.meanings import find_meaning
from opsk.postmortem.values import Cause, Evidence, Finding, Moment, Place, Role

MAX_MOMENTS = 60
"""Moments of a timeline; of cascades the first of each kind are enough."""
_PER_KIND = 4
_SHOWN = ("process.killed",)
"""It proves nothing, and is how an end without a message looks."""


def build_timeline(evidence: Evidence, findings: Sequence[Finding], root: Cause | None) -> tuple[Moment, ...]:
    """Return the timeline, oldest first; moments without a time follow at the end, in the order of their logs."""
    moments = [*_list_job_moments(evidence), *_list_progress_moments(evidence), *_list_finding_moments(findings, root)]
    known = sorted((each for each in moments if each.time_s is not None), key=lambda each: each.time_s or 0.0)
    unknown = [each for each in moments if each.time_s is None]
    return tuple((*known, *unknown)[:MAX_MOMENTS])


def _list_job_moments(evidence: Evidence) -> list[Moment]:
    """Return the job's beginning and end."""
    job = evidence.job
    if job is None:
        return []
    moments = (
        [Moment(time_s=job.start_s, what="the job started", role=Role.PROGRESS)] if job.start_s is not None else []
    )
    if job.end_s is not None:
        moments.append(Moment(time_s=job.end_s, what=f"the job ended: {job.state or 'state unknown'}", role=Role.END))
    return moments


def _list_progress_moments(evidence: Evidence) -> list[Moment]:
    """Return the last step that any rank reported."""
    progressing = [each for each in evidence.ranks if each.last_iteration is not None]
    if not progressing:
        return []
    last = max(progressing, key=lambda each: (each.last_progress_s or 0.0, each.last_iteration or 0))
    return [
        Moment(
            time_s=last.last_progress_s,
            what=f"iteration {last.last_iteration} was the last that was told",
            place=Place(rank=last.rank, local_rank=last.local_rank, node_rank=last.node_rank, node=last.node),
            role=Role.PROGRESS,
        )
    ]


def _list_finding_moments(findings: Sequence[Finding], root: Cause | None) -> list[Moment]:
    """Return the findings that matter: those of the root, and the first of each other kind."""
    of_root = {id(finding) for finding in root.findings} if root is not None else set()
    counts: dict[str, int] = {}
    totals = Counter(finding.signature for finding in findings if finding.role not in (Role.ADVICE, Role.PROGRESS))
    moments = []
    for finding in sorted(findings, key=lambda each: each.time_s if each.time_s is not None else float("inf")):
        if finding.role in (Role.ADVICE, Role.PROGRESS) and finding.signature not in _SHOWN:
            continue
        counts[finding.signature] = counts.get(finding.signature, 0) + 1
        if counts[finding.signature] <= _PER_KIND or (
            id(finding) in of_root and counts[finding.signature] <= 2 * _PER_KIND
        ):
            is_first_of_many = counts[finding.signature] == 1 and totals[finding.signature] > _PER_KIND
            more = f" (the first of {totals[finding.signature]})" if is_first_of_many else ""
            moments.append(
                Moment(
                    time_s=finding.time_s,
                    what=find_meaning(finding) + more,
                    place=finding.place,
                    role=finding.role,
                    finding=finding,
                )
            )
    return moments

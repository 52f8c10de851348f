"""Builds the timeline across ranks and nodes in one clock, with the differences of nodes' clocks estimated.

Ranks that wait for one collective enqueue it within a step of each other and give up after the same time-out, so their
logs differ by their clocks, within seconds. Left out: nodes whose logs have no such line keep their own clock, with an
error of `UNKNOWN_ERROR_S`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from opsk.postmortem.reasoning.actions import find_meaning
from opsk.postmortem.values import Cause, Evidence, Finding, Moment, Place, Role, Skew

UNKNOWN_ERROR_S = 2.0
"""Assumed error of a node's clock without evidence [s]: NTP is more accurate, clusters without it are not."""
_SHARED = ("torch.watchdog_timeout", "torch.watchdog_exception")
_MAX_SKEW_S = 300.0
"""Beyond this a difference is no clock: that rank waited for something else."""
MAX_MOMENTS = 60
"""Moments of a timeline; of cascades the first of each kind are enough."""
_PER_KIND = 4
_SHOWN = ("process.killed",)
"""It proves nothing, and is how an end without a message looks."""


def estimate_skews(findings: Sequence[Finding], node_of_rank: Mapping[int, str]) -> tuple[Skew, ...]:
    """Return how far each node's clock is ahead of the middle of all."""
    times: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for finding in findings:
        rank = finding.place.rank
        node = finding.place.node or (node_of_rank.get(rank, "") if rank is not None else "")
        if finding.signature in _SHARED and finding.time_s is not None and node:
            times[finding.signature, finding.fields.get("seq", "")][node].append(finding.time_s)
    ahead: dict[str, list[float]] = defaultdict(list)
    for by_node in times.values():
        if len(by_node) < 2:
            continue
        moments = {node: median(values) for node, values in by_node.items()}
        middle = median(moments.values())
        for node, time_s in moments.items():
            if abs(time_s - middle) <= _MAX_SKEW_S:
                ahead[node].append(time_s - middle)
    return tuple(
        Skew(node=node, ahead_s=median(values), error_s=max(0.2, max(values) - min(values)))
        for node, values in sorted(ahead.items())
    )


def align_clocks(
    findings: Sequence[Finding], skews: Sequence[Skew], node_of_rank: Mapping[int, str]
) -> tuple[Finding, ...]:
    """Return findings in the reference clock."""
    ahead = {skew.node: skew.ahead_s for skew in skews}
    moved = []
    for finding in findings:
        rank = finding.place.rank
        node = finding.place.node or (node_of_rank.get(rank, "") if rank is not None else "")
        by = ahead.get(node, 0.0)
        if by and finding.time_s is not None:
            last = finding.last_time_s - by if finding.last_time_s is not None else None
            finding = replace(finding, time_s=finding.time_s - by, last_time_s=last)
        moved.append(finding)
    return tuple(moved)


def build_timeline(evidence: Evidence, findings: Sequence[Finding], root: Cause | None) -> tuple[Moment, ...]:
    """Return the timeline, oldest first; moments without a time follow at the end, in the order of their logs."""
    events = _drop_earlier(_list_finding_moments(findings, root), root)
    moments = [*_list_job_moments(evidence), *_list_progress_moments(evidence), *events]
    known = sorted((each for each in moments if each.time_s is not None), key=lambda each: each.time_s or 0.0)
    unknown = [each for each in moments if each.time_s is None]
    return tuple((*known, *unknown)[:MAX_MOMENTS])


def _drop_earlier(moments: Sequence[Moment], root: Cause | None) -> list[Moment]:
    """Drop what was found before the root: the job lived on after it."""
    of_root = {id(finding) for finding in root.findings} if root is not None else set()
    first_s = min(
        (each.time_s for each in moments if id(each.finding) in of_root and each.time_s is not None), default=None
    )
    return [
        each
        for each in moments
        if first_s is None or each.time_s is None or each.time_s >= first_s or id(each.finding) in of_root
    ]


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

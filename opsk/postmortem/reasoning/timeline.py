"""Builds the timeline across ranks and nodes in one clock, with the differences of nodes' clocks estimated.

Ranks that wait for one collective enqueue it within a step of each other and give up after the same time-out, so their
logs differ by their clocks, within seconds. Left out: nodes whose logs have no such line keep their own clock, with an
error of `UNKNOWN_ERROR_S`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from opsk.postmortem.reasoning.actions import find_meaning
from opsk.postmortem.values import Cause, Evidence, Finding, Moment, Origin, Place, Role, Skew

UNKNOWN_ERROR_S = 2.0
"""Assumed error of a node's clock without evidence [s]: NTP is more accurate, clusters without it are not."""
_SHARED = ("torch.watchdog_timeout", "torch.watchdog_exception")
_MAX_SKEW_S = 300.0
"""Beyond this a difference is no clock: that rank waited for something else."""
MAX_MOMENTS = 60
"""Moments of a timeline; of cascades the first of each kind are enough."""
_MAX_RANKS = 256
_OF_PARTS = (Origin.KERNEL, Origin.GPU, Origin.FABRIC, Origin.CGROUP)
"""These speak of a part of a node: the same of two parts is two events."""
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


def build_timeline(
    evidence: Evidence, findings: Sequence[Finding], root: Cause | None
) -> tuple[tuple[Moment, ...], tuple[Moment, ...]]:
    """Return where the job was before the root, and what happened from it on, the oldest first.

    A moment whose line has no time stands after the last line before it that has one. Without a root all is in the
    second part.
    """
    moments = [*_list_job_moments(evidence), *_list_progress_moments(evidence), *_list_finding_moments(findings, root)]
    ordered = sorted(moments, key=_sort_key)
    of_root = _list_root_ids(root)
    starts = [number for number, each in enumerate(ordered) if id(each.finding) in of_root]
    if not starts:
        return (), tuple(ordered[:MAX_MOMENTS])
    if _sort_key(ordered[starts[0]])[0] == float("inf"):
        # nothing tells when it was: it stands before all that follows from it
        others = [each for each in ordered if id(each.finding) not in of_root]
        ordered, starts = [*(ordered[number] for number in starts), *others], [0]
    before = [each for each in ordered[: starts[0]] if each.finding is None]
    after = ordered[starts[0] :]  # what was seen before the root the job lived on after
    late = [each for each in after if each.finding is None and each.role is Role.PROGRESS]
    return (*before, *late), tuple([each for each in after if each not in late][:MAX_MOMENTS])


def _list_root_ids(root: Cause | None) -> set[int]:
    """Return the identities of the findings that make a root: of those that only confirm it none is the first."""
    if root is None:
        return set()
    return {id(each) for each in root.findings if each.role is Role.ROOT} or {id(each) for each in root.findings}


def _sort_key(moment: Moment) -> tuple[float, int]:
    """Return when a moment was, at least, and where in its log."""
    finding = moment.finding
    if moment.time_s is not None:
        return moment.time_s, finding.order if finding is not None else 0
    if finding is None:
        return (float("-inf"), 0) if moment.role is Role.PROGRESS else (float("inf"), 0)
    return finding.earliest_s if finding.earliest_s is not None else float("inf"), finding.order


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
            what=f"iteration {last.last_iteration} was the last step that was reported",
            place=Place(rank=last.rank, local_rank=last.local_rank, node_rank=last.node_rank, node=last.node),
            role=Role.PROGRESS,
        )
    ]


def _list_finding_moments(findings: Sequence[Finding], root: Cause | None) -> list[Moment]:
    """Return the findings that matter, each text once for all ranks that print it."""
    of_root = _list_root_ids(root)
    groups: dict[tuple[str, tuple[str, ...]], list[Finding]] = {}
    for finding in findings:
        if finding.role in (Role.ADVICE, Role.PROGRESS) and finding.signature not in _SHOWN:
            continue
        where = (finding.place.node, finding.place.pci, finding.place.hca) if finding.origin in _OF_PARTS else ()
        groups.setdefault((find_meaning(finding), where), []).append(finding)
    moments = []
    for (what, _), group in groups.items():
        ordered = sorted(group, key=lambda each: each.time_s if each.time_s is not None else float("inf"))
        first = next((each for each in ordered if id(each) in of_root), ordered[0])
        place = _join_places(group, first)
        moments.append(Moment(time_s=first.time_s, what=what, place=place, role=first.role, finding=first))
    return moments


def _join_places(group: Sequence[Finding], first: Finding) -> Place:
    """Return the place of the first of several findings; where several ranks print it, all of them."""
    ranks = sorted({each.place.rank for each in group if each.place.rank is not None})
    if len(ranks) < 2:
        return first.place
    nodes = {each.place.node for each in group}
    return Place(node=nodes.pop() if len(nodes) == 1 else "", ranks=tuple(ranks[:_MAX_RANKS]))

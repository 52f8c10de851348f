"""Estimates clock differences between nodes from collectives that all ranks gave up on at the same moment.

Ranks that wait for one collective enqueue it within a step of each other and give up after the same time-out, so their
logs differ by their clocks, within seconds. Left out: nodes whose logs have no such line keep their own clock, with an
error of `UNKNOWN_ERROR_S`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from opsk.postmortem.values import Finding, Skew

UNKNOWN_ERROR_S = 2.0
"""Assumed error of a node's clock without evidence [s]: NTP is more accurate, clusters without it are not."""
_SHARED = ("torch.watchdog_timeout", "torch.watchdog_exception")
_MAX_SKEW_S = 300.0
"""Beyond this a difference is no clock: that rank waited for something else."""


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

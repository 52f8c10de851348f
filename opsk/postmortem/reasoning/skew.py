"""How far do the clocks of nodes differ? Told by collectives that all ranks gave up on at the same moment.

Ranks that wait for one collective enqueue it within a step of each other and give up after the same time-out, so what
their logs differ by is their clocks, but for seconds. Left out: nodes whose logs carry no such line keep the clock that
they have, with an error of `UNKNOWN_ERROR_S`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from opsk.postmortem.values import Sign, Skew

UNKNOWN_ERROR_S = 2.0
"""How far a node's clock may be off where nothing tells [s]: NTP keeps better time, clusters without it do not."""
_SHARED = ("torch.watchdog_timeout", "torch.watchdog_exception")
_LARGEST_S = 300.0
"""Beyond this a difference is no clock: that rank waited for something else."""


def skews_of(signs: Sequence[Sign], node_of_rank: Mapping[int, str]) -> tuple[Skew, ...]:
    """Return how far each node's clock is ahead of the middle of all."""
    times: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for sign in signs:
        rank = sign.place.rank
        node = sign.place.node or (node_of_rank.get(rank, "") if rank is not None else "")
        if sign.signature in _SHARED and sign.time_s is not None and node:
            times[sign.signature, sign.fields.get("seq", "")][node].append(sign.time_s)
    ahead: dict[str, list[float]] = defaultdict(list)
    for by_node in times.values():
        if len(by_node) < 2:
            continue
        moments = {node: median(found) for node, found in by_node.items()}
        middle = median(moments.values())
        for node, at in moments.items():
            if abs(at - middle) <= _LARGEST_S:
                ahead[node].append(at - middle)
    return tuple(
        Skew(node=node, ahead_s=median(found), error_s=max(0.2, max(found) - min(found)))
        for node, found in sorted(ahead.items())
    )


def aligned(signs: Sequence[Sign], skews: Sequence[Skew], node_of_rank: Mapping[int, str]) -> tuple[Sign, ...]:
    """Return signs in the reference clock."""
    ahead = {skew.node: skew.ahead_s for skew in skews}
    moved = []
    for sign in signs:
        rank = sign.place.rank
        node = sign.place.node or (node_of_rank.get(rank, "") if rank is not None else "")
        by = ahead.get(node, 0.0)
        if by and sign.time_s is not None:
            last = sign.last_time_s - by if sign.last_time_s is not None else None
            sign = replace(sign, time_s=sign.time_s - by, last_time_s=last)
        moved.append(sign)
    return tuple(moved)

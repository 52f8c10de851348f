"""A job's step on a fabric, worked out message by message in plain loops: slow, short, and written apart from opsk's.

Only what the model states is shared: how many bytes an axis sends (`StepBytes`) and how a step follows from busy links
(`StepModel`). Rings, channels, shortest paths and link loads are done again here.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

import numpy as np

from opsk.fabric.fabric import Fabric
from opsk.fabric.leaves.leaf import Attachment
from opsk.fabric.rails import Rails
from opsk.planning.placement.step_model import StepModel
from opsk.planning.ranks import RankGrid
from opsk.planning.routing.traffic import AXES, StepBytes

Seat = tuple[str, int]
Message = tuple[int, int, float]


def step_s(
    *,
    grid: RankGrid,
    sent: StepBytes,
    seats: Sequence[Seat],
    hca_of: Mapping[Seat, Attachment],
    domain_of: Mapping[str, str],
    fabric: Fabric,
    rails: Rails,
    step: StepModel,
) -> float:
    """Return the predicted step of ranks that sit at ``seats`` (node and GPU, in rank order)."""
    cables: dict[tuple[str, str], list[float]] = defaultdict(list)
    for cable in fabric.cables:
        if cable.a_guid in fabric.switches and cable.b_guid in fabric.switches:
            cables[cable.a_guid, cable.b_guid].append(cable.bytes_per_s)
            cables[cable.b_guid, cable.a_guid].append(cable.bytes_per_s)
    axis_s = []
    for axis in AXES:
        busy: dict[object, float] = defaultdict(float)
        for source, target, size in _messages(axis, grid, sent, seats, hca_of, domain_of):
            one, other = hca_of[seats[source]], hca_of[seats[target]]
            busy["out", one.guid] += size / one.bytes_per_s
            busy["in", other.guid] += size / other.bytes_per_s
            if one.leaf != other.leaf:
                shares = _shares(one.leaf, other.leaf, cables, set(rails.leaves))
                for (a, b), share in shares.items():
                    busy[a, b] += size * float(share) / len(cables[a, b]) / min(cables[a, b])
        axis_s.append(max(busy.values(), default=0.0))
    return float(step.step_s(np.array(axis_s)))


def _messages(
    axis: str,
    grid: RankGrid,
    sent: StepBytes,
    seats: Sequence[Seat],
    hca_of: Mapping[Seat, Attachment],
    domain_of: Mapping[str, str],
) -> Iterator[Message]:
    stages, dp, cp, tp = grid.ranks.shape
    ranks = grid.ranks
    if axis == "pp" and stages > 1:
        for stage in range(stages):
            size = sent.pp_forward if stage + 1 < stages else sent.pp_wrap
            for one, other in zip(ranks[stage].ravel(), ranks[(stage + 1) % stages].ravel(), strict=True):
                if domain_of[seats[one][0]] != domain_of[seats[other][0]]:
                    yield from ((one, other, size), (other, one, size))
    if axis == "tp":
        for stage, replica, part in np.ndindex(stages, dp, cp):
            yield from _ring(ranks[stage, replica, part], sent.tp[stage], seats, hca_of, domain_of)
    if axis == "dp":
        for stage, slot in np.ndindex(stages, tp):
            yield from _ring(
                sorted(ranks[stage, :, :, slot].ravel().tolist()), sent.dp[stage], seats, hca_of, domain_of
            )


def _ring(
    group: Sequence[int],
    size: float,
    seats: Sequence[Seat],
    hca_of: Mapping[Seat, Attachment],
    domain_of: Mapping[str, str],
) -> Iterator[Message]:
    """Domains in the order of their first rank; channels by leaf, then by rail, then in order."""
    held: dict[str, list[int]] = {}
    for rank in sorted(int(rank) for rank in group):
        held.setdefault(domain_of[seats[rank][0]], []).append(rank)
    if len(held) < 2 or not size:
        return
    channels = max(len(members) for members in held.values())
    rows = [[members[channel % len(members)] for channel in range(channels)] for members in held.values()]
    for here, there in zip(rows, rows[1:] + rows[:1], strict=True):
        free = list(range(channels))
        partner: dict[int, int] = {}
        for key in ("leaf", "rail", None):
            for channel in range(channels):
                if channel in partner:
                    continue
                mine = key and getattr(hca_of[seats[here[channel]]], key)
                match = [other for other in free if key is None or getattr(hca_of[seats[there[other]]], key) == mine]
                if match:
                    partner[channel] = match[0]
                    free.remove(match[0])
        for channel, other in partner.items():
            yield here[channel], there[other], size / channels


def _shares(
    source: str, target: str, cables: Mapping[tuple[str, str], list[float]], leaves: set[str]
) -> dict[tuple[str, str], Fraction]:
    """Return the part of a message on each pair of switches, all shortest paths by cable; leaves are not passed."""
    near: dict[str, set[str]] = defaultdict(set)
    for a, b in cables:
        near[a].add(b)
    passed = not any(a in leaves and b in leaves for a, b in cables)
    distance = {target: 0}
    row = [target]
    while row:
        following = []
        for switch in row:
            for other in near[switch]:
                if other not in distance:
                    distance[other] = distance[switch] + 1
                    if not (passed and other in leaves):
                        following.append(other)
        row = following
    if source not in distance:
        raise AssertionError(f"no path from {source} to {target}")
    shares: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
    mass = {source: Fraction(1)}
    for steps in range(distance[source], 0, -1):
        onward: dict[str, Fraction] = defaultdict(Fraction)
        for switch, part in mass.items():
            ways = [
                other
                for other in near[switch]
                if distance.get(other) == steps - 1 and (other == target or not (passed and other in leaves))
            ]
            total = sum(len(cables[switch, other]) for other in ways)
            for other in ways:
                share = part * len(cables[switch, other]) / total
                shares[switch, other] += share
                onward[other] += share
        mass = onward
    assert math.isclose(float(mass[target]), 1.0)
    return shares

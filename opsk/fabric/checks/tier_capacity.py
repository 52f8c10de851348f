"""Computes the bandwidth of each tier of switches to the tier below and to the tier above."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from opsk.fabric.fabric import Cable
from opsk.fabric.graph import HcaLink


@dataclass(frozen=True, slots=True, kw_only=True)
class TierCapacity:
    """One tier: bandwidth to the tier below and to the tier above, one direction; ``ratio`` is down over up.

    ``ratio`` is ``None`` at the top, where nothing leads further up.
    """

    tier: int
    switches: int
    down_bytes_per_s: float
    up_bytes_per_s: float
    ratio: float | None


def compute_tier_capacities(
    links: Iterable[HcaLink], isls: Iterable[Cable], tier: Mapping[str, int]
) -> tuple[TierCapacity, ...]:
    """Return the bandwidth of each tier, from below and upwards; hosts on spines are left out."""
    down: defaultdict[int, float] = defaultdict(float)
    up: defaultdict[int, float] = defaultdict(float)
    for link in links:
        if tier.get(link.switch) == 0:
            down[0] += link.cable.bytes_per_s
    for cable in isls:
        low, high = tier.get(cable.a_guid, -1), tier.get(cable.b_guid, -1)
        if high < low:
            low, high = high, low
        if 0 <= low < high:
            up[low] += cable.bytes_per_s
            down[high] += cable.bytes_per_s
    switches = Counter(tier.values())
    return tuple(
        TierCapacity(
            tier=level,
            switches=switches[level],
            down_bytes_per_s=down[level],
            up_bytes_per_s=up[level],
            ratio=down[level] / up[level] if up[level] else None,
        )
        for level in sorted(switches)
    )

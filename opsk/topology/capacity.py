"""How much more bandwidth comes into a leaf, or a tier, from below than can leave it upwards? Oversubscription."""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass

from opsk.topology.fabric import Fabric
from opsk.topology.graph import hca_links, isl_cables, switch_neighbours, tiers
from opsk.topology.rails import Rails


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Oversubscription:
    """Down over up bandwidth of the compute leaves that have a way up, as cabled; and of each tier as a whole.

    1.0 is full bisection, more is oversubscribed; the three are ``None`` where no leaf has a switch above it.
    """

    least: float | None
    median: float | None
    worst: float | None
    worst_leaf: str | None
    tiers: tuple[TierCapacity, ...]


def oversubscription(fabric: Fabric, rails: Rails) -> Oversubscription:
    """Return how oversubscribed leaves and tiers are; hosts on spines are left out of the tiers."""
    ratios = {
        leaf.guid: leaf.down_bytes_per_s / leaf.up_bytes_per_s
        for leaf in rails.leaves.values()
        if leaf.up_bytes_per_s and not leaf.off_tier and leaf.role == "compute"
    }
    worst = max(sorted(ratios), key=lambda guid: ratios[guid], default=None)
    return Oversubscription(
        least=min(ratios.values(), default=None),
        median=statistics.median(ratios.values()) if ratios else None,
        worst=ratios[worst] if worst else None,
        worst_leaf=worst,
        tiers=_tiers(fabric, rails),
    )


def _tiers(fabric: Fabric, rails: Rails) -> tuple[TierCapacity, ...]:
    tier = tiers(switch_neighbours(fabric), {guid for guid, leaf in rails.leaves.items() if not leaf.off_tier})
    down: defaultdict[int, float] = defaultdict(float)
    up: defaultdict[int, float] = defaultdict(float)
    for link in hca_links(fabric):
        if tier.get(link.switch) == 0:
            down[0] += link.cable.bytes_per_s
    for cable in isl_cables(fabric):
        low, high = sorted((tier.get(cable.a_guid, -1), tier.get(cable.b_guid, -1)))
        if 0 <= low < high:
            up[low] += cable.bytes_per_s
            down[high] += cable.bytes_per_s
    levels = sorted(set(tier.values()))
    return tuple(
        TierCapacity(
            tier=level,
            switches=sum(1 for value in tier.values() if value == level),
            down_bytes_per_s=down[level],
            up_bytes_per_s=up[level],
            ratio=down[level] / up[level] if up[level] else None,
        )
        for level in levels
    )

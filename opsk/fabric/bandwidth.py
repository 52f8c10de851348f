"""Computes the oversubscription of leaves and tiers: the bandwidth from below over the bandwidth upwards."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from opsk.fabric.checks.oversubscription import TierCapacity, compute_tier_capacities
from opsk.fabric.fabric import Fabric
from opsk.fabric.graph import find_hca_links, find_isl_cables
from opsk.fabric.rails import Rails

__all__ = ["Oversubscription", "TierCapacity", "compute_oversubscription"]


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


def compute_oversubscription(fabric: Fabric, rails: Rails) -> Oversubscription:
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
        tiers=compute_tier_capacities(find_hca_links(fabric), find_isl_cables(fabric), rails.tier),
    )

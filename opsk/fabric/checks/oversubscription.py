"""Reports leaves and tiers that have more bandwidth from below than upwards."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from opsk.fabric.cabling import Cabling
from opsk.fabric.fabric import Cable, Fault
from opsk.fabric.graph import HcaLink
from opsk.fabric.hosts.hosts import COMPUTE
from opsk.fabric.leaves.leaf import Leaf
from opsk.units import as_gbit_per_s

_TIGHT = 1.1
"""Down over up bandwidth up to this counts as full: many leaves have a login host or two."""
_TIGHT_ASIDE = 1.5
"""The same for leaves of storage and management among themselves: their servers are cabled where there was room."""
_MIN_LEAVES = 3


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


def check_oversubscription(
    cabling: Cabling, leaves: Mapping[str, Leaf], explained: Collection[str], strays: Collection[str] = ()
) -> Iterator[Fault]:
    """Yield the tiers that are oversubscribed as a whole, and the leaves that are more so than similar leaves.

    Parameters
    ----------
    explained
        Switches whose missing uplinks are separate findings, which state the ratio.
    strays
        HCAs on a wrong leaf: they crowd none.
    """
    yield from _check_tiers(cabling, leaves)
    similar = [
        leaf for leaf in leaves.values() if not leaf.off_tier and leaf.up_bytes_per_s and leaf.guid not in explained
    ]
    for role in sorted({leaf.role for leaf in similar}):
        yield from _check_leaves(cabling, [leaf for leaf in similar if leaf.role == role], strays)


def _check_tiers(cabling: Cabling, leaves: Mapping[str, Leaf]) -> Iterator[Fault]:
    """Yield the tiers that are oversubscribed; leaves of storage and management, mostly so by design, do not count."""
    roles = {leaf.role for leaf in leaves.values() if not leaf.off_tier}
    aside = {guid for guid, leaf in leaves.items() if leaf.role != COMPUTE and not leaf.off_tier and COMPUTE in roles}
    tier = {guid: level for guid, level in cabling.tier.items() if guid not in aside}
    links = [link for link in cabling.links if link.switch not in aside]
    for capacity in compute_tier_capacities(links, cabling.isls, tier):
        if capacity.ratio is not None and capacity.ratio > _TIGHT:
            down, up = as_gbit_per_s(capacity.down_bytes_per_s), as_gbit_per_s(capacity.up_bytes_per_s)
            word = "leaves" if capacity.tier == 0 else "switches"
            yield Fault(
                kind="oversubscribed_tier",
                where=f"tier {capacity.tier}: {capacity.switches} {word}",
                evidence=f"{down:.0f} Gbit/s from below, {up:.0f} Gbit/s upwards: {capacity.ratio:.2f}:1",
                cost=f"{1 / (capacity.ratio or 1):.0%} of the bandwidth where all traffic leaves its {word}",
                switches=tuple(sorted(guid for guid, level in tier.items() if level == capacity.tier)),
            )


def _check_leaves(cabling: Cabling, similar: list[Leaf], strays: Collection[str]) -> Iterator[Fault]:
    if len(similar) < _MIN_LEAVES:
        return
    # A slow uplink is a finding of its own: count each at the usual rate.
    cable = statistics.median(leaf.up_bytes_per_s / leaf.uplinks for leaf in similar)
    up = {leaf.guid: max(leaf.up_bytes_per_s, leaf.uplinks * cable) for leaf in similar}
    usual = statistics.median(leaf.down_bytes_per_s / up[leaf.guid] for leaf in similar)
    links = statistics.median(leaf.hca_links for leaf in similar)
    tight = _TIGHT if similar[0].role == COMPUTE else _TIGHT_ASIDE
    for leaf in similar:
        if leaf.down_bytes_per_s <= tight * max(usual, 1.0) * up[leaf.guid]:
            continue
        rates = [link.cable.bytes_per_s for link in cabling.by_leaf[leaf.guid] if link.hca not in strays]
        ratio = sum(rates) / up[leaf.guid]
        if ratio > tight * max(usual, 1.0) and len(rates) > tight * links:
            yield Fault(
                kind="oversubscribed_leaf",
                where=cabling.name(leaf.guid),
                evidence=f"{len(rates)} HCA links, {as_gbit_per_s(sum(rates)):.0f} Gbit/s, over {leaf.uplinks} "
                f"uplinks, {as_gbit_per_s(leaf.up_bytes_per_s):.0f} Gbit/s: {ratio:.2f}:1, the median of its role is "
                f"{usual:.2f}:1",
                cost=f"{1 / ratio:.0%} of the bandwidth of its HCAs where all traffic leaves the leaf",
                nodes=leaf.nodes,
                switches=(leaf.guid,),
            )

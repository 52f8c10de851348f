"""Which leaves have fewer cables upwards, or fewer HCAs, than their like?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from opsk.topology.cabling import Cabling
from opsk.topology.fabric import Fault
from opsk.topology.leaf import Leaf
from opsk.units import as_gbit_per_s

_ENOUGH_LEAVES = 3
_USUAL_SHARE = 0.5
_THIN = 0.25
_NAMED = 4


def uplink_faults(cabling: Cabling, leaves: Mapping[str, Leaf]) -> Iterator[Fault]:
    """Yield leaves short of uplinks and leaves with hardly any HCA, against the other leaves of their role."""
    regular = [leaf for leaf in leaves.values() if not leaf.off_tier]
    for role in sorted({leaf.role for leaf in regular}):
        alike = [leaf for leaf in regular if leaf.role == role]
        if len(alike) >= _ENOUGH_LEAVES:
            yield from _short(cabling, alike)
            yield from _thin(cabling, alike)


def _short(cabling: Cabling, alike: list[Leaf]) -> Iterator[Fault]:
    counts = Counter(leaf.uplinks for leaf in alike)
    usual = max(counts, key=lambda count: (counts[count], count))
    most = max(counts)
    if counts[usual] < _USUAL_SHARE * len(alike):
        usual = most
    for leaf in alike:
        if leaf.uplinks >= usual:
            continue
        ratio = f"{leaf.down_bytes_per_s / leaf.up_bytes_per_s:.2f}:1" if leaf.up_bytes_per_s else "no way up"
        lost = f"{1 - leaf.uplinks / usual:.0%}"
        yield Fault(
            kind="leaf_short_of_uplinks",
            where=cabling.name(leaf.guid),
            evidence=f"{leaf.uplinks} uplinks, {counts[usual]} of {len(alike)} leaves of its role have {usual}"
            + _lacking(cabling, leaf, alike),
            cost=f"{lost} less bandwidth out of the leaf ({as_gbit_per_s(leaf.down_bytes_per_s):.0f} Gbit/s of HCAs "
            f"over {as_gbit_per_s(leaf.up_bytes_per_s):.0f} Gbit/s up, {ratio})",
        )


def _lacking(cabling: Cabling, leaf: Leaf, alike: list[Leaf]) -> str:
    """Say to which switches above the leaf has fewer cables than most of its like."""
    own = cabling.uplinks(leaf.guid)
    usual: dict[str, Counter[int]] = {}
    for other in alike:
        for guid, count in cabling.uplinks(other.guid).items():
            usual.setdefault(guid, Counter())[count] += 1
    fewer = []
    for guid, votes in sorted(usual.items(), key=lambda item: cabling.name(item[0])):
        count, voters = votes.most_common(1)[0]
        if own[guid] < count and 2 * voters > len(alike):
            fewer.append(f"{own[guid]} of {count} to {cabling.name(guid)}")
    more = f" and {len(fewer) - _NAMED} more" if len(fewer) > _NAMED else ""
    return f"; {', '.join(fewer[:_NAMED])}{more}" if fewer else ""


def _thin(cabling: Cabling, alike: list[Leaf]) -> Iterator[Fault]:
    counts = sorted(leaf.hca_links for leaf in alike)
    median = counts[len(counts) // 2]
    for leaf in alike:
        if leaf.hca_links < _THIN * median:
            names = ", ".join(leaf.nodes[:_NAMED]) or "unnamed hosts"
            yield Fault(
                kind="thin_leaf",
                where=cabling.name(leaf.guid),
                evidence=f"HCA links: {leaf.hca_links} ({names}), the median of its role is {median}",
                cost="a job on its nodes reaches all others through spines",
            )

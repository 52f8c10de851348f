"""What would the fabric be with the cables between switches that it lacks? Repairs of leaves, spines and tiers."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping

from opsk.topology.fabric import Fabric, Fault, Switch
from opsk.topology.hosts import family_of
from opsk.topology.link_speed import link_bytes_per_s
from opsk.topology.tier_capacity import tier_capacities
from opsk.topology.uplinks import Plane, find_planes
from opsk.topology.workbench import Bench


def _planes(bench: Bench, guid: str) -> tuple[Plane, ...]:
    """Return the planes of the switches that are compared with one: of its tier and role."""
    cabling = bench.cabling
    tier, role = cabling.tier.get(guid), cabling.roles.get(guid)
    return find_planes(
        cabling,
        [other for other, level in cabling.tier.items() if level == tier and cabling.roles.get(other) == role],
    )


def give_uplinks(bench: Bench, fault: Fault) -> Fabric | None:
    """Give a switch the cables that its like have to the switches above."""
    guid = fault.switches[0]
    planes = _planes(bench, guid)
    cables = bench.cabling.uplinks(guid)
    rate = bench.usual_rate(cable for cable in bench.cabling.isls)
    plane = next((plane for plane in planes if guid in plane.lower), None)
    if plane is not None and plane.usual:
        lacking = plane.lacking(cables)
        if fault.kind == "uneven_uplinks":
            _drop_extra(bench, guid, plane.extra(cables))
    else:
        lacking = _spread(bench, guid, planes, plane)
    for spine, count in sorted(lacking.items()):
        for _ in range(count):
            bench.connect(guid, spine, rate)
    return bench.done() if lacking else None


def _drop_extra(bench: Bench, guid: str, extra: Counter[str]) -> None:
    left = Counter(extra)
    kept = []
    for cable in bench.cables:
        ends = {cable.a_guid, cable.b_guid}
        far = next(iter(ends - {guid}), guid)
        if guid in ends and far in left and left[far] > 0:
            left[far] -= 1
        else:
            kept.append(cable)
    bench.cables = kept


def _spread(bench: Bench, guid: str, planes: tuple[Plane, ...], own: Plane | None) -> Counter[str]:
    """Return the cables that bring a switch to the usual number where its like follow no pattern."""
    cabling = bench.cabling
    alike = [other for plane in planes for other in plane.lower]
    totals = Counter(cabling.uplinks(other).total() for other in alike)
    usual = max(totals, key=lambda count: (totals[count], count), default=0)
    if 2 * totals[usual] < len(alike):
        usual = max(totals, default=0)
    above = sorted(cabling.uplinks(guid)) or (list(own.upper) if own else [])
    if not above:
        best = max(planes, key=lambda plane: (len(plane.lower), plane.lower), default=None)
        above = list(best.upper) if best else []
    missing = max(0, usual - cabling.uplinks(guid).total())
    return Counter(above[index % len(above)] for index in range(missing)) if above else Counter()


def give_spine_cables(bench: Bench, fault: Fault) -> Fabric | None:
    """Give a spine the cables to its leaves again."""
    spine, below = fault.switches[0], fault.switches[1:]
    rate = bench.usual_rate(cable for cable in bench.cabling.isls)
    plane = next((p for p in _planes(bench, below[0]) if spine in p.failed), None) if below else None
    if plane is None:
        return None
    for leaf in plane.lower:
        for _ in range(plane.usual - bench.cabling.neighbours[spine][leaf]):
            bench.connect(leaf, spine, rate)
    return bench.done()


def give_spine(bench: Bench, fault: Fault) -> Fabric | None:
    """Give the switches of a plane one more switch above, or as many as they lack."""
    planes = _planes(bench, fault.switches[0])
    plane = next((plane for plane in planes if fault.switches[0] in plane.lower), None)
    if plane is None or not plane.usual:
        return None
    full = max(other.full for other in planes)
    rate = bench.usual_rate(cable for cable in bench.cabling.isls)
    for _ in range((full - plane.full) // plane.usual):
        guid = bench.new_guid()
        bench.switches[guid] = Switch(guid=guid, description="spine", ports=bench.switches[plane.upper[0]].ports)
        for lower in plane.lower:
            for _ in range(plane.usual):
                bench.connect(lower, guid, rate)
    return bench.done()


def cable_spine(bench: Bench, fault: Fault) -> Fabric | None:
    """Cable a switch without cables as the spines of its name are: to the plane that has fewest."""
    if not fault.switches or not bench.cabling.by_leaf:
        return None
    guid, kind = fault.switches[0], _kind_of(bench, fault.switches[0])
    planes = [
        plane
        for plane in _planes(bench, next(iter(sorted(bench.cabling.by_leaf.keys() - bench.cabling.off_tier)), ""))
        if plane.usual and any(_kind_of(bench, upper) == kind for upper in plane.upper)
    ]
    plane = min(planes, key=lambda plane: (plane.full, plane.lower), default=None)
    if plane is None:
        return None
    rate = bench.usual_rate(cable for cable in bench.cabling.isls)
    for lower in plane.lower:
        for _ in range(plane.usual):
            bench.connect(lower, guid, rate)
    return bench.done()


def _kind_of(bench: Bench, guid: str) -> str:
    return family_of(bench.switches[guid].description)


def join(bench: Bench, fault: Fault) -> Fabric | None:
    """Give the leaves of a part that is cut off the uplinks that leaves usually have."""
    leaves = [guid for guid in fault.switches if guid in bench.cabling.by_leaf]
    cut = set(fault.switches)
    for leaf in leaves:
        planes = [plane for plane in _planes(bench, leaf) if not cut & set(plane.lower)]
        best = max(planes, key=lambda plane: (len(plane.lower), plane.lower), default=None)
        if best is None:
            return None
        rate = bench.usual_rate(cable for cable in bench.cabling.isls)
        for spine in best.upper:
            for _ in range(best.usual or 1):
                bench.connect(leaf, spine, rate)
    return bench.done() if leaves else None


def relieve_leaf(bench: Bench, fault: Fault) -> Fabric | None:
    """Give a crowded leaf uplinks until it has as much bandwidth upwards as from below."""
    leaf = fault.switches[0]
    down = sum(link.cable.bytes_per_s for link in bench.cabling.by_leaf.get(leaf, ()))
    above = sorted(bench.cabling.uplinks(leaf).items(), key=lambda item: (item[1], item[0]))
    rate = bench.usual_rate(cable for cable in bench.cabling.isls)
    if not above or not link_bytes_per_s(*rate):
        return None
    up, index = bench.cabling.up_bytes_per_s.get(leaf, 0.0), 0
    while up < down:
        bench.connect(leaf, above[index % len(above)][0], rate)
        up, index = up + link_bytes_per_s(*rate), index + 1
    return bench.done()


def widen_tier(bench: Bench, fault: Fault) -> Fabric | None:
    """Give a tier full bandwidth upwards: its cables there carry as much more as they lack."""
    cabling = bench.cabling
    tier = cabling.tier.get(fault.switches[0]) if fault.switches else None
    ratio: Mapping[int, float | None] = {
        entry.tier: entry.ratio for entry in tier_capacities(cabling.links, cabling.isls, cabling.tier)
    }
    if tier is None or not (factor := ratio.get(tier)):
        return None
    cables = []
    for cable in bench.cables:
        low, high = sorted((cabling.tier.get(cable.a_guid, -1), cabling.tier.get(cable.b_guid, -1)))
        up = cable.a_guid in bench.switches and cable.b_guid in bench.switches and low == tier < high
        cables.append(dataclasses.replace(cable, bytes_per_s=cable.bytes_per_s * factor) if up else cable)
    bench.cables = cables
    return bench.done()

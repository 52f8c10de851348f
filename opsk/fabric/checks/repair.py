"""What would the fabric be without one finding? The same fabric, with that one thing put right.

The price of a fault is what a job gains when it is gone; this is where the sound fabric to compare with comes from.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from opsk.fabric.cabling import Cabling, read_cabling
from opsk.fabric.checks.edits import Bench, End
from opsk.fabric.checks.links import ends, isls_by_sort, links_by_sort
from opsk.fabric.checks.missing_rails import carried_rails, find_gaps
from opsk.fabric.checks.tier_capacity import tier_capacities
from opsk.fabric.fabric import Cable, Fabric, Fault, Hca, Switch
from opsk.fabric.hosts.ports import family_of
from opsk.fabric.link_speed import link_bytes_per_s
from opsk.fabric.numbering import Numbering
from opsk.fabric.uplinks import Plane, find_planes


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


def is_repairable(fault: Fault) -> bool:
    """Return whether there is anything of the cabling that could be put right about a finding of this kind."""
    return fault.kind in _REPAIRS


def repaired(fabric: Fabric, fault: Fault, *, cabling: Cabling | None = None) -> Fabric | None:
    """Return the fabric as it would be without ``fault``, or ``None`` where nothing of its cabling is to be changed.

    HCAs go where the others of their rail are, missing cables and HCAs are added, links run at the usual width and
    speed. Names that stand for several machines, or for none, are not guessed. The other faults stay.

    Parameters
    ----------
    fault
        A finding of ``find_rails`` on this very fabric.
    cabling
        What ``read_cabling`` says of it, where it is at hand: saves reading it for each of many findings.
    """
    repair = _REPAIRS.get(fault.kind)
    return repair(Bench(fabric, cabling or read_cabling(fabric)), fault) if repair else None


def _ends_of(cable: Cable, hca: str) -> tuple[End, End]:
    """Return the end at an HCA, and the other one."""
    one, other = (cable.a_guid, cable.a_port), (cable.b_guid, cable.b_port)
    return (one, other) if cable.a_guid == hca else (other, one)


def _unswap(bench: Bench, fault: Fault) -> Fabric | None:
    """Cable each HCA of the ring where the next one is: that is where it belongs."""
    cables = bench.take(fault.cables)
    if len(cables) != len(fault.devices) or len(cables) < 2:
        return None
    both = [_ends_of(cable, hca) for cable, hca in zip(cables, fault.devices, strict=True)]
    for index, (own, _) in enumerate(both):
        cable, far = cables[index], both[(index + 1) % len(both)][1]
        bench.lay(own, far, cable.width, cable.speed)
    return bench.done()


def _to_its_leaf(bench: Bench, fault: Fault) -> Fabric | None:
    """Move the HCA to the leaf that the others of its rail are on; one whose place is not known is taken off."""
    cables = bench.take(fault.cables)
    if not cables:
        return None
    if len(fault.switches) > 1:
        own, _ = _ends_of(cables[0], fault.devices[0])
        leaf = fault.switches[1]
        bench.lay(own, (leaf, bench.free_port(leaf)), cables[0].width, cables[0].speed)
        return bench.done()
    _forget(bench, fault.devices)
    return bench.done()


def _forget(bench: Bench, hcas: Iterable[str]) -> None:
    """Take HCAs off, where no cable is left to them."""
    cabled = {guid for cable in bench.cables for guid in (cable.a_guid, cable.b_guid)}
    for guid in hcas:
        if guid not in cabled:
            bench.hcas.pop(guid, None)


def _add_hca(bench: Bench, node: str, device: str, leaf: str, like: tuple[int, str]) -> None:
    guid = bench.new_guid()
    bench.hcas[guid] = Hca(guid=guid, description=f"{node} {device}", node=node, device=device)
    bench.lay((guid, 1), (leaf, bench.free_port(leaf)), *like)


def _give_rail(bench: Bench, fault: Fault) -> Fabric | None:
    """Give a node the HCAs of the rails that it lacks, and its unit the leaves for them."""
    cabling, numbering = bench.cabling, bench.numbering()
    gaps = find_gaps(cabling, numbering)
    own = next((gap for gap in gaps if gap.host.name == fault.nodes[0]), None)
    if own is None:
        return None
    carried = carried_rails(cabling, numbering, own.unit)
    for rail in own.rails:
        if rail in carried:
            _give_device(bench, numbering, own.host.name, rail, carried[rail][0])
        else:
            mates = [gap.host.name for gap in gaps if gap.unit == own.unit and rail in gap.rails]
            _add_leaf(bench, numbering, cabling.units[own.unit].leaves, mates, rail)
    return bench.done()


def _give_device(bench: Bench, numbering: Numbering, node: str, rail: int, leaf: str) -> None:
    """Add the HCA of a rail to a node."""
    like = bench.usual_rate(link.cable for link in bench.cabling.links)
    _add_hca(bench, node, _device(bench.cabling, numbering, node, rail), leaf, like)


def _device(cabling: Cabling, numbering: Numbering, node: str, rail: int) -> str:
    """Return what the HCA of a rail is called on the node whose device names agree most with this one's."""
    own = {port.device for host in cabling.compute if host.name == node for port in host.ports}
    best: tuple[int, str] = (-1, f"rail{rail}")
    for host in cabling.compute:
        devices = [port.device for port in host.ports]
        at = [index for index, entry in enumerate(numbering.rails_of[host.name]) if entry == rail]
        alike = len(own.intersection(devices))
        if at and alike > best[0] and devices[at[0]] not in own:
            best = (alike, devices[at[0]])
    return best[1]


def _give_leaf(bench: Bench, fault: Fault) -> Fabric | None:
    """Give a unit the leaf that it lacks."""
    numbering = bench.numbering()
    gaps = [gap for gap in find_gaps(bench.cabling, numbering) if gap.host.name in fault.nodes]
    shared = set.intersection(*(set(gap.rails) for gap in gaps)) if gaps else set()
    rail = next((rail for rail in sorted(shared) if fault.where.endswith(f"rail {rail}")), None)
    if rail is None:
        return None
    _add_leaf(bench, numbering, fault.switches, fault.nodes, rail)
    return bench.done()


def _add_leaf(bench: Bench, numbering: Numbering, mates: Iterable[str], nodes: Iterable[str], rail: int) -> None:
    """Add a leaf for a rail with uplinks as the unit's other leaves have, and its nodes' HCAs on it."""
    cabling = bench.cabling
    model = max(mates, key=lambda guid: (cabling.uplinks(guid).total(), guid))
    guid = bench.new_guid()
    bench.switches[guid] = Switch(guid=guid, description=f"leaf for rail {rail}", ports=bench.switches[model].ports)
    rate = bench.usual_rate(cable for cable in cabling.isls if model in (cable.a_guid, cable.b_guid))
    for spine, count in sorted(cabling.uplinks(model).items()):
        for _ in range(count):
            bench.connect(guid, spine, rate)
    for node in nodes:
        _give_device(bench, numbering, node, rail, guid)


def _more_hcas(bench: Bench, fault: Fault) -> Fabric | None:
    """Give a node as many HCAs as most of its family, on the leaves that its own are on."""
    cabling = bench.cabling
    host = next((host for host in cabling.compute if host.name in fault.nodes), None)
    if host is None:
        return None
    counts = Counter(len(other.ports) for other in cabling.compute if other.family == host.family)
    usual = max(counts, key=lambda count: (counts[count], count))
    model = next(other for other in cabling.compute if other.family == host.family and len(other.ports) == usual)
    own = {port.device for port in host.ports}
    used = Counter(port.switch for port in host.ports)
    for port in [port for port in model.ports if port.device not in own][: usual - len(host.ports)]:
        leaf = min(used, key=lambda guid: (used[guid], guid))
        used[leaf] += 1
        _add_hca(bench, host.name, port.device, leaf, (port.width, port.speed))
    return bench.done()


def _usual_rate(bench: Bench, fault: Fault) -> Fabric | None:
    """Let the links run at what is usual for their sort, or at what the other sorts run at."""
    wanted = set(fault.cables)
    rates: dict[tuple[str, int, str, int], tuple[int, str]] = {}
    isls = [cable for cable in bench.cabling.isls if cable.a_guid != cable.b_guid]
    for sort in (*links_by_sort(bench.cabling), *isls_by_sort(bench.cabling, isls)):
        for cable in sort.cables:
            if ends(cable) in wanted:
                slower = cable.bytes_per_s < sort.usual_bytes_per_s
                rates[ends(cable)] = sort.usual if slower else sort.best
    if not rates:
        return None
    bench.cables = [_at_rate(cable, rates.get(ends(cable))) for cable in bench.cables]
    return bench.done()


def _at_rate(cable: Cable, rate: tuple[int, str] | None) -> Cable:
    if rate is None:
        return cable
    return dataclasses.replace(cable, width=rate[0], speed=rate[1], bytes_per_s=link_bytes_per_s(*rate))


def _without_cables(bench: Bench, fault: Fault) -> Fabric | None:
    """Take the cables away that should not be."""
    bench.take(fault.cables)
    _forget(bench, fault.devices)
    return bench.done()


def _one_cable(bench: Bench, fault: Fault) -> Fabric | None:
    """Leave an HCA its first cable."""
    bench.take(sorted(fault.cables)[1:])
    return bench.done()


_REPAIRS: Mapping[str, Callable[[Bench, Fault], Fabric | None]] = {
    "swapped_hcas": _unswap,
    "misplaced_hca": _to_its_leaf,
    "missing_rail": _give_rail,
    "missing_leaf": _give_leaf,
    "fewer_hcas": _more_hcas,
    "slow_link": _usual_rate,
    "narrow_link": _usual_rate,
    "loop_cable": _without_cables,
    "cables_inside_a_tier": _without_cables,
    "host_off_tier": _without_cables,
    "two_cables_on_one_hca": _one_cable,
    "leaf_short_of_uplinks": give_uplinks,
    "spine_short_of_uplinks": give_uplinks,
    "uneven_uplinks": give_uplinks,
    "spine_short_of_cables": give_spine_cables,
    "missing_spine": give_spine,
    "no_cable": cable_spine,
    "isolated_part": join,
    "oversubscribed_leaf": relieve_leaf,
    "oversubscribed_tier": widen_tier,
}

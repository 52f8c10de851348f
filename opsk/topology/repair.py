"""What would the fabric be without one finding? The same fabric, with that one thing put right.

The price of a fault is what a job gains when it is gone; this is where the sound fabric to compare with comes from.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from opsk.topology.cabling import Cabling, read_cabling
from opsk.topology.fabric import Cable, Fabric, Fault, Hca, Switch
from opsk.topology.link_faults import ends, isls_by_sort, links_by_sort
from opsk.topology.link_speed import link_bytes_per_s
from opsk.topology.numbering import Numbering
from opsk.topology.rail_gaps import carried_rails, find_gaps
from opsk.topology.uplink_repairs import (
    cable_spine,
    give_spine,
    give_spine_cables,
    give_uplinks,
    join,
    relieve_leaf,
    widen_tier,
)
from opsk.topology.workbench import Bench, End


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

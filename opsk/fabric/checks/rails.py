"""Reports HCAs on another rail than in the other nodes, nodes that lack a rail, and HCAs that a node has lost.

To name a lost HCA, the names of the node's devices are compared with those of the unit's complete nodes. Where the
driver has renumbered the devices, or no complete node names them in that style, only the leaf is reported: the one on
which the node has fewer HCAs than the others.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from opsk.fabric.cabling import Cabling, Crossed
from opsk.fabric.checks.links import cable_ends
from opsk.fabric.fabric import Fault
from opsk.fabric.graph import HcaLink
from opsk.fabric.hosts.hosts import Host
from opsk.fabric.hosts.ports import HostPort, mask_numbers
from opsk.fabric.numbering import Numbering

_Slot = tuple[int, ...]
_MAJORITY_SHARE = 0.5
_NEARLY = 0.75
"""A family of hosts with at least this share of the rails that most nodes have should have them all."""
_MIN_FAMILY = 4


def name_lost_hcas(cabling: Cabling, faults: Iterable[Fault]) -> Iterator[Fault]:
    """Yield the faults; those of nodes with fewer HCAs name the lost ones where that is possible."""
    hosts = {host.name: host for host in cabling.compute}
    for fault in faults:
        if fault.kind == "fewer_hcas" and fault.nodes and fault.nodes[0] in hosts:
            yield _describe_lost(cabling, hosts[fault.nodes[0]], fault)
        else:
            yield fault


def _describe_lost(cabling: Cabling, host: Host, fault: Fault) -> Fault:
    mates = _find_complete_mates(cabling, host)
    if not mates:
        return dataclasses.replace(fault, evidence=f"{fault.evidence}; which one is gone cannot be told")
    short = _count_usual_leaves(mates) - Counter(port.switch for port in host.ports)
    lost = _find_lost_ports(host, mates)
    by_name = Counter(port.switch for port in lost)
    if lost and (by_name == short or not _is_renumbered(host, mates)):
        details = "; ".join(
            f"{port.device} is missing, {_count_holders(mates, port)} other nodes of the unit have it on "
            f"{cabling.name(port.switch)}"
            for port in lost
        )
        return _extend_evidence(fault, details, list(by_name))
    if short.total() != len(mates[0].ports) - len(host.ports):
        return dataclasses.replace(fault, evidence=f"{fault.evidence}; which one is gone cannot be told")
    details = "; ".join(f"{cabling.name(leaf)} lacks {count} of its HCAs" for leaf, count in short.items())
    return _extend_evidence(fault, f"{details}, their names do not tell which", list(short))


def _extend_evidence(fault: Fault, details: str, leaves: Sequence[str]) -> Fault:
    return dataclasses.replace(fault, evidence=f"{fault.evidence}; {details}", switches=tuple(leaves))


def _find_complete_mates(cabling: Cabling, host: Host) -> list[Host]:
    """Return the nodes of a host's unit with as many HCAs as most of them, where that is more than it has."""
    unit = cabling.unit_of.get(host.name)
    mates = [other for other in cabling.compute if cabling.unit_of.get(other.name) == unit and other is not host]
    sizes = Counter(len(other.ports) for other in mates)
    usual = max(sizes, key=lambda size: (sizes[size], size), default=0)
    return [other for other in mates if len(other.ports) == usual] if usual > len(host.ports) else []


def _find_lost_ports(host: Host, mates: Sequence[Host]) -> list[HostPort]:
    """Return the ports that most complete nodes with the same device names have and the host lacks."""
    own_slots = {port.slot for port in host.ports}
    style = _naming_style(host)
    similar = [
        mate for mate in mates if _naming_style(mate) == style and own_slots < {port.slot for port in mate.ports}
    ]
    patterns = Counter(tuple(port.slot for port in mate.ports) for mate in similar)
    if not patterns:
        return []
    usual = max(patterns, key=lambda pattern: (patterns[pattern], pattern))
    similar = [mate for mate in similar if tuple(port.slot for port in mate.ports) == usual]
    return [_find_usual_port(similar, slot) for slot in usual if slot not in own_slots]


def _find_usual_port(mates: Sequence[Host], slot: _Slot) -> HostPort:
    """Return a port at a slot that is on the leaf where most nodes have it."""
    ports = [port for mate in mates for port in mate.ports if port.slot == slot]
    leaves = Counter(port.switch for port in ports)
    return max(ports, key=lambda port: leaves[port.switch])


def _is_renumbered(host: Host, mates: Sequence[Host]) -> bool:
    """Return whether a host's devices are the first of similar nodes, but on other leaves."""
    places = Counter((port.slot, port.switch) for mate in mates for port in mate.ports)
    first = sorted({port.slot for mate in mates for port in mate.ports})[: len(host.ports)]
    out_of_place = any(not places[port.slot, port.switch] for port in host.ports)
    return out_of_place and [port.slot for port in host.ports] == first


def _count_usual_leaves(mates: Sequence[Host]) -> Counter[str]:
    """Return how many HCAs a whole node has on each leaf, as most have."""
    patterns = Counter(tuple(sorted(port.switch for port in mate.ports)) for mate in mates)
    usual = max(patterns, key=lambda pattern: (patterns[pattern], pattern))
    return Counter(usual)


def _count_holders(mates: Sequence[Host], lost: HostPort) -> int:
    return sum(any((p.slot, p.switch) == (lost.slot, lost.switch) for p in mate.ports) for mate in mates)


def _naming_style(host: Host) -> frozenset[str]:
    """Return how a host's devices are called, without numbers."""
    return frozenset(mask_numbers(port.device) for port in host.ports)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A node of a unit and the rails that it lacks, out of ``usual`` that similar nodes have."""

    host: Host
    unit: int
    rails: tuple[int, ...]
    usual: int


def check_missing_rails(cabling: Cabling, numbering: Numbering) -> Iterator[Fault]:
    """Yield units without a leaf for a rail, nodes without a rail, nodes with fewer HCAs than similar nodes."""
    gaps = find_gaps(cabling, numbering)
    by_unit: defaultdict[int, list[Gap]] = defaultdict(list)
    for gap in gaps:
        by_unit[gap.unit].append(gap)
    for index in sorted(by_unit):
        carried = group_leaves_by_rail(cabling, numbering, index)
        yield from _check_missing_leaves(cabling, index, by_unit[index], carried)
        for gap in by_unit[index]:
            rails = _drop_explained(cabling, gap)
            if rails:
                yield _missing_rail_fault(cabling, numbering, gap, rails, carried)
    yield from _check_hca_counts(cabling, {gap.host.name for gap in gaps})


def find_gaps(cabling: Cabling, numbering: Numbering) -> list[Gap]:
    """Return the nodes that lack a rail which similar nodes have, in units whose device names follow the rails."""
    usual = _find_usual_rails(cabling, numbering)
    gaps = []
    for host in cabling.compute:
        unit = cabling.unit_of.get(host.name)
        if unit is None or not numbering.follows_names[unit]:
            continue
        expected = usual[host.family]
        without = expected.difference(numbering.rails_of[host.name])
        if without:
            gaps.append(Gap(host=host, unit=unit, rails=tuple(sorted(without)), usual=len(expected)))
    order = {name: index for unit in cabling.units for index, name in enumerate(unit.nodes)}
    return sorted(gaps, key=lambda gap: (gap.unit, order[gap.host.name]))


def group_leaves_by_rail(cabling: Cabling, numbering: Numbering, unit: int) -> dict[int, list[str]]:
    """Return the leaves of a unit by the rails that they carry."""
    carried: defaultdict[int, list[str]] = defaultdict(list)
    for leaf in cabling.units[unit].leaves:
        for rail in numbering.carries[leaf]:
            carried[rail].append(leaf)
    return carried


def format_unit(cabling: Cabling, index: int) -> str:
    """Return what people call a unit: its first and last node."""
    nodes = cabling.units[index].nodes
    return f"unit {index} ({nodes[0]} to {nodes[-1]})" if nodes else f"unit {index}"


def _check_missing_leaves(
    cabling: Cabling, index: int, gaps: Sequence[Gap], carried: Mapping[int, Sequence[str]]
) -> Iterator[Fault]:
    nodes = cabling.units[index].nodes
    lacking: defaultdict[int, list[str]] = defaultdict(list)
    for gap in gaps:
        for rail in gap.rails:
            lacking[rail].append(gap.host.name)
    for rail, names in sorted(lacking.items()):
        if rail not in carried and len(names) > _MAJORITY_SHARE * len(nodes) and len(nodes) > 1:
            yield Fault(
                kind="missing_leaf",
                where=f"{format_unit(cabling, index)}: rail {rail}",
                evidence=f"no leaf of this unit carries rail {rail}; {len(names)} of {len(nodes)} nodes lack that HCA",
                cost="one rail less for every job here",
                nodes=tuple(names),
                switches=cabling.units[index].leaves,
            )


def _drop_explained(cabling: Cabling, gap: Gap) -> tuple[int, ...]:
    """Return the rails that a node lacks for a cause not yet reported: none where its HCAs are cabled elsewhere."""
    crossed = cabling.crossed.get(gap.host.name)
    return gap.rails[len(crossed.missed) :] if crossed else gap.rails


def _missing_rail_fault(
    cabling: Cabling, numbering: Numbering, gap: Gap, rails: Sequence[int], carried: Mapping[int, Sequence[str]]
) -> Fault:
    host = gap.host
    absent = [rail for rail in rails if rail not in carried]
    why = f"; its unit has no leaf for rail {', '.join(map(str, absent))}" if absent else ""
    right = [leaf for rail in rails for leaf in carried.get(rail, ())]
    unnamed = sum(1 for leaf in right for link in cabling.by_leaf[leaf] if cabling.fabric.hcas[link.hca].node is None)
    if unnamed:
        why += f"; {unnamed} HCAs without a host name are on that leaf: it may be one of them"
    has = ", ".join(port.device for port in host.ports)
    return Fault(
        kind="missing_rail",
        where=host.name,
        evidence=f"has {has} on the compute fabric, none on rail {', '.join(map(str, rails))}{why}",
        cost=f"{(gap.usual - len(rails)) / gap.usual:.0%} of the inter-node bandwidth of its kind",
        nodes=(host.name,),
        switches=tuple(right),
    )


def _find_usual_rails(cabling: Cabling, numbering: Numbering) -> dict[str, frozenset[int]]:
    """Return for each family of hosts the rails that at least half of them have; small gaps are those of all nodes."""
    members = Counter(host.family for host in cabling.compute)
    has: Counter[tuple[str, int]] = Counter()
    all_have: Counter[int] = Counter()
    for host in cabling.compute:
        rails = set(numbering.rails_of[host.name])
        all_have.update(rails)
        for rail in rails:
            has[host.family, rail] += 1
    overall = frozenset(rail for rail, count in all_have.items() if count >= _MAJORITY_SHARE * len(cabling.compute))
    usual: dict[str, frozenset[int]] = {}
    for family, count in members.items():
        rails = {rail for rail in all_have if has[family, rail] >= _MAJORITY_SHARE * count}
        nearly = len(rails & overall) >= _NEARLY * len(overall)
        alone = count < _MIN_FAMILY and 2 * len(rails) >= len(overall)
        usual[family] = frozenset(rails | overall) if nearly or alone else frozenset(rails)
    return usual


def _check_hca_counts(cabling: Cabling, reported: set[str]) -> Iterator[Fault]:
    """Yield the nodes with fewer HCAs than most of their family, though none of their rails is without one."""
    counts: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for host in cabling.compute:
        counts[host.family][len(host.ports)] += 1
    for host in cabling.compute:
        votes = counts[host.family]
        usual = max(votes, key=lambda count: (votes[count], count))
        odd = len(host.ports) < usual and votes[usual] > _MAJORITY_SHARE * votes.total()
        if odd and host.name not in reported and host.name not in cabling.crossed:
            yield Fault(
                kind="fewer_hcas",
                where=host.name,
                evidence=f"{len(host.ports)} HCAs on the compute fabric, {votes[usual]} of {votes.total()} nodes of "
                f"its kind have {usual}",
                cost=f"{len(host.ports) / usual:.0%} of the inter-node bandwidth of its kind",
                nodes=(host.name,),
            )


@dataclass(frozen=True, slots=True)
class _Misplaced:
    """A port whose rail is ``rail``, on a leaf that carries others."""

    port: HostPort
    rail: int


@dataclass(frozen=True, slots=True)
class _Search:
    """The input of the search for misplaced HCAs; ``link_of`` finds the cable of a port."""

    cabling: Cabling
    numbering: Numbering
    hosts: Mapping[str, Host]
    link_of: Mapping[tuple[str, str], HcaLink]

    def cables(self, ports: Sequence[HostPort]) -> tuple[tuple[str, int, str, int], ...]:
        """Return the ends of the cables of ports."""
        return tuple(cable_ends(self.link_of[port.guid, port.switch].cable) for port in ports)


def check_rails(cabling: Cabling, numbering: Numbering) -> Iterator[Fault]:
    """Yield swapped and misplaced HCAs, units without a rail, nodes without a rail."""
    hosts = {host.name: host for host in cabling.compute}
    link_of = {(link.hca, link.switch): link for link in cabling.links}
    search = _Search(cabling, numbering, hosts, link_of)
    for index, unit in enumerate(cabling.units):
        if not numbering.follows_names[index]:
            yield Fault(
                kind="names_follow_no_rail",
                where=format_unit(cabling, index),
                evidence="device names and leaves of its nodes do not agree; rails are numbered by leaf there",
                cost="NCCL_IB_HCA must be set for each node",
                nodes=unit.nodes,
                switches=unit.leaves,
            )
            continue
        for name in unit.nodes:
            yield from _check_misplaced(search, hosts[name])
    for name, crossed in cabling.crossed.items():
        yield from _check_crossed(search, name, crossed)
    yield from check_missing_rails(cabling, numbering)


def _check_misplaced(search: _Search, host: Host) -> Iterator[Fault]:
    """Yield a fault for each ring of exchanged HCAs of a node, and for each other HCA on a wrong leaf."""
    unit_of, numbering = search.cabling.unit_of, search.numbering
    unit = unit_of[host.name]
    odd = [
        _Misplaced(port, rail)
        for rail, port in zip(numbering.rails_of[host.name], host.ports, strict=True)
        if unit_of.get(port.switch) != unit or rail not in numbering.carries[port.switch]
    ]
    if not odd:
        return
    rings, strays = _find_rings(search, unit, odd)
    for ring in rings:
        yield _swap_fault(search, host, ring)
    for stray in strays:
        yield _stray_fault(search, host, stray)


def _find_rings(search: _Search, unit: int, odd: list[_Misplaced]) -> tuple[list[list[_Misplaced]], list[_Misplaced]]:
    """Return the rings in which each HCA is where the one before it belongs, short ones first, and what is left."""
    left = list(odd)
    rings = []
    for longest in (2, len(odd)):
        for start in odd:
            if start in left:
                ring = _find_ring(search, unit, start, left, longest)
                if ring:
                    rings.append(ring)
                    left = [entry for entry in left if entry not in ring]
    return rings, left


def _find_ring(
    search: _Search, unit: int, start: _Misplaced, left: Sequence[_Misplaced], longest: int
) -> list[_Misplaced]:
    """Return the ring from ``start`` on, empty where it does not close."""
    ring = [start]
    while len(ring) <= longest:
        belongs = [entry for entry in left if _is_swapped_with(search, unit, ring[-1], entry)]
        if len(ring) > 1 and start in belongs:
            return ring
        further = [entry for entry in belongs if entry not in ring]
        if longest == 2:
            further = [entry for entry in further if _is_swapped_with(search, unit, entry, start)]
        if not further:
            return []
        ring.append(further[0])
    return []


def _is_swapped_with(search: _Search, unit: int, misplaced: _Misplaced, occupant: _Misplaced) -> bool:
    """Return whether ``occupant`` is where ``misplaced`` belongs."""
    switch = occupant.port.switch
    return misplaced.rail in search.numbering.carries.get(switch, ()) and search.cabling.unit_of.get(switch) == unit


def _swap_fault(search: _Search, host: Host, ring: Sequence[_Misplaced]) -> Fault:
    name = search.cabling.name
    ports = [entry.port for entry in ring]
    placed = sorted(ring, key=lambda entry: host.ports.index(entry.port))
    places = [f"{entry.port.device} is on {name(entry.port.switch)}" for entry in placed]
    peers = min(
        _count_peers(search, host, entry.rail, ring[(index + 1) % len(ring)].port.switch)
        for index, entry in enumerate(ring)
    )
    order = "the other way round" if len(ring) == 2 else "in the usual order"
    return Fault(
        kind="swapped_hcas",
        where=f"{host.name}: {_join_words([entry.port.device for entry in placed])}",
        evidence=f"{_join_words(places)}; {peers} other nodes of the unit have them {order}",
        cost=f"traffic of {len(ring)} of its {len(host.ports)} HCAs changes rail on the way: through a spine, or "
        "NVLink first",
        nodes=(host.name,),
        switches=tuple(port.switch for port in ports),
        devices=tuple(port.guid for port in ports),
        cables=search.cables(ports),
    )


def _stray_fault(search: _Search, host: Host, odd: _Misplaced) -> Fault:
    cabling, carries = search.cabling, search.numbering.carries
    unit = cabling.unit_of[host.name]
    right = [leaf for leaf in cabling.units[unit].leaves if odd.rail in carries[leaf]]
    elsewhere = " or ".join(cabling.name(leaf) for leaf in right) or "another leaf"
    peers = sum(_count_peers(search, host, odd.rail, leaf) for leaf in right)
    other_unit = cabling.unit_of.get(odd.port.switch)
    which = "" if other_unit in (None, unit) else f" of {format_unit(cabling, other_unit or 0)}"
    return Fault(
        kind="misplaced_hca",
        where=f"{host.name}: {odd.port.device}",
        evidence=f"is on {cabling.name(odd.port.switch)}{which}; {peers} other nodes of the unit have it on "
        f"{elsewhere}",
        cost="its traffic to the rest of its rail crosses a spine",
        nodes=(host.name,),
        switches=(odd.port.switch, *right),
        devices=(odd.port.guid,),
        cables=search.cables([odd.port]),
    )


def _check_crossed(search: _Search, name: str, crossed: Crossed) -> Iterator[Fault]:
    """Yield the HCAs of a node that are on the compute fabric where similar nodes do not have them, or the reverse."""
    switch_name = search.cabling.name
    missed = [port for port in crossed.missed if port.switch not in search.cabling.off_tier]
    for missed_port, strayed_port in zip(missed, crossed.strayed, strict=False):
        ports = [missed_port, strayed_port]
        yield Fault(
            kind="swapped_hcas",
            where=f"{name}: {missed_port.device} and {strayed_port.device}",
            evidence=f"{missed_port.device} is on {switch_name(missed_port.switch)}, off the compute fabric, and "
            f"{strayed_port.device} on {switch_name(strayed_port.switch)}; nodes with the same HCAs have them the "
            "other way round",
            cost="one rail less for its jobs, and storage traffic on a rail",
            nodes=(name,),
            switches=tuple(port.switch for port in ports),
            devices=tuple(port.guid for port in ports),
            cables=search.cables(ports),
        )
    paired = min(len(missed), len(crossed.strayed))
    for port, where in [(p, "off") for p in missed[paired:]] + [(p, "on") for p in crossed.strayed[paired:]]:
        yield Fault(
            kind="misplaced_hca",
            where=f"{name}: {port.device}",
            evidence=f"is on {switch_name(port.switch)}, {where} the compute fabric, other than on nodes with the same "
            "HCAs",
            cost="one rail less for its jobs" if where == "off" else "traffic of another fabric on a rail",
            nodes=(name,),
            switches=(port.switch,),
            devices=(port.guid,),
            cables=search.cables([port]),
        )


def _count_peers(search: _Search, host: Host, rail: int, leaf: str) -> int:
    """Return how many other nodes of the unit have the HCA of ``rail`` on ``leaf``."""
    rails_of = search.numbering.rails_of
    return sum(
        any(
            port.switch == leaf and port_rail == rail
            for port_rail, port in zip(rails_of[name], search.hosts[name].ports, strict=True)
        )
        for name in search.cabling.units[search.cabling.unit_of[host.name]].nodes
        if name != host.name
    )


def _join_words(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)

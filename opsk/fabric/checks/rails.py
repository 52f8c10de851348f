"""Reports HCAs that are not on the rail where the other nodes have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from opsk.fabric.cabling import Cabling
from opsk.fabric.checks.links import cable_ends
from opsk.fabric.checks.missing_rails import check_missing_rails, format_unit
from opsk.fabric.crossed_cables import Crossed
from opsk.fabric.fabric import Fault
from opsk.fabric.graph import HcaLink
from opsk.fabric.hosts.hosts import Host
from opsk.fabric.hosts.ports import HostPort
from opsk.fabric.numbering import Numbering


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
        belongs = [entry for entry in left if _is_in_place_of(search, unit, ring[-1], entry)]
        if len(ring) > 1 and start in belongs:
            return ring
        further = [entry for entry in belongs if entry not in ring]
        if longest == 2:
            further = [entry for entry in further if _is_in_place_of(search, unit, entry, start)]
        if not further:
            return []
        ring.append(further[0])
    return []


def _is_in_place_of(search: _Search, unit: int, misplaced: _Misplaced, occupant: _Misplaced) -> bool:
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

"""Which HCAs are not on the rail where the other nodes have them, and which nodes lack one?"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from opsk.topology.cabling import Cabling
from opsk.topology.fabric import Fault
from opsk.topology.hosts import Host, HostPort
from opsk.topology.numbering import Numbering

_MOST = 0.5


@dataclass(frozen=True, slots=True)
class _Misplaced:
    """A port whose rail is ``rail``, on a leaf that carries others."""

    port: HostPort
    rail: int


def rail_faults(cabling: Cabling, numbering: Numbering) -> Iterator[Fault]:
    """Yield swapped and misplaced HCAs, units without a rail, nodes without a rail."""
    hosts = {host.name: host for host in cabling.compute}
    usual = _usual_rails(cabling, numbering)
    for index, unit in enumerate(cabling.units):
        if not numbering.follows_names[index]:
            yield Fault(
                kind="names_follow_no_rail",
                where=_unit(cabling, index),
                evidence="device names and leaves of its nodes do not agree; rails are numbered by leaf there",
                cost="NCCL_IB_HCA must be set for each node",
            )
            continue
        for name in unit.nodes:
            yield from _misplaced(cabling, numbering, hosts[name])
        yield from _missing(cabling, numbering, usual, index)


def _misplaced(cabling: Cabling, numbering: Numbering, host: Host) -> Iterator[Fault]:
    """Yield a fault for each pair of swapped HCAs of a node, and for each other HCA on a wrong leaf."""
    unit = cabling.unit_of[host.name]
    odd = [
        _Misplaced(port, numbering.rail_of[host.name, index])
        for index, port in enumerate(host.ports)
        if cabling.unit_of.get(port.switch) != unit
        or numbering.rail_of[host.name, index] not in numbering.carries[port.switch]
    ]
    while odd:
        one = odd.pop(0)
        other = next((entry for entry in odd if _exchanged(numbering, one, entry)), None)
        if other is None:
            yield _stray(cabling, numbering, host, one)
        else:
            odd.remove(other)
            yield _swapped(cabling, numbering, host, one, other)


def _exchanged(numbering: Numbering, one: _Misplaced, other: _Misplaced) -> bool:
    carries = numbering.carries
    return one.rail in carries.get(other.port.switch, ()) and other.rail in carries.get(one.port.switch, ())


def _swapped(cabling: Cabling, numbering: Numbering, host: Host, one: _Misplaced, other: _Misplaced) -> Fault:
    a, b = cabling.name(one.port.switch), cabling.name(other.port.switch)
    peers = _peers(cabling, numbering, host, one.rail, other.port.switch)
    return Fault(
        kind="swapped_hcas",
        where=f"{host.name}: {one.port.device} and {other.port.device}",
        evidence=f"{one.port.device} is on {a} and {other.port.device} on {b}; "
        f"{peers} other nodes of the unit have them the other way round",
        cost=f"traffic of 2 of its {len(host.ports)} HCAs changes rail on the way: through a spine, or NVLink first",
    )


def _stray(cabling: Cabling, numbering: Numbering, host: Host, odd: _Misplaced) -> Fault:
    unit = cabling.units[cabling.unit_of[host.name]]
    right = [leaf for leaf in unit.leaves if odd.rail in numbering.carries[leaf]]
    elsewhere = " or ".join(cabling.name(leaf) for leaf in right) or "another leaf"
    peers = sum(_peers(cabling, numbering, host, odd.rail, leaf) for leaf in right)
    return Fault(
        kind="misplaced_hca",
        where=f"{host.name}: {odd.port.device}",
        evidence=f"is on {cabling.name(odd.port.switch)}; {peers} other nodes of the unit have it on {elsewhere}",
        cost="its traffic to the rest of its rail crosses a spine",
    )


def _peers(cabling: Cabling, numbering: Numbering, host: Host, rail: int, leaf: str) -> int:
    """Return how many other nodes of the unit have the HCA of ``rail`` on ``leaf``."""
    members = set(cabling.units[cabling.unit_of[host.name]].nodes) - {host.name}
    return sum(
        any(
            port.switch == leaf and numbering.rail_of[peer.name, index] == rail for index, port in enumerate(peer.ports)
        )
        for peer in cabling.compute
        if peer.name in members
    )


def _missing(cabling: Cabling, numbering: Numbering, usual: Mapping[str, set[int]], index: int) -> Iterator[Fault]:
    """Yield a fault for each node that lacks a rail which most nodes of its kind have, and one for a unit without."""
    members = set(cabling.units[index].nodes)
    hosts = [host for host in cabling.compute if host.name in members]
    lacking: defaultdict[int, list[str]] = defaultdict(list)
    carried = {rail for leaf in cabling.units[index].leaves for rail in numbering.carries[leaf]}
    found: list[tuple[Host, list[int]]] = []
    for host in hosts:
        has = {numbering.rail_of[host.name, position] for position in range(len(host.ports))}
        without = sorted(usual[host.family] - has)
        if without:
            found.append((host, without))
        for rail in without:
            lacking[rail].append(host.name)
    for rail, names in sorted(lacking.items()):
        if rail not in carried and len(names) > _MOST * len(hosts) and len(hosts) > 1:
            yield Fault(
                kind="missing_leaf",
                where=f"{_unit(cabling, index)}: rail {rail}",
                evidence=f"no leaf of this unit carries rail {rail}; {len(names)} of {len(hosts)} nodes lack that HCA",
                cost="one rail less for every job here",
            )
    for host, without in found:
        yield _lacks(host, without, len(usual[host.family]), carried)


def _lacks(host: Host, without: list[int], usual: int, carried: set[int]) -> Fault:
    rails = ", ".join(map(str, without))
    absent = [rail for rail in without if rail not in carried]
    why = f"; its unit has no leaf for rail {', '.join(map(str, absent))}" if absent else ""
    has = ", ".join(port.device for port in host.ports)
    return Fault(
        kind="missing_rail",
        where=host.name,
        evidence=f"has {has} on the compute fabric, none on rail {rails}{why}",
        cost=f"{(usual - len(without)) / usual:.0%} of the inter-node bandwidth of its kind",
    )


def _usual_rails(cabling: Cabling, numbering: Numbering) -> dict[str, set[int]]:
    """Return for each family of hosts the rails that at least half of them have."""
    members = Counter(host.family for host in cabling.compute)
    has: Counter[tuple[str, int]] = Counter()
    for host in cabling.compute:
        for rail in {numbering.rail_of[host.name, position] for position in range(len(host.ports))}:
            has[host.family, rail] += 1
    usual: dict[str, set[int]] = {family: set() for family in members}
    for (family, rail), count in has.items():
        if count >= _MOST * members[family]:
            usual[family].add(rail)
    return usual


def _unit(cabling: Cabling, index: int) -> str:
    nodes = cabling.units[index].nodes
    return f"unit {index} ({nodes[0]} to {nodes[-1]})" if nodes else f"unit {index}"

"""Names the HCAs that a node has lost, and their leaves, where leaves carry two rails.

The names of the node's devices are compared with those of the unit's complete nodes. Where the driver has renumbered
the devices, or no complete node names them in that style, only the leaf is reported: the one on which the node has
fewer HCAs than the others.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from opsk.fabric.cabling import Cabling
from opsk.fabric.fabric import Fault
from opsk.fabric.hosts.hosts import Host
from opsk.fabric.hosts.ports import HostPort, family_of

_Slot = tuple[int, ...]


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
    return frozenset(family_of(port.device) for port in host.ports)

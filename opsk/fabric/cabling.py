"""Derives hosts, leaves, tiers and units from the cables; rails and cabling checks build on the result.

A node of eight compute HCAs often has two more for storage: ``mlx5_1`` belongs on a storage leaf, ``mlx5_0`` on a rail;
`find_crossed` finds nodes where the two are exchanged.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from opsk.fabric.fabric import Cable, Fabric
from opsk.fabric.graph import HcaLink, build_switch_neighbours, compute_tiers, find_hca_links, find_isl_cables
from opsk.fabric.hosts.hosts import COMPUTE, STORAGE, Host, classify_name, find_hosts
from opsk.fabric.hosts.ports import HostPort
from opsk.fabric.leaves.leaf import classify_leaves, find_empty_leaves, find_off_tier, find_shared_leaves
from opsk.fabric.leaves.side_networks import find_side_leaves
from opsk.fabric.units import Unit, find_units

_MIN_SIMILAR = 3
"""Fewer nodes with the same devices than this do not show where each device belongs."""
_SURE = 0.75
_MANAGED = re.compile(r"^MF0;([^:]+)(?::[^/:]+/U1$|(?=:))")
_NONE: Counter[str] = Counter()


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossed:
    """A node's ports on the wrong fabric: ``missed`` belong on the compute fabric, ``strayed`` do not."""

    missed: tuple[HostPort, ...]
    strayed: tuple[HostPort, ...]


def find_crossed(hosts: Sequence[Host], leaves: Collection[str]) -> dict[str, Crossed]:
    """Return the nodes whose HCAs are on ``leaves`` where nodes with the same devices have them elsewhere.

    Nodes with ports elsewhere are rare: nothing is compared where there are none.
    """
    partly = [host for host in hosts if not host.twice and any(port.switch not in leaves for port in host.ports)]
    if not partly:
        return {}
    relevant = {_slots(host) for host in partly}
    total: Counter[tuple[tuple[int, ...], ...]] = Counter()
    inside: defaultdict[tuple[tuple[int, ...], ...], Counter[int]] = defaultdict(Counter)
    similar: defaultdict[tuple[tuple[int, ...], ...], list[Host]] = defaultdict(list)
    for host in hosts:
        slots = _slots(host)
        if not host.twice and slots in relevant:
            total[slots] += 1
            inside[slots].update(index for index, port in enumerate(host.ports) if port.switch in leaves)
            similar[slots].append(host)
    crossed = {}
    for slots, members in similar.items():
        if total[slots] < _MIN_SIMILAR:
            continue
        # By place, not by slot: where a node mixes two styles of names, two of its devices may share a slot.
        belongs = [inside[slots][index] / total[slots] for index in range(len(slots))]
        for host in members:
            ports = list(zip(host.ports, belongs, strict=True))
            missed = tuple(port for port, share in ports if port.switch not in leaves and share >= _SURE)
            strayed = tuple(port for port, share in ports if port.switch in leaves and share <= 1 - _SURE)
            if missed or strayed:
                crossed[host.name] = Crossed(missed=missed, strayed=strayed)
    return crossed


def _slots(host: Host) -> tuple[tuple[int, ...], ...]:
    return tuple(port.slot for port in host.ports)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cabling:
    """The properties of a fabric that its cables alone show.

    ``links`` are those of HCAs, ``isls`` those between switches, loops included; ``by_leaf`` maps a leaf to its links;
    ``off_tier`` are spines that have an HCA; ``tier`` counts from the other leaves; ``up_cables``
    holds the cables of a switch to higher tiers by switch, ``up_bytes_per_s`` what they carry together, one way;
    ``compute`` holds the compute nodes that a scheduler can name, with their ports on compute leaves only; ``crossed``
    names the nodes that have an HCA on the compute fabric where similar nodes have it elsewhere, or vice versa;
    ``unit_of`` maps nodes and leaves to the index of their unit.
    """

    fabric: Fabric
    links: tuple[HcaLink, ...]
    isls: tuple[Cable, ...]
    hosts: Mapping[str, Host]
    compute: tuple[Host, ...]
    crossed: Mapping[str, Crossed]
    neighbours: Mapping[str, Counter[str]]
    by_leaf: Mapping[str, tuple[HcaLink, ...]]
    off_tier: frozenset[str]
    tier: Mapping[str, int]
    up_cables: Mapping[str, Counter[str]]
    up_bytes_per_s: Mapping[str, float]
    roles: Mapping[str, str]
    units: tuple[Unit, ...]
    unit_of: Mapping[str, int]

    def name(self, guid: str) -> str:
        """Return what people call a switch, and its guid."""
        label = shorten_name(self.fabric.switches[guid].description)
        return f"{label} ({guid})" if label else guid

    def uplinks(self, guid: str) -> Counter[str]:
        """Return the switches of a higher tier that a switch is cabled to, with the number of cables."""
        return self.up_cables.get(guid, _NONE)


def shorten_name(description: str) -> str:
    """Return a switch description without what all managed switches carry: ``MF0;leaf3:MQM9700/U1`` is ``leaf3``."""
    return _MANAGED.sub(r"\1", description)


def read_cabling(fabric: Fabric, compute_nodes: Collection[str] | None = None) -> Cabling:
    """Return what the cables of a fabric show; see ``Cabling``."""
    links = tuple(find_hca_links(fabric))
    hosts = find_hosts(fabric, links, compute_nodes)
    by_leaf: defaultdict[str, list[HcaLink]] = defaultdict(list)
    for link in links:
        by_leaf[link.switch].append(link)
    isls = tuple(find_isl_cables(fabric))
    neighbours = build_switch_neighbours(fabric, isls)
    off_tier = find_off_tier(by_leaf, neighbours)
    side = find_side_leaves(fabric, hosts, by_leaf, off_tier, neighbours)
    roles = classify_leaves(fabric, hosts, by_leaf) | side
    hosts = _with_servers(hosts, side)
    rail_leaves = {
        guid: fabric.switches[guid].description for guid in by_leaf if guid not in off_tier and roles[guid] == COMPUTE
    }
    shared = find_shared_leaves(hosts, rail_leaves)
    roles |= dict.fromkeys(shared, STORAGE)
    rail_leaves = {guid: name for guid, name in rail_leaves.items() if guid not in shared}
    named = [host for host in hosts.values() if host.role == COMPUTE]
    crossed = find_crossed(named, rail_leaves)
    compute = tuple(_on_leaves(host, rail_leaves, crossed.get(host.name)) for host in named)
    compute = _filter_nameable(host for host in compute if host.ports)
    units = find_units(compute, rail_leaves)
    tier = compute_tiers(neighbours, (by_leaf.keys() - off_tier) | find_empty_leaves(by_leaf, off_tier, neighbours))
    unit_of = {name: index for index, unit in enumerate(units) for name in (*unit.leaves, *unit.nodes)}
    return Cabling(
        fabric=fabric,
        links=links,
        isls=isls,
        hosts=hosts,
        compute=compute,
        crossed=crossed,
        neighbours=neighbours,
        by_leaf={guid: tuple(entries) for guid, entries in by_leaf.items()},
        off_tier=off_tier,
        tier=tier,
        up_cables=_up_cables(neighbours, tier),
        up_bytes_per_s=_up_bytes_per_s(isls, tier),
        roles=roles,
        units=units,
        unit_of=unit_of,
    )


def _on_leaves(host: Host, leaves: Collection[str], crossed: Crossed | None) -> Host:
    """Return a host with only its ports on ``leaves``: its HCAs on a storage leaf belong to no rail."""
    astray = crossed.strayed if crossed else ()
    if not astray and all(port.switch in leaves for port in host.ports):
        return host
    return replace(host, ports=tuple(port for port in host.ports if port.switch in leaves and port not in astray))


def _with_servers(hosts: dict[str, Host], side: Mapping[str, str]) -> dict[str, Host]:
    """Return the hosts; those without a role in their name and on storage leaves only are storage servers."""
    servers = (
        {
            host.name: replace(host, role=STORAGE)
            for host in hosts.values()
            if all(side.get(port.switch) == STORAGE for port in host.ports) and not classify_name(host.name)
        }
        if side
        else {}
    )
    return hosts | servers


def _filter_nameable(hosts: Iterable[Host]) -> tuple[Host, ...]:
    """Remove hosts whose name several machines share, unless there are no others."""
    all_hosts = tuple(hosts)
    return tuple(host for host in all_hosts if not host.generic and not host.twice) or all_hosts


def _up_cables(neighbours: Mapping[str, Counter[str]], tier: Mapping[str, int]) -> dict[str, Counter[str]]:
    """Return for each switch those of a higher tier that it is cabled to, with the number of cables."""
    up = {}
    for guid, around in neighbours.items():
        level = tier.get(guid, 0)
        up[guid] = Counter({other: count for other, count in around.items() if tier.get(other, -1) > level})
    return up


def _up_bytes_per_s(isls: Iterable[Cable], tier: Mapping[str, int]) -> dict[str, float]:
    """Return what the cables of each switch to higher tiers carry together."""
    total: defaultdict[str, float] = defaultdict(float)
    for cable in isls:
        a_tier, b_tier = tier.get(cable.a_guid, -1), tier.get(cable.b_guid, -1)
        if 0 <= a_tier < b_tier:
            total[cable.a_guid] += cable.bytes_per_s
        elif 0 <= b_tier < a_tier:
            total[cable.b_guid] += cable.bytes_per_s
    return dict(total)

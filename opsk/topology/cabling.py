"""Which hosts, leaves, tiers and units does the cabling show? The common ground of rails and faults."""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from opsk.topology.fabric import Fabric
from opsk.topology.graph import HcaLink, hca_links, isl_cables, switch_neighbours, tiers
from opsk.topology.hosts import COMPUTE, STORAGE, Host, find_hosts
from opsk.topology.units import Unit, find_units

_FEW = 0.25
"""A switch with less than this share of its neighbours' HCAs, cabled to several leaves, is a spine with a host."""
_SEVERAL_LEAVES = 3
_MANAGED = re.compile(r"^MF0;([^:]+)(?::[^/:]+/U1$|(?=:))")
_STORAGE_SHARE = 0.25
"""A leaf with at least this share of its HCAs in storage servers is a storage leaf; the others there are clients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cabling:
    """What the cables alone show.

    ``by_leaf`` maps a leaf to its HCA links; ``off_tier`` are leaves by the letter only, spines in truth; ``tier``
    counts from the other leaves; ``up_bytes_per_s`` is the capacity of a switch's cables to higher tiers, one way;
    ``compute`` holds the compute nodes that a scheduler can name, with their ports on compute leaves only; ``unit_of``
    maps nodes and leaves to the index of their unit.
    """

    fabric: Fabric
    links: tuple[HcaLink, ...]
    hosts: Mapping[str, Host]
    compute: tuple[Host, ...]
    neighbours: Mapping[str, Counter[str]]
    by_leaf: Mapping[str, tuple[HcaLink, ...]]
    off_tier: frozenset[str]
    tier: Mapping[str, int]
    up_bytes_per_s: Mapping[str, float]
    roles: Mapping[str, str]
    units: tuple[Unit, ...]
    unit_of: Mapping[str, int]

    def name(self, guid: str) -> str:
        """Return what people call a switch, and its guid."""
        label = short_name(self.fabric.switches[guid].description)
        return f"{label} ({guid})" if label else guid

    def uplinks(self, leaf: str) -> Counter[str]:
        """Return the switches of a higher tier that a leaf is cabled to, with the number of cables."""
        own = self.tier.get(leaf, 0)
        above = {other: count for other, count in self.neighbours[leaf].items() if self.tier.get(other, -1) > own}
        return Counter(above)


def short_name(description: str) -> str:
    """Return a switch description without what all managed switches carry: ``MF0;leaf3:MQM9700/U1`` is ``leaf3``."""
    return _MANAGED.sub(r"\1", description)


def read_cabling(fabric: Fabric, compute_nodes: Collection[str] | None = None) -> Cabling:
    """Return what the cables of a fabric show; see ``Cabling``."""
    links = tuple(hca_links(fabric))
    hosts = find_hosts(fabric, links, compute_nodes)
    by_leaf: defaultdict[str, list[HcaLink]] = defaultdict(list)
    for link in links:
        by_leaf[link.switch].append(link)
    neighbours = switch_neighbours(fabric)
    off_tier = _off_tier(by_leaf, neighbours)
    roles = {guid: _leaf_role(fabric, hosts, entries) for guid, entries in by_leaf.items()}
    rail_leaves = {
        guid: fabric.switches[guid].description for guid in by_leaf if guid not in off_tier and roles[guid] == COMPUTE
    }
    compute = tuple(_on_leaves(host, rail_leaves) for host in hosts.values() if host.role == COMPUTE)
    compute = _nameable(host for host in compute if host.ports)
    units = find_units(compute, rail_leaves)
    tier = tiers(neighbours, by_leaf.keys() - off_tier)
    unit_of = {name: index for index, unit in enumerate(units) for name in (*unit.leaves, *unit.nodes)}
    return Cabling(
        fabric=fabric,
        links=links,
        hosts=hosts,
        compute=compute,
        neighbours=neighbours,
        by_leaf={guid: tuple(entries) for guid, entries in by_leaf.items()},
        off_tier=off_tier,
        tier=tier,
        up_bytes_per_s=_up_bytes_per_s(fabric, tier),
        roles=roles,
        units=units,
        unit_of=unit_of,
    )


def _on_leaves(host: Host, leaves: Collection[str]) -> Host:
    """Return a host with only its ports on ``leaves``: its HCAs on a storage leaf belong to no rail."""
    return replace(host, ports=tuple(port for port in host.ports if port.switch in leaves))


def _nameable(hosts: Iterable[Host]) -> tuple[Host, ...]:
    """Leave out names that stand for several machines, unless there are no others."""
    found = tuple(hosts)
    return tuple(host for host in found if not host.generic and not host.twice) or found


def _up_bytes_per_s(fabric: Fabric, tier: Mapping[str, int]) -> dict[str, float]:
    """Return what the cables of each switch to higher tiers carry together."""
    total: defaultdict[str, float] = defaultdict(float)
    for cable in isl_cables(fabric):
        low, high = sorted((cable.a_guid, cable.b_guid), key=lambda guid: tier.get(guid, -1))
        if 0 <= tier.get(low, -1) < tier.get(high, -1):
            total[low] += cable.bytes_per_s
    return dict(total)


def _off_tier(by_leaf: Mapping[str, Collection[HcaLink]], neighbours: Mapping[str, Counter[str]]) -> frozenset[str]:
    """Return the leaves that are spines but for a few HCAs: cabled to several leaves that hold far more HCAs."""
    found = set()
    for guid, entries in by_leaf.items():
        counts = [len(by_leaf[other]) for other in neighbours[guid] if other in by_leaf]
        if len(counts) >= _SEVERAL_LEAVES and len(entries) < _FEW * statistics.median(counts):
            found.add(guid)
    return frozenset(found)


def _leaf_role(fabric: Fabric, hosts: Mapping[str, Host], entries: Collection[HcaLink]) -> str:
    """Return what a leaf is for: storage where enough servers hang on it, else compute where any compute node does."""
    votes: Counter[str] = Counter()
    for link in entries:
        node = fabric.hcas[link.hca].node
        if node is not None:
            votes[hosts[node].role] += 1
    if votes[STORAGE] and votes[STORAGE] >= _STORAGE_SHARE * len(entries):
        return STORAGE
    if votes[COMPUTE] or not votes:
        return COMPUTE
    return max(sorted(votes), key=lambda role: votes[role])

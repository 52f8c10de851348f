"""Classifies switches with HCAs as compute leaves, storage leaves or spines with a host, and defines a leaf.

By definition, a leaf is a switch with an HCA. Real fabrics have a login host on a spine, racked leaves without nodes,
storage leaves that all units share, and storage servers on the leaves of a rail.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from opsk.fabric.fabric import Fabric
from opsk.fabric.graph import HcaLink, compute_tiers
from opsk.fabric.hosts.hosts import COMPUTE, STORAGE, Host

_FEW = 0.25
"""A switch with no more than this share of the usual leaf's HCAs may be a spine with a host."""
_SEVERAL_LEAVES = 3
_MORE_CABLES = 1.5
"""A core has at least this many times the inter-switch cables of a leaf, or joins spines that share no leaf."""
_LIKE_A_LEAF = 0.6
"""A switch without HCAs that shares at least this part of its neighbours with a leaf is an empty leaf, no core."""
_STORAGE_SHARE = 0.25
"""A leaf with at least this share of its HCAs in storage servers may be a storage leaf; the others are clients."""
_MAJORITY_SHARE = 0.5
_HARDLY = 0.1
"""Leaves that share less than this part of their nodes are of different units."""
_OTHER_PORTS = 3
"""A node must have this many ports on other leaves before one leaf is set apart as shared."""


def find_off_tier(by_leaf: Mapping[str, Collection[HcaLink]], neighbours: Mapping[str, Counter[str]]) -> frozenset[str]:
    """Return the leaves that are spines or cores but for a few HCAs."""
    if not by_leaf:
        return frozenset()
    usual = statistics.median(
        sorted((len(entries) for entries in by_leaf.values()), reverse=True)[: len(by_leaf) // 2 + 1]
    )
    full = {guid for guid, entries in by_leaf.items() if len(entries) > _FEW * usual}
    few = by_leaf.keys() - full
    off_tier = set()
    for guid, entries in by_leaf.items():
        counts = [len(by_leaf[other]) for other in neighbours[guid] if other in full]
        if len(counts) >= _SEVERAL_LEAVES and len(entries) <= _FEW * statistics.median(counts):
            off_tier.add(guid)
    if few - off_tier:
        off_tier |= _find_cores(few - off_tier, full - off_tier, neighbours)
    return frozenset(off_tier)


def _find_cores(few: Collection[str], full: Collection[str], neighbours: Mapping[str, Counter[str]]) -> set[str]:
    """Return the switches of ``few`` that are above the spines: a leaf with hardly any HCA is below them."""
    tier = compute_tiers(neighbours, full)
    usual = statistics.median([neighbours[guid].total() for guid in full] or [0])
    cores = set()
    for guid in few:
        spines = [other for other in neighbours[guid] if tier.get(other) == 1]
        if len(spines) < 2 or any(other in full for other in neighbours[guid]):
            continue
        below = [{other for other in neighbours[spine] if other in full} for spine in spines[:_SEVERAL_LEAVES]]
        apart = not any(first & other for first, other in combinations(below, 2))
        if apart or neighbours[guid].total() >= _MORE_CABLES * usual:
            cores.add(guid)
    return cores


def find_empty_leaves(
    by_leaf: Mapping[str, Collection[HcaLink]], off_tier: Collection[str], neighbours: Mapping[str, Counter[str]]
) -> set[str]:
    """Return the switches without any HCA that are cabled as leaves are: racked, but without nodes."""
    groups = {frozenset(neighbours[guid]) for guid in by_leaf if guid not in off_tier}
    by_neighbour: defaultdict[str, set[frozenset[str]]] = defaultdict(set)
    for group in groups:
        for other in group:
            by_neighbour[other].add(group)
    leaves = by_leaf.keys() - off_tier
    empty = set()
    for guid, cabled in neighbours.items():
        if guid in by_leaf or len(cabled) < 2 or not leaves.isdisjoint(cabled):
            continue
        own_neighbours = frozenset(cabled)
        near = set().union(*(by_neighbour.get(other, ()) for other in own_neighbours))
        if any(len(own_neighbours & group) >= _LIKE_A_LEAF * len(own_neighbours | group) for group in near):
            empty.add(guid)
    return empty


def classify_leaves(
    fabric: Fabric, hosts: Mapping[str, Host], by_leaf: Mapping[str, Collection[HcaLink]]
) -> dict[str, str]:
    """Return the role of each leaf: that of most of its hosts, storage where it has enough servers.

    Storage servers on a rail's leaf do not take it from the rail: the HCAs that nodes have there must be ones that most
    nodes have on leaves with servers.
    """
    votes: dict[str, Counter[str]] = {}
    hcas = fabric.hcas
    for guid, entries in by_leaf.items():
        votes[guid] = Counter(hosts[node].role for link in entries if (node := hcas[link.hca].node) is not None)
    roles = {guid: _majority_role(count) for guid, count in votes.items()}
    servers = {guid for guid, count in votes.items() if _is_served(count, len(by_leaf[guid]))}
    if not servers:
        return roles
    share = _compute_share_by_slot(hosts, servers)
    for guid in servers:
        slots = [
            share[port.slot]
            for link in by_leaf[guid]
            if (node := hcas[link.hca].node) is not None and hosts[node].role == COMPUTE
            for port in hosts[node].ports
            if port.guid == link.hca
        ]
        if not slots or statistics.median(slots) > _MAJORITY_SHARE:
            roles[guid] = STORAGE
    return roles


def _is_served(votes: Counter[str], links: int) -> bool:
    return votes[STORAGE] > 0 and votes[STORAGE] >= _STORAGE_SHARE * links


def _majority_role(votes: Counter[str]) -> str:
    """Return the role of a leaf without regard to storage: a single compute node among others makes no rail leaf."""
    if not votes or votes[COMPUTE] >= _STORAGE_SHARE * votes.total():
        return COMPUTE
    return max(sorted(votes), key=lambda role: votes[role])


def _compute_share_by_slot(hosts: Mapping[str, Host], leaves: Collection[str]) -> dict[tuple[int, ...], float]:
    """Return for each place of a device the share of compute nodes that have it on one of ``leaves``."""
    total: Counter[tuple[int, ...]] = Counter()
    there: Counter[tuple[int, ...]] = Counter()
    for host in hosts.values():
        if host.role == COMPUTE:
            for port in host.ports:
                total[port.slot] += 1
                there[port.slot] += port.switch in leaves
    return {slot: there[slot] / count for slot, count in total.items()}


def find_shared_leaves(hosts: Mapping[str, Host], leaves: Collection[str]) -> set[str]:
    """Return the leaves that nodes of several units share, where those nodes have most of their ports on others.

    Such a leaf serves storage or management: were it a rail's, it would join the units into one.
    """
    nodes: defaultdict[str, set[str]] = defaultdict(set)
    for host in hosts.values():
        if host.role == COMPUTE and not host.twice and not host.generic:
            for port in host.ports:
                if port.switch in leaves:
                    nodes[port.switch].add(host.name)
    sizes = sorted(len(members) for members in nodes.values())
    if len(sizes) <= _OTHER_PORTS or sizes[-1] < 2 * sizes[len(sizes) // 2] * (1 - _HARDLY):
        return set()
    median = sizes[len(sizes) // 2]
    large = [leaf for leaf, members in nodes.items() if len(members) >= 2 * median * (1 - _HARDLY)]
    if len(large) > _STORAGE_SHARE * len(nodes):
        return set()
    return {leaf for leaf in large if _spans(leaf, hosts, nodes, set(large))}


def _spans(leaf: str, hosts: Mapping[str, Host], nodes: Mapping[str, set[str]], large: Collection[str]) -> bool:
    """Return whether the nodes of a leaf fall into groups that share no other leaf."""
    others: Counter[str] = Counter()
    for name in nodes[leaf]:
        used = {port.switch for port in hosts[name].ports if port.switch in nodes and port.switch not in large}
        if len(used) < _OTHER_PORTS:
            return False
        others.update(used)
    covered = [other for other, count in others.items() if count >= _MAJORITY_SHARE * len(nodes[other])]
    return any(
        len(nodes[first] & nodes[other]) < _HARDLY * min(len(nodes[first]), len(nodes[other]))
        for first, other in _first_pairs(covered)
    )


def _first_pairs(leaves: Sequence[str]) -> list[tuple[str, str]]:
    return [(leaves[0], other) for other in leaves[1:]] if leaves else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A switch with HCAs: its ``rail`` (index from 0, ``None`` when its HCAs follow no rail) and ``unit``.

    ``unit`` is the index of the scalable unit: the group of nodes that share one leaf a rail. ``carries`` holds all
    rails that the leaf serves, more than one where several HCAs of a node share it. ``off_tier`` marks a spine or
    director chip that is a leaf only because it has a host or two; its cables to leaves are no uplinks.
    """

    guid: str
    description: str
    rail: int | None
    unit: int | None
    nodes: tuple[str, ...]
    hca_links: int
    uplinks: int
    role: str = "compute"
    carries: tuple[int, ...] = ()
    down_bytes_per_s: float = 0.0
    up_bytes_per_s: float = 0.0
    off_tier: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """One HCA of a node: ``device``, its ``guid``, the ``leaf`` guid it is cabled to, the ``rail`` of that leaf."""

    node: str
    device: str
    guid: str
    leaf: str
    rail: int | None
    bytes_per_s: float

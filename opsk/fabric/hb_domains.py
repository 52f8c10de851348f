"""Finds high-bandwidth domains, the GPUs that NVLink or its like joins: a node, a part of one, or a rack of nodes.

Several nodes are one domain where their GPUs name the same ``ClusterUUID.CliqueId``, or where a map says so. A node
whose own topology shows GPUs without NVLink is split into domains of one GPU each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from opsk.fabric.fabric import Fault
from opsk.fabric.hosts.ports import natural_key
from opsk.fabric.node.node_topology import NodeTopology

NODE, MULTI_NODE, NONE = "node", "multi_node", "none"
"""Kinds of domain: inside one node; over several nodes; a GPU that no NVLink joins to any other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HbDomain:
    """GPUs that one NVLink/NVSwitch domain joins.

    ``name`` is the node, the domain's own (ClusterUUID.CliqueId), or ``node/gpu0-3`` where NVLink joins but a part of
    a node's GPUs. ``gpus`` counts its GPUs, ``None`` unless every one of its nodes reports them.
    """

    name: str
    nodes: tuple[str, ...]
    kind: str = NODE
    gpus: int | None = None


def find_hb_domains(
    nodes: Iterable[str],
    domains: Mapping[str, Iterable[str]] | None = None,
    topologies: Mapping[str, NodeTopology] | None = None,
) -> tuple[tuple[HbDomain, ...], tuple[Fault, ...]]:
    """Return the domains of ``nodes`` and what is wrong with the map.

    Parameters
    ----------
    nodes
        Compute nodes.
    domains
        Domain name to its nodes, for multi-node NVLink; nodes that no domain names are a domain of their own. A node
        that two domains name stays in the first by name, and is reported.
    topologies
        Topologies of nodes: the domains that their GPUs name join the map, and a node outside of all of them
        is as many domains as NVLink leaves parts of it. Nodes that are only here count as well.
    """
    by_node = topologies or {}
    known = sorted({*nodes, *by_node}, key=natural_key)
    named = [(node, name) for name in sorted(domains or {}, key=natural_key) for node in (domains or {})[name]]
    named += _list_named_domains(by_node)
    member: dict[str, str] = {}
    for node, name in named:
        member.setdefault(node, name)
    faults = [
        Fault(
            kind="node_in_two_hb_domains",
            where=node,
            evidence=f"named by {member[node]} and by {name}",
            cost="tensor-parallel groups may be placed across domains",
            nodes=(node,),
        )
        for node, name in dict.fromkeys(named)
        if member[node] != name
    ]
    members_by_domain: defaultdict[str, list[str]] = defaultdict(list)
    alone: list[HbDomain] = []
    for node in known:
        if node in member:
            members_by_domain[member[node]].append(node)
        else:
            alone += _split_node(node, by_node.get(node))
    joined = [
        HbDomain(name=name, nodes=tuple(members), kind=MULTI_NODE, gpus=_count_gpus(members, by_node))
        for name, members in members_by_domain.items()
    ]
    ordered = sorted([*joined, *alone], key=lambda domain: natural_key(domain.name))
    return tuple(ordered), tuple(faults)


def _list_named_domains(topologies: Mapping[str, NodeTopology]) -> list[tuple[str, str]]:
    """Return the nodes with each domain that their GPUs name, the one that most of its GPUs name first.

    A domain that only a further file of the node names comes last.
    """
    pairs: list[tuple[str, str]] = []
    for node in sorted(topologies, key=natural_key):
        votes = [gpu.fabric_domain for gpu in topologies[node].gpus if gpu.fabric_domain]
        named = topologies[node].fabric_domains
        pairs += [(node, name) for name in sorted(named, key=lambda name: (-votes.count(name), natural_key(name)))]
    return pairs


def _count_gpus(nodes: Iterable[str], topologies: Mapping[str, NodeTopology]) -> int | None:
    """Return how many GPUs the nodes have; ``None`` when one of them does not report them."""
    counts = [len(topologies[node].gpus) if node in topologies else 0 for node in nodes]
    return sum(counts) if all(counts) else None


def _split_node(node: str, topology: NodeTopology | None) -> list[HbDomain]:
    """Return the domains of a node that is in no domain of several nodes."""
    if topology is None or not topology.gpus:
        return [HbDomain(name=node, nodes=(node,))]
    groups = topology.hb_groups()
    if groups is None:
        return [HbDomain(name=node, nodes=(node,), gpus=len(topology.gpus))]
    if len(groups) == 1:
        return [HbDomain(name=node, nodes=(node,), kind=_kind(groups[0]), gpus=len(groups[0]))]
    return [
        HbDomain(name=f"{node}/gpu{_format_range(group)}", nodes=(node,), kind=_kind(group), gpus=len(group))
        for group in groups
    ]


def _kind(group: tuple[int, ...]) -> str:
    return NODE if len(group) > 1 else NONE


def _format_range(group: tuple[int, ...]) -> str:
    """Return the indices of a group: ``3``, ``0-3``, ``0,2``."""
    if len(group) > 1 and group == tuple(range(group[0], group[-1] + 1)):
        return f"{group[0]}-{group[-1]}"
    return ",".join(map(str, group))

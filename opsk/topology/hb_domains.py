"""Which GPUs are joined by NVLink or its like? High-bandwidth domains: a node, or a rack that a map names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from opsk.topology.fabric import Fault
from opsk.topology.hosts import natural


@dataclass(frozen=True, slots=True, kw_only=True)
class HbDomain:
    """GPUs that one NVLink/NVSwitch domain joins: ``name`` is the node, or the domain's own (ClusterUUID.CliqueId)."""

    name: str
    nodes: tuple[str, ...]


def hb_domains(
    nodes: Iterable[str], domains: Mapping[str, Iterable[str]] | None = None
) -> tuple[tuple[HbDomain, ...], tuple[Fault, ...]]:
    """Return the domains of ``nodes`` and what is wrong with the map.

    Parameters
    ----------
    nodes
        Compute nodes.
    domains
        Domain name to its nodes, for multi-node NVLink; nodes that no domain names are a domain of their own. A node
        that two domains name stays in the first by name, and is reported.
    """
    known = sorted(set(nodes), key=natural)
    named = [(node, name) for name in sorted(domains or {}, key=natural) for node in (domains or {})[name]]
    member: dict[str, str] = {}
    for node, name in named:
        member.setdefault(node, name)
    faults = [
        Fault(
            kind="node_in_two_hb_domains",
            where=node,
            evidence=f"named by {member[node]} and by {name}",
            cost="tensor-parallel groups may be placed across domains",
        )
        for node, name in named
        if member[node] != name
    ]
    found: defaultdict[str, list[str]] = defaultdict(list)
    for node in known:
        found[member.get(node, node)].append(node)
    ordered = sorted(found.items(), key=lambda item: natural(item[0]))
    return tuple(HbDomain(name=name, nodes=tuple(members)) for name, members in ordered), tuple(faults)

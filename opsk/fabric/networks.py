"""Classifies the parts of a fabric as compute, storage or management fabric.

Parts that no cable joins are separate fabrics. The role of each is determined, in this order, by the site, by the words
in its switches' names, and by the hosts on it: nodes with most of their HCAs, or servers with one HCA of each node.
Where storage servers are on the compute fabric itself, as is common, it is one fabric that is shared.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from opsk.fabric.cabling import shorten_name
from opsk.fabric.fabric import Fabric
from opsk.fabric.graph import find_components
from opsk.fabric.hosts.hosts import COMPUTE, MANAGEMENT, STORAGE
from opsk.fabric.hosts.ports import natural_key
from opsk.fabric.leaves.side_networks import classify_switch_name
from opsk.fabric.node.node_topology import NodeTopology
from opsk.fabric.rails import Rails

INFINIBAND, ETHERNET = "infiniband", "ethernet"
ROLES = (COMPUTE, STORAGE, MANAGEMENT)

_MAX_SHOWN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """One fabric: ``role`` is ``None`` where it is unknown, ``shared`` the other roles of hosts on it.

    ``switches`` are guids, ``hosts`` names; ``component`` is the place of the part among the fabric's components,
    ``None`` for a network that only the nodes' own topologies show. ``why`` states the evidence for the role.
    """

    role: str | None
    shared: tuple[str, ...]
    link_layer: str
    switches: tuple[str, ...]
    hosts: tuple[str, ...]
    component: int | None
    why: str


def find_networks(
    fabric: Fabric,
    rails: Rails,
    *,
    site_roles: Mapping[str, Collection[str]] | None = None,
    topologies: Mapping[str, NodeTopology] | None = None,
) -> tuple[Network, ...]:
    """Return the fabrics, compute first, in the order of the components within a role.

    Parameters
    ----------
    site_roles
        The site's roles: role to names, with ``*`` for any characters, of hosts or switches; hosts set the role of the
        part that only they are on.
    topologies
        Topologies of nodes: Ethernet ports among them are a separate network.
    """
    parts = find_components(fabric)
    hosts = [_count_hosts(fabric, part) for part in parts]
    compute = [
        sum(count for name, count in names.items() if _role(name, rails, site_roles) == COMPUTE) for names in hosts
    ]
    leaf_roles = [_find_leaf_role(rails, part) for part in parts]
    on_rails = [count for count, role in zip(compute, leaf_roles, strict=True) if count and role == COMPUTE]
    compute_fabric_hcas = max(on_rails or compute, default=0)
    networks = []
    for index, part in enumerate(parts):
        switches = sorted(
            part & fabric.switches.keys(), key=lambda guid: natural_key(fabric.switches[guid].description)
        )
        if not switches:
            continue
        roles = Counter(_role(name, rails, site_roles) for name in hosts[index])
        role, why = _role_from_names(fabric, switches, hosts[index], site_roles) or _role_from_hosts(
            roles, compute[index], compute_fabric_hcas, leaf_roles[index] if on_rails else COMPUTE
        )
        networks.append(
            Network(
                role=role,
                shared=tuple(other for other in ROLES if other != role and roles[other] and other != COMPUTE),
                link_layer=INFINIBAND,
                switches=tuple(switches),
                hosts=tuple(sorted(hosts[index], key=natural_key)),
                component=index,
                why=why + _describe_sharing(rails, switches, role),
            )
        )
    order = {role: position for position, role in enumerate(ROLES)}
    networks.sort(key=lambda network: (order.get(network.role or "", len(ROLES)), network.component))
    return (*networks, *_build_ethernet_networks(topologies or {}))


def _count_hosts(fabric: Fabric, part: Iterable[str]) -> Counter[str]:
    """Return the hosts of a part with the number of their HCAs there."""
    return Counter(hca.node for guid in part if (hca := fabric.hcas.get(guid)) is not None and hca.node is not None)


def _role(host: str, rails: Rails, site_roles: Mapping[str, Collection[str]] | None) -> str | None:
    """Return the role of a host: by the site, else by its cabling and name."""
    site_role = _site_role(host, site_roles)
    return site_role if site_role is not None else rails.host_roles.get(host)


def _site_role(name: str, site_roles: Mapping[str, Collection[str]] | None) -> str | None:
    for role, patterns in (site_roles or {}).items():
        if name in patterns or any(fnmatchcase(name, pattern) for pattern in patterns if "*" in pattern):
            return role
    return None


def _role_from_names(
    fabric: Fabric,
    switches: Collection[str],
    hosts: Collection[str],
    site_roles: Mapping[str, Collection[str]] | None,
) -> tuple[str, str] | None:
    """Return the role by the site, or by the names of most switches."""
    names = [shorten_name(fabric.switches[guid].description) for guid in switches]
    by_site = Counter(role for name in names if (role := _site_role(name, site_roles)) is not None)
    if by_site:
        role, count = by_site.most_common(1)[0]
        return role, f"the site says so of {count} of its {len(names)} switches"
    host_roles = {_site_role(host, site_roles) for host in hosts}
    if len(host_roles) == 1 and None not in host_roles:
        return host_roles.pop() or "", "the site says so of all of its hosts"
    votes: defaultdict[str, list[str]] = defaultdict(list)
    for name in names:
        for role in classify_switch_name(name):
            votes[role].append(name)
    for role, named in votes.items():
        if 2 * len(named) > len(names) and len(votes) == 1:
            return role, f"names of {len(named)} of its {len(names)} switches: {', '.join(named[:_MAX_SHOWN])}"
    return None


def _find_leaf_role(rails: Rails, switches: Iterable[str]) -> str | None:
    """Return the role of the leaves of a part that most of its HCAs are on."""
    hcas: Counter[str] = Counter()
    for guid in switches:
        if (leaf := rails.leaves.get(guid)) is not None and not leaf.off_tier:
            hcas[leaf.role] += leaf.hca_links
    return max(sorted(hcas), key=lambda role: hcas[role], default=None)


def _role_from_hosts(
    roles: Mapping[str | None, int], compute_hcas: int, compute_fabric_hcas: int, leaf_role: str | None
) -> tuple[str | None, str]:
    """Return the role by the hosts on a part and the role of its leaves."""
    counted = ", ".join(f"{roles[role]} {role}" for role in ROLES if roles.get(role))
    if not counted:
        return None, "no host on it has a name"
    hosts = f"hosts on it: {counted}"
    if compute_hcas and leaf_role in (COMPUTE, None):
        return COMPUTE, hosts
    if compute_hcas:
        return (
            leaf_role,
            f"{hosts}; {compute_hcas} HCAs of compute nodes against {compute_fabric_hcas} on the compute fabric",
        )
    return max((STORAGE, MANAGEMENT), key=lambda role: (roles.get(role, 0), role)), hosts


def _describe_sharing(rails: Rails, switches: Collection[str], role: str | None) -> str:
    """Describe which leaves of a compute fabric hold servers."""
    if role != COMPUTE:
        return ""
    names = [
        shorten_name(leaf.description) or leaf.guid
        for guid in switches
        if (leaf := rails.leaves.get(guid)) is not None and leaf.role == STORAGE
    ]
    if not names:
        return ""
    more = f" and {len(names) - _MAX_SHOWN} more" if len(names) > _MAX_SHOWN else ""
    return f"; storage servers hang on {', '.join(names[:_MAX_SHOWN])}{more}"


def _build_ethernet_networks(topologies: Mapping[str, NodeTopology]) -> list[Network]:
    """Return the network of the Ethernet ports that nodes report, in which no switch is known."""
    ports = Counter(
        name
        for name, node in topologies.items()
        for nic in node.nics
        if nic.link_layer is not None and nic.link_layer.lower() == ETHERNET
    )
    if not ports:
        return []
    return [
        Network(
            role=None,
            shared=(),
            link_layer=ETHERNET,
            switches=(),
            hosts=tuple(sorted(ports, key=natural_key)),
            component=None,
            why=f"{ports.total()} RDMA ports of {len(ports)} nodes have link layer Ethernet: on no InfiniBand fabric",
        )
    ]

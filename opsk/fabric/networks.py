"""Which part of what is cabled is the compute fabric, which the storage, which the management fabric?

Parts that no cable joins are fabrics of their own. What each is for is told, in this order, by the site, by the words
in its switches' names, by who hangs on it: nodes with most of their HCAs, or servers with one HCA of each node. Where
storage servers hang on the compute fabric itself, as they mostly do, it is one fabric that is shared.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from opsk.fabric.cabling import short_name
from opsk.fabric.fabric import Fabric
from opsk.fabric.graph import components
from opsk.fabric.hosts.hosts import COMPUTE, MANAGEMENT, STORAGE
from opsk.fabric.hosts.ports import natural
from opsk.fabric.leaves.side_networks import told_by_words
from opsk.fabric.node.node_topology import NodeTopology
from opsk.fabric.rails import Rails

INFINIBAND, ETHERNET = "infiniband", "ethernet"
ROLES = (COMPUTE, STORAGE, MANAGEMENT)

_SHOWN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """One fabric: ``role`` is ``None`` where nothing tells, ``shared`` the other roles that hang on it.

    ``switches`` are guids, ``hosts`` names; ``component`` is the place of the part among the fabric's components,
    ``None`` for a network that only the nodes' own topologies show. ``why`` says what the role was told by.
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
        What the site says: role to names, with ``*`` for any signs, of hosts or switches; hosts tell the role of the
        part that only they hang on.
    topologies
        What nodes say of themselves: Ethernet ports among them are a network of their own.
    """
    parts = components(fabric)
    hosts = [_hosts(fabric, part) for part in parts]
    compute = [
        sum(count for name, count in names.items() if _role(name, rails, site_roles) == COMPUTE) for names in hosts
    ]
    leaf_roles = [_leaf_role(rails, part) for part in parts]
    on_rails = [count for count, role in zip(compute, leaf_roles, strict=True) if count and role == COMPUTE]
    most = max(on_rails or compute, default=0)
    found = []
    for index, part in enumerate(parts):
        switches = sorted(part & fabric.switches.keys(), key=lambda guid: natural(fabric.switches[guid].description))
        if not switches:
            continue
        roles = Counter(_role(name, rails, site_roles) for name in hosts[index])
        role, why = _told(fabric, switches, hosts[index], site_roles) or _seen(
            roles, compute[index], most, leaf_roles[index] if on_rails else COMPUTE
        )
        found.append(
            Network(
                role=role,
                shared=tuple(other for other in ROLES if other != role and roles[other] and other != COMPUTE),
                link_layer=INFINIBAND,
                switches=tuple(switches),
                hosts=tuple(sorted(hosts[index], key=natural)),
                component=index,
                why=why + _sharing(rails, switches, role),
            )
        )
    order = {role: position for position, role in enumerate(ROLES)}
    found.sort(key=lambda network: (order.get(network.role or "", len(ROLES)), network.component))
    return (*found, *_ethernet(topologies or {}))


def _hosts(fabric: Fabric, part: Iterable[str]) -> Counter[str]:
    """Return the hosts of a part with the number of their HCAs there."""
    return Counter(hca.node for guid in part if (hca := fabric.hcas.get(guid)) is not None and hca.node is not None)


def _role(host: str, rails: Rails, site_roles: Mapping[str, Collection[str]] | None) -> str | None:
    """Return what a host is for: as the site says, else as its cabling and name do."""
    said = _said(host, site_roles)
    return said if said is not None else rails.host_roles.get(host)


def _said(name: str, site_roles: Mapping[str, Collection[str]] | None) -> str | None:
    for role, patterns in (site_roles or {}).items():
        if name in patterns or any(fnmatchcase(name, pattern) for pattern in patterns if "*" in pattern):
            return role
    return None


def _told(
    fabric: Fabric,
    switches: Collection[str],
    hosts: Collection[str],
    site_roles: Mapping[str, Collection[str]] | None,
) -> tuple[str, str] | None:
    """Return the role that the site, or the names of most switches, tell."""
    names = [short_name(fabric.switches[guid].description) for guid in switches]
    by_site = Counter(role for name in names if (role := _said(name, site_roles)) is not None)
    if by_site:
        role, count = by_site.most_common(1)[0]
        return role, f"the site says so of {count} of its {len(names)} switches"
    said = {_said(host, site_roles) for host in hosts}
    if len(said) == 1 and None not in said:
        return said.pop() or "", "the site says so of all of its hosts"
    votes: defaultdict[str, list[str]] = defaultdict(list)
    for name in names:
        for role in told_by_words(name):
            votes[role].append(name)
    for role, named in votes.items():
        if 2 * len(named) > len(names) and len(votes) == 1:
            return role, f"names of {len(named)} of its {len(names)} switches: {', '.join(named[:_SHOWN])}"
    return None


def _leaf_role(rails: Rails, switches: Iterable[str]) -> str | None:
    """Return what the leaves of a part are for that most of its HCAs are on."""
    hcas: Counter[str] = Counter()
    for guid in switches:
        if (leaf := rails.leaves.get(guid)) is not None and not leaf.off_tier:
            hcas[leaf.role] += leaf.hca_links
    return max(sorted(hcas), key=lambda role: hcas[role], default=None)


def _seen(
    roles: Mapping[str | None, int], compute_hcas: int, most: int, leaf_role: str | None
) -> tuple[str | None, str]:
    """Return the role that who hangs on a part tells, and on what leaves."""
    counted = ", ".join(f"{roles[role]} {role}" for role in ROLES if roles.get(role))
    if not counted:
        return None, "no host on it has a name"
    hosts = f"hosts on it: {counted}"
    if compute_hcas and leaf_role in (COMPUTE, None):
        return COMPUTE, hosts
    if compute_hcas:
        return leaf_role, f"{hosts}; {compute_hcas} HCAs of compute nodes against {most} on the compute fabric"
    return max((STORAGE, MANAGEMENT), key=lambda role: (roles.get(role, 0), role)), hosts


def _sharing(rails: Rails, switches: Collection[str], role: str | None) -> str:
    """Say which leaves of a compute fabric hold servers."""
    if role != COMPUTE:
        return ""
    names = [
        short_name(leaf.description) or leaf.guid
        for guid in switches
        if (leaf := rails.leaves.get(guid)) is not None and leaf.role == STORAGE
    ]
    if not names:
        return ""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"; storage servers hang on {', '.join(names[:_SHOWN])}{more}"


def _ethernet(topologies: Mapping[str, NodeTopology]) -> list[Network]:
    """Return the network of the Ethernet ports that nodes tell, in which no switch is known."""
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
            hosts=tuple(sorted(ports, key=natural)),
            component=None,
            why=f"{ports.total()} RDMA ports of {len(ports)} nodes have link layer Ethernet: on no InfiniBand fabric",
        )
    ]

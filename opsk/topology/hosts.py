"""Which machines hang on the fabric, in what order are their HCAs, and what are they for: compute, storage, management?

Roles are read from how a host is cabled against the rest, and from its name; a site that knows better names its
compute nodes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

from opsk.topology.fabric import Fabric
from opsk.topology.graph import HcaLink
from opsk.topology.host_ports import HostPort, Place, device_slot, family_of, natural, ordered_ports
from opsk.topology.host_roles import COMPUTE, MANAGEMENT, STORAGE, host_roles
from opsk.topology.shared_names import several_machines

__all__ = [
    "COMPUTE",
    "MANAGEMENT",
    "STORAGE",
    "Host",
    "HostPort",
    "device_slot",
    "family_of",
    "find_hosts",
    "natural",
]

GENERIC_NAMES = frozenset(
    {"localhost", "ubuntu", "debian", "centos", "rocky", "rhel", "fedora", "linux", "node", "host"}
)
"""Names that an installer leaves behind: each may stand for several machines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A host as its HCAs name it: ``ports`` in device order; hosts of one ``family`` should have the same.

    ``twice`` when it is several machines by the names or number of its HCAs, for the reason ``why_twice``; ``generic``
    when the name is an installer's: it may then be the name of several machines.
    """

    name: str
    role: str
    family: str
    ports: tuple[HostPort, ...]
    twice: bool
    generic: bool
    why_twice: str = ""


def find_hosts(
    fabric: Fabric, links: Collection[HcaLink], compute_nodes: Collection[str] | None = None
) -> dict[str, Host]:
    """Return the hosts that HCA descriptions name, by name in natural order.

    Parameters
    ----------
    compute_nodes
        When given, exactly these are compute nodes.
    """
    ports: defaultdict[str, list[HcaLink]] = defaultdict(list)
    for link in links:
        node = fabric.hcas[link.hca].node
        if node is not None:
            ports[node].append(link)
    places: dict[str, Place] = {}
    ordered = {name: ordered_ports(fabric, ports[name], places) for name in sorted(ports, key=natural)}
    generic = {name for name in ordered if name.lower().split(".")[0] in GENERIC_NAMES}
    several = several_machines(ordered, generic)
    roles, families = host_roles(ordered, generic | several.keys(), compute_nodes)
    return {
        name: Host(
            name=name,
            role=roles[name],
            family=families[name],
            ports=entries,
            twice=name in several,
            generic=name in generic,
            why_twice=several.get(name, ""),
        )
        for name, entries in ordered.items()
    }

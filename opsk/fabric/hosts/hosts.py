"""Which machines hang on the fabric, in what order are their HCAs, and what are they for: compute, storage, management?

Roles are read from how a host is cabled against the rest, and from its name; a site that knows better names its
compute nodes.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from opsk.fabric.fabric import Fabric
from opsk.fabric.graph import HcaLink
from opsk.fabric.hosts.ports import HostPort, Place, device_slot, family_of, natural, ordered_ports
from opsk.fabric.hosts.roles import COMPUTE, MANAGEMENT, STORAGE, host_roles, usual_ports

Ports = tuple[HostPort, ...]

_FEW_NAMED = 4
_MORE = 1.5
"""A host with at least this many times the usual number of HCAs may be two."""
_RARE = 0.1
"""Where at least this share of all hosts have so many HCAs, that is another kind of node."""
_ENOUGH = 6
"""Fewer hosts than this with about the usual number of HCAs tell nothing of how one node is cabled."""
_SERVERS_HAVE = 2
_MOST = 0.75


def several_machines(hosts: Mapping[str, Ports], generic: Collection[str]) -> dict[str, str]:
    """Return the names that several machines have, each with the reason.

    Parameters
    ----------
    generic
        Names that any number of machines may have: they are no measure for others.
    """
    again = {name: _repeated(ports) for name, ports in hosts.items()}
    found = {
        name: f"{', '.join(devices[:_FEW_NAMED])} appear more than once: one name for several machines"
        for name, devices in again.items()
        if devices
    }
    found |= _doubled({name: ports for name, ports in hosts.items() if name not in found and name not in generic})
    return {name: found[name] for name in hosts if name in found}


def _repeated(ports: Ports) -> list[str]:
    """Return the device names that stand there more than once."""
    if len({port.device for port in ports}) == len(ports):
        return []
    return sorted(device for device, count in Counter(port.device for port in ports).items() if count > 1)


def _doubled(hosts: Mapping[str, Ports]) -> dict[str, str]:
    """Return the hosts that have the HCAs of two nodes, though no device name twice."""
    usual = usual_ports(hosts.values())
    large = {name: ports for name, ports in hosts.items() if len(ports) >= _MORE * usual}
    ordinary = {name: ports for name, ports in hosts.items() if usual < 2 * len(ports) < 2 * _MORE * usual}
    if usual < _SERVERS_HAVE or len(ordinary) < _ENOUGH or len(large) > max(1, _RARE * len(hosts)):
        return {}
    ordinary_families = {family_of(name) for name in ordinary}
    families = Counter(map(family_of, large))
    crowd = _Crowd.of(ordinary)
    found = {}
    for name, ports in large.items():
        family = family_of(name)
        if families[family] > 1 and family not in ordinary_families:
            continue
        styles = sorted({family_of(port.device) for port in ports})
        why = crowd.why_two(ports) if usual > _SERVERS_HAVE or len(styles) > 1 else ""
        if why:
            named = f" ({' and '.join(styles)})" if len(styles) > 1 else ""
            found[name] = (
                f"{len(ports)} HCAs{named} where most nodes have {usual}, {why}: one name for several machines"
            )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Crowd:
    """How nodes with the usual number of HCAs are cabled: the ``leaves`` of each, and the ``nodes`` on each leaf."""

    leaves: Mapping[str, Counter[str]]
    nodes: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, hosts: Mapping[str, Ports]) -> _Crowd:
        """Return how these hosts are cabled."""
        leaves = {name: Counter(port.switch for port in ports) for name, ports in hosts.items()}
        nodes: defaultdict[str, list[str]] = defaultdict(list)
        for name, used in leaves.items():
            for leaf in used:
                nodes[leaf].append(name)
        return cls(leaves=leaves, nodes=nodes)

    def why_two(self, ports: Ports) -> str:
        """Return what shows that no one node is cabled so, or ""."""
        own = Counter(port.switch for port in ports if port.switch in self.nodes)
        if own.total() < _MOST * len(ports):
            return ""
        crowded = [leaf for leaf, count in own.items() if count > self._usually(leaf)]
        if 2 * len(crowded) >= len(own):
            return f"more of them on each of {len(crowded)} leaves than other nodes have there"
        reach = max(
            sum(own[leaf] for leaf in self.leaves[node]) for node in {name for leaf in own for name in self.nodes[leaf]}
        )
        return "" if reach >= _MOST * len(ports) else "on leaves that no other node has together"

    def _usually(self, leaf: str) -> float:
        return statistics.median_high([self.leaves[node][leaf] for node in self.nodes[leaf]])


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

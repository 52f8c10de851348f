"""Finds the hosts on the fabric, the order of their HCAs, and their role: compute, storage or management.

Roles are derived from how a host is cabled compared with the others, and from its name; a site can name its compute
nodes instead.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from opsk.fabric.fabric import Fabric
from opsk.fabric.graph import HcaLink
from opsk.fabric.hosts.ports import HostPort, Place, device_slot, family_of, natural_key, sort_ports
from opsk.fabric.hosts.roles import COMPUTE, MANAGEMENT, STORAGE, classify_hosts, compute_usual_ports

Ports = tuple[HostPort, ...]

_MAX_NAMED = 4
_MORE = 1.5
"""A host with at least this many times the usual number of HCAs may be two."""
_RARE = 0.1
"""Where at least this share of all hosts have so many HCAs, that is another kind of node."""
_MIN_HOSTS = 6
"""Fewer hosts than this with about the usual number of HCAs do not show how one node is cabled."""
_MAX_SERVER_HCAS = 2
_MAJORITY_SHARE = 0.75


def find_shared_names(hosts: Mapping[str, Ports], generic: Collection[str]) -> dict[str, str]:
    """Return the names that several machines have, each with the reason.

    Parameters
    ----------
    generic
        Names that any number of machines may have: they are no measure for others.
    """
    repeated = {name: _find_repeated(ports) for name, ports in hosts.items()}
    reasons = {
        name: f"{', '.join(devices[:_MAX_NAMED])} appear more than once: one name for several machines"
        for name, devices in repeated.items()
        if devices
    }
    reasons |= _find_doubled(
        {name: ports for name, ports in hosts.items() if name not in reasons and name not in generic}
    )
    return {name: reasons[name] for name in hosts if name in reasons}


def _find_repeated(ports: Ports) -> list[str]:
    """Return the device names that occur more than once."""
    if len({port.device for port in ports}) == len(ports):
        return []
    return sorted(device for device, count in Counter(port.device for port in ports).items() if count > 1)


def _find_doubled(hosts: Mapping[str, Ports]) -> dict[str, str]:
    """Return the hosts that have the HCAs of two nodes, though no device name twice."""
    usual = compute_usual_ports(hosts.values())
    large = {name: ports for name, ports in hosts.items() if len(ports) >= _MORE * usual}
    ordinary = {name: ports for name, ports in hosts.items() if usual < 2 * len(ports) < 2 * _MORE * usual}
    if usual < _MAX_SERVER_HCAS or len(ordinary) < _MIN_HOSTS or len(large) > max(1, _RARE * len(hosts)):
        return {}
    ordinary_families = {family_of(name) for name in ordinary}
    families = Counter(map(family_of, large))
    pattern = _CablingPattern.of(ordinary)
    reasons = {}
    for name, ports in large.items():
        family = family_of(name)
        if families[family] > 1 and family not in ordinary_families:
            continue
        styles = sorted({family_of(port.device) for port in ports})
        why = pattern.explain_two(ports) if usual > _MAX_SERVER_HCAS or len(styles) > 1 else ""
        if why:
            named = f" ({' and '.join(styles)})" if len(styles) > 1 else ""
            reasons[name] = (
                f"{len(ports)} HCAs{named} where most nodes have {usual}, {why}: one name for several machines"
            )
    return reasons


@dataclass(frozen=True, slots=True, kw_only=True)
class _CablingPattern:
    """How nodes with the usual number of HCAs are cabled: the ``leaves`` of each, and the ``nodes`` on each leaf."""

    leaves: Mapping[str, Counter[str]]
    nodes: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, hosts: Mapping[str, Ports]) -> _CablingPattern:
        """Return how these hosts are cabled."""
        leaves = {name: Counter(port.switch for port in ports) for name, ports in hosts.items()}
        nodes: defaultdict[str, list[str]] = defaultdict(list)
        for name, used in leaves.items():
            for leaf in used:
                nodes[leaf].append(name)
        return cls(leaves=leaves, nodes=nodes)

    def explain_two(self, ports: Ports) -> str:
        """Return the evidence that no single node is cabled so, or ""."""
        leaf_counts = Counter(port.switch for port in ports if port.switch in self.nodes)
        if leaf_counts.total() < _MAJORITY_SHARE * len(ports):
            return ""
        crowded = [leaf for leaf, count in leaf_counts.items() if count > self._find_usual_count(leaf)]
        if 2 * len(crowded) >= len(leaf_counts):
            return f"more of them on each of {len(crowded)} leaves than other nodes have there"
        reach = max(
            sum(leaf_counts[leaf] for leaf in self.leaves[node])
            for node in {name for leaf in leaf_counts for name in self.nodes[leaf]}
        )
        return "" if reach >= _MAJORITY_SHARE * len(ports) else "on leaves that no other node has together"

    def _find_usual_count(self, leaf: str) -> float:
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
    "natural_key",
]

GENERIC_NAMES = frozenset(
    {"localhost", "ubuntu", "debian", "centos", "rocky", "rhel", "fedora", "linux", "node", "host"}
)
"""Default names of installers: several machines may have them."""


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
    ordered = {name: sort_ports(fabric, ports[name], places) for name in sorted(ports, key=natural_key)}
    generic = {name for name in ordered if name.lower().split(".")[0] in GENERIC_NAMES}
    several = find_shared_names(ordered, generic)
    roles, families = classify_hosts(ordered, generic | several.keys(), compute_nodes)
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

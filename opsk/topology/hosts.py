"""Which machines hang on the fabric, in what order are their HCAs, and what are they for: compute, storage, management?

Roles are read from how a host is cabled against the rest, and from its name; a site that knows better names its
compute nodes.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from opsk.topology.fabric import Fabric
from opsk.topology.graph import HcaLink

COMPUTE, STORAGE, MANAGEMENT = "compute", "storage", "management"

GENERIC_NAMES = frozenset(
    {"localhost", "ubuntu", "debian", "centos", "rocky", "rhel", "fedora", "linux", "node", "host"}
)
"""Names that an installer leaves behind: each may stand for several machines."""

_STORAGE_WORDS = frozenset({
    "stor", "storage", "stg", "oss", "mds", "mdt", "ost", "mgs", "lustre", "gpfs", "nsd", "scr", "scratch", "weka",
    "vast", "ddn", "exa", "beegfs", "ceph", "nfs", "nas", "dtn", "io", "ion", "isilon", "tank", "pfs", "burst",
})  # fmt: skip
_MANAGEMENT_WORDS = frozenset({
    "ufm", "mgmt", "mgt", "mng", "mngt", "admin", "adm", "login", "head", "master", "mon", "submit", "opensm", "gw",
    "gateway", "ctrl", "control", "controller", "slurm", "bastion", "jump", "vis", "service", "svc",
})  # fmt: skip
_SMALL_FAMILY = 0.1
"""A family of hosts with few HCAs and less than this share of all hosts serves the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPort:
    """One cabled HCA port of a host; ``slot`` orders the ports of one host and compares between hosts."""

    device: str
    slot: tuple[int, ...]
    guid: str
    switch: str
    width: int
    speed: str
    bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A host as its HCAs name it: ``ports`` in device order.

    ``twice`` when one device name stands there twice, ``generic`` when the name is an installer's: it may then be the
    name of several machines.
    """

    name: str
    role: str
    family: str
    ports: tuple[HostPort, ...]
    twice: bool
    generic: bool


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
    places: dict[str, _Place] = {}
    ordered = {name: _ordered_ports(fabric, ports[name], places) for name in sorted(ports, key=natural)}
    roles = _roles(ordered, compute_nodes)
    return {
        name: Host(
            name=name,
            role=roles[name],
            family=family_of(name),
            ports=entries,
            twice=len({port.device for port in entries}) < len(entries),
            generic=name.lower().split(".")[0] in GENERIC_NAMES,
        )
        for name, entries in ordered.items()
    }


def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key in which ``n2`` comes before ``n10``."""
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", text) if part)


def family_of(name: str) -> str:
    """Return the name with each number replaced by ``#``: hosts of one kind share it."""
    return re.sub(r"\d+", "#", name)


def device_slot(device: str) -> tuple[int, ...]:
    """Return the place of a device in its host, comparable between hosts.

    ``HCA-1`` and ``mlx5_0`` are the same place: the one counts from 1, the other from 0. Other names (``ibp12s0f0``)
    are placed by their numbers.
    """
    if match := re.fullmatch(r"HCA-?(\d{1,6})", device, re.IGNORECASE):
        return (int(match[1]) - 1,)
    if match := re.match(r"[A-Za-z]+\d*_(\d{1,6})\b", device):
        return (int(match[1]),)
    return tuple(int(number) for number in re.findall(r"\d{1,9}", device))


_Place = tuple[tuple[int, ...], tuple[tuple[int, int, str], ...]]
"""Slot and natural sort key of a device name; hosts of one kind share their device names."""


def _ordered_ports(fabric: Fabric, links: list[HcaLink], places: dict[str, _Place]) -> tuple[HostPort, ...]:
    """Return the ports in device order; a second cabled port of one HCA is ``mlx5_0:2``, as NCCL writes it."""
    hcas = [link.hca for link in links]
    twice = len(set(hcas)) < len(hcas)
    ports = []
    for link in links:
        name = fabric.hcas[link.hca].device or ""
        several = twice and hcas.count(link.hca) > 1
        if name not in places:
            places[name] = device_slot(name), natural(name)
        slot = places[name][0]
        ports.append(
            HostPort(
                device=f"{name or link.hca}:{link.hca_port}" if several and link.hca_port > 1 else name or link.hca,
                slot=(*slot, link.hca_port) if several else slot,
                guid=link.hca,
                switch=link.switch,
                width=link.cable.width,
                speed=link.cable.speed,
                bytes_per_s=link.cable.bytes_per_s,
            )
        )
    return tuple(sorted(ports, key=lambda port: (port.slot, _device_key(port, places), port.guid)))


def _device_key(port: HostPort, places: Mapping[str, _Place]) -> tuple[tuple[int, int, str], ...]:
    """Return the natural order of a device name; a guid in its place is no name, and orders as a number."""
    if port.device == port.guid:
        return ()
    return places[port.device][1] if port.device in places else natural(port.device)


def _roles(hosts: Mapping[str, tuple[HostPort, ...]], compute_nodes: Collection[str] | None) -> dict[str, str]:
    """Return the role of each host."""
    hints = _hints(hosts)
    families: defaultdict[str, list[str]] = defaultdict(list)
    for name in hosts:
        if not hints[name]:
            families[family_of(name)].append(name)
    usual = {family: _usual_ports(names, hosts) for family, names in families.items()}
    most = max(families, key=lambda family: (sum(len(hosts[name]) for name in families[family]), family), default="")
    roles = {}
    for name in hosts:
        if compute_nodes is not None:
            roles[name] = COMPUTE if name in compute_nodes else hints[name] or MANAGEMENT
        elif hints[name]:
            roles[name] = hints[name]
        else:
            family = family_of(name)
            roles[name] = _family_role(len(families[family]), usual[family], usual[most], len(hosts))
    return roles


def _hints(hosts: Mapping[str, tuple[HostPort, ...]]) -> dict[str, str]:
    """Return the role that each name tells, or ""; a family with most of all HCAs is what the fabric is for."""
    hints = {name: _hint(name) for name in hosts}
    ports: Counter[str] = Counter()
    for name, entries in hosts.items():
        ports[family_of(name) if hints[name] else ""] += len(entries)
    family, count = max(ports.items(), key=lambda item: item[1], default=("", 0))
    if family and 2 * count > ports.total():
        return {name: "" if hint and family_of(name) == family else hint for name, hint in hints.items()}
    return hints


def _family_role(members: int, ports: int, main_ports: int, hosts: int) -> str:
    """Return what a family of hosts without a telling name is for, against the family with the most HCAs."""
    if 2 * ports > main_ports or members >= _SMALL_FAMILY * hosts:
        return COMPUTE
    return MANAGEMENT


def _usual_ports(names: list[str], hosts: Mapping[str, tuple[HostPort, ...]]) -> int:
    counts = Counter(len(hosts[name]) for name in names)
    return max(counts, key=lambda count: (counts[count], count))


def _hint(name: str) -> str:
    """Return the role that a name tells, or ""."""
    words = re.findall(r"[a-z]+", name.lower())
    if any("ufm" in word for word in words) or not _MANAGEMENT_WORDS.isdisjoint(words):
        return MANAGEMENT
    return "" if _STORAGE_WORDS.isdisjoint(words) else STORAGE

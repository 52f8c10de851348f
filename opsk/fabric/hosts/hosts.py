"""Finds the hosts on the fabric, the order of their HCAs, and their role: compute, storage or management.

Roles are derived from how a host is cabled compared with the others, and from its name; a site can name its compute
nodes instead. A host of the kind that most HCAs of the fabric belong to is a compute node; a name that several machines
share does not count. A host with fewer HCAs is a compute node as well where its HCAs are on the leaves as those of
compute nodes are. A host that is named like a server but has as many HCAs as a compute node, on the same leaves, is a
compute node. One case cannot be decided: a host of one or two HCAs that shares no pattern of names with compute nodes,
and whose devices a stand-alone machine would have too (``mlx5_0``), is classified as management.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from opsk.fabric.fabric import Fabric
from opsk.fabric.graph import HcaLink
from opsk.fabric.hosts.ports import HostPort, Place, device_slot, mask_numbers, natural_key, sort_ports

COMPUTE, STORAGE, MANAGEMENT = "compute", "storage", "management"

Ports = tuple[HostPort, ...]

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
_MIN_FAMILY = 4
"""So many hosts without a common name are a family when they have as many HCAs each."""
_MIN_HCAS = 3
"""HCAs placed as those of a compute node; one or two may be so by chance, and need a matching name or device."""
_MIN_IN_PLACE_SHARE = 0.75
"""Share of a host's HCAs that must be where compute nodes have theirs, and of a compute node's number of HCAs."""
_PCI_NAME = re.compile(r"[a-z]+p\d+s\d+", re.IGNORECASE)
"""A device named by its PCI slot (``ibp154s0``): machines of another model have others."""
_MAX_SERVER_HCAS = 2
_MAX_NAMED = 4
_MORE = 1.5
"""A host with at least this many times the usual number of HCAs may be two."""
_RARE = 0.1
"""Where at least this share of all hosts have so many HCAs, that is another kind of node."""
_MIN_HOSTS = 6
"""Fewer hosts than this with about the usual number of HCAs do not show how one node is cabled."""
_MAJORITY_SHARE = 0.75
__all__ = [
    "COMPUTE",
    "MANAGEMENT",
    "STORAGE",
    "Host",
    "HostPort",
    "device_slot",
    "find_hosts",
    "mask_numbers",
    "natural_key",
]
GENERIC_NAMES = frozenset(
    {"localhost", "ubuntu", "debian", "centos", "rocky", "rhel", "fedora", "linux", "node", "host"}
)
"""Default names of installers: several machines may have them."""
"""A named server may have so many HCAs, as compute nodes of a small kind do: cabling does not decide then."""


def classify_hosts(
    hosts: Mapping[str, Ports], shared: Collection[str], compute_nodes: Collection[str] | None
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the role of each host, and the family of hosts that it is to be compared with.

    That is the family of its name; where hardly any host shares the name's pattern, and it has the HCAs of a compute
    node or what is left of them, it is the family of most compute nodes.

    Parameters
    ----------
    shared
        Names of several machines: they are no measure for others.
    compute_nodes
        When given, exactly these are compute nodes.
    """
    hints = _collect_hints(hosts)
    usual = compute_usual_ports(hosts[name] for name in hosts if not hints[name] and name not in shared)
    families = _count_families(hosts, hints)
    usual_sizes = {family: _find_usual_size(ports) for family, ports in families.items()}
    large = {family for family, ports in families.items() if len(ports) >= _SMALL_FAMILY * len(hosts)}
    roles = {}
    for name, ports in hosts.items():
        if compute_nodes is not None:
            roles[name] = COMPUTE if name in compute_nodes else hints[name] or MANAGEMENT
        else:
            family = _family(name, ports, families) if not hints[name] else ""
            roles[name] = hints[name] or _role(usual_sizes[family], len(ports), usual, is_large=family in large)
    full = [name for name, ports in hosts.items() if roles[name] == COMPUTE and 2 * len(ports) > usual]
    compute = set(full)
    pattern = _build_pattern({name: hosts[name] for name in full if name not in shared}, usual)
    members = Counter(mask_numbers(name) for name in hosts if not hints[name])
    for name, ports in hosts.items():
        if name not in compute and (compute_nodes is None or roles[name] == COMPUTE):
            hinted = bool(hints[name]) and compute_nodes is None
            if _is_compute(name, ports, pattern, hinted=hinted, members=members[mask_numbers(name)]):
                roles[name] = COMPUTE
                compute.add(name)
    return roles, _families_to_compare(hosts, compute - set(shared), members)


def _families_to_compare(
    hosts: Mapping[str, Ports], compute: Collection[str], members: Mapping[str, int]
) -> dict[str, str]:
    """Return the family of each host; those without one of some size are of the one that most compute nodes are of."""
    family_by_name = {name: mask_numbers(name) for name in hosts}
    alone = {name for name in compute if members[family_by_name[name]] < _MIN_FAMILY}
    sizes = Counter(family_by_name[name] for name in compute if name not in alone)
    family, size = max(sizes.items(), key=lambda item: (item[1], item[0]), default=("", 0))
    return family_by_name | dict.fromkeys(alone, family if size > len(alone) else "")


def compute_usual_ports(hosts: Iterable[Ports]) -> int:
    """Return how many HCAs the host of a typical HCA has: half of all HCAs are in hosts with as many or fewer."""
    counts = Counter(len(ports) for ports in hosts)
    half, seen = sum(count * number for count, number in counts.items()) / 2, 0
    for count in sorted(counts):
        seen += count * counts[count]
        if seen >= half:
            return count
    return 0


def _collect_hints(hosts: Mapping[str, Ports]) -> dict[str, str]:
    """Return the role in each name, or ""; a family with most of all HCAs has none, it is what the fabric is for."""
    hints = {name: classify_name(name) for name in hosts}
    ports: Counter[str] = Counter()
    for name, entries in hosts.items():
        ports[mask_numbers(name) if hints[name] else ""] += len(entries)
    family, count = max(ports.items(), key=lambda item: item[1], default=("", 0))
    if family and 2 * count > ports.total():
        return {name: "" if hint and mask_numbers(name) == family else hint for name, hint in hints.items()}
    return hints


def classify_name(name: str) -> str:
    """Return the role that the words of a name mean, or ""."""
    words = re.findall(r"[a-z]+", name.lower())
    if any("ufm" in word for word in words) or not _MANAGEMENT_WORDS.isdisjoint(words):
        return MANAGEMENT
    return "" if _STORAGE_WORDS.isdisjoint(words) else STORAGE


def _count_families(hosts: Mapping[str, Ports], hints: Mapping[str, str]) -> dict[str, list[int]]:
    """Return how many HCAs the members of each family have; hosts without a family are one by number of HCAs."""
    members: defaultdict[str, list[int]] = defaultdict(list)
    for name, ports in hosts.items():
        if not hints[name]:
            members[mask_numbers(name)].append(len(ports))
    alone = Counter(counts[0] for counts in members.values() if len(counts) == 1)
    crowds = {_group_name(count): [count] * number for count, number in alone.items() if number >= _MIN_FAMILY}
    return {**members, **crowds}


def _family(name: str, ports: Ports, families: Mapping[str, list[int]]) -> str:
    """Return the key of the family of a host."""
    family = mask_numbers(name)
    crowd = _group_name(len(ports))
    return crowd if len(families.get(family, ())) == 1 and crowd in families else family


def _group_name(ports: int) -> str:
    return f" {ports}"


def _find_usual_size(family: Sequence[int]) -> int:
    """Return how many HCAs most hosts of a family have."""
    counts = Counter(family)
    return max(counts, key=lambda count: (counts[count], count))


def _role(family_size: int, ports: int, usual: int, *, is_large: bool) -> str:
    """Return what a host without a telling name is for, by the number of HCAs of its family and its own."""
    return COMPUTE if 2 * family_size > usual or 2 * ports > usual or is_large else MANAGEMENT


@dataclass(frozen=True, slots=True, kw_only=True)
class _ComputePattern:
    """The cabling and naming pattern of compute nodes.

    ``nodes`` lists those on each leaf; ``leaves`` and ``slots`` are those of each node; ``there`` counts the nodes that
    have a slot on a leaf; ``words`` are what most names have in common, by place, "" where that is nothing.
    """

    usual: int
    nodes: Mapping[str, Sequence[str]]
    leaves: Mapping[str, Counter[str]]
    slots: Mapping[str, frozenset[tuple[int, ...]]]
    there: Mapping[tuple[str, tuple[int, ...]], int]
    words: tuple[str, ...]


def _build_pattern(hosts: Mapping[str, Ports], usual: int) -> _ComputePattern:
    nodes: defaultdict[str, list[str]] = defaultdict(list)
    there: Counter[tuple[str, tuple[int, ...]]] = Counter()
    leaves: dict[str, Counter[str]] = {}
    for name, ports in hosts.items():
        leaves[name] = Counter(port.switch for port in ports)
        for leaf in leaves[name]:
            nodes[leaf].append(name)
        there.update({(port.switch, port.slot) for port in ports})
    return _ComputePattern(
        usual=usual,
        nodes=nodes,
        leaves=leaves,
        slots={name: frozenset(port.slot for port in ports) for name, ports in hosts.items()},
        there=there,
        words=_find_common_words([_words(name) for name in hosts]),
    )


def _is_compute(name: str, ports: Ports, pattern: _ComputePattern, *, hinted: bool, members: int) -> bool:
    """Return whether a host is cabled as compute nodes are, though it has fewer HCAs or is named as a server.

    Parameters
    ----------
    members
        Hosts of its family, itself among them: several with few HCAs each are no broken compute nodes.
    """
    in_place = sum(_in_place(port, pattern) for port in ports) >= _MIN_IN_PLACE_SHARE * len(ports)
    if hinted:
        full = len(ports) >= max(_MIN_IN_PLACE_SHARE * pattern.usual, _MAX_SERVER_HCAS + 1)
        return in_place and (full or (len(ports) >= _MIN_HCAS and _is_named_like(name, pattern)))
    if members >= _MIN_FAMILY:
        return False
    if len(ports) >= _MIN_HCAS:
        return in_place or _fits(ports, pattern)
    telling = _is_named_like(name, pattern) or all(_PCI_NAME.match(port.device) for port in ports)
    return in_place and (telling or (len(ports) > 1 and not _counts_from_first(ports, pattern)))


def _in_place(port: HostPort, pattern: _ComputePattern) -> bool:
    """Return whether the compute nodes on a port's leaf have the same HCA there, those of them that have it at all."""
    there = pattern.there.get((port.switch, port.slot), 0)
    if there < 2:
        return False
    return 2 * there > sum(port.slot in pattern.slots[node] for node in pattern.nodes[port.switch])


def _fits(ports: Ports, pattern: _ComputePattern) -> bool:
    """Return whether some compute node has an HCA on the same leaf for each port, whatever the devices are called."""
    leaf_counts = Counter(port.switch for port in ports)
    return any(leaf_counts <= pattern.leaves[node] for node in pattern.nodes.get(ports[0].switch, ()))


def _counts_from_first(ports: Ports, pattern: _ComputePattern) -> bool:
    """Return whether the devices are the first of a compute node here, as those of a machine with no others are."""
    slots = sorted(port.slot for port in ports)
    return any(
        sorted(pattern.slots[node])[: len(slots)] == slots
        for port in ports
        for node in pattern.nodes.get(port.switch, ())
    )


def _is_named_like(name: str, pattern: _ComputePattern) -> bool:
    """Return whether a name has the words that the names of most compute nodes have in common."""
    words = _words(name)
    if len(words) != len(pattern.words) or not any(re.search("[a-z]", word) for word in pattern.words):
        return False
    return all(common in ("", word) for word, common in zip(words, pattern.words, strict=True))


def _words(name: str) -> tuple[str, ...]:
    """Return the words of a host name without its domain, each number as ``#``."""
    return tuple(re.findall(r"[a-z0-9#]+", mask_numbers(name.lower().split(".")[0])))


def _find_common_words(names: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the word that more than half of all names have in each place, where more than half have as many words."""
    lengths = Counter(map(len, names))
    length = max(lengths, key=lambda count: lengths[count], default=0)
    if 2 * lengths[length] <= len(names):
        return ()
    common = []
    for place in range(length):
        words = Counter(words[place] for words in names if len(words) == length)
        word = max(words, key=lambda candidate: words[candidate])
        common.append(word if 2 * words[word] > lengths[length] else "")
    return tuple(common)


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
    ordinary_families = {mask_numbers(name) for name in ordinary}
    families = Counter(map(mask_numbers, large))
    pattern = _CablingPattern.of(ordinary)
    reasons = {}
    for name, ports in large.items():
        family = mask_numbers(name)
        if families[family] > 1 and family not in ordinary_families:
            continue
        styles = sorted({mask_numbers(port.device) for port in ports})
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

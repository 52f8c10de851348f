"""Which parts fail from one cause? All NVLinks of a domain, all ports of a leaf, all GPUs of a node: one fault each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from opsk.diagnosis.events.actions import action_of
from opsk.diagnosis.events.observations import NodeSeen, Observations
from opsk.diagnosis.events.signs import Memory, Sign
from opsk.diagnosis.events.values import Part, Severity

_MOST_NAMED = 4
_FEW = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What is bad about one part, all signs together: the worst first."""

    failed: str
    part: Part
    signs: tuple[Sign, ...]
    nodes: tuple[str, ...]

    @property
    def worst(self) -> Sign:
        """The sign that decides."""
        return self.signs[0]

    @property
    def after_s(self) -> float:
        """For how long it must last before it is told [s]: as the least patient of its worst signs says."""
        return min(sign.after_s for sign in self.signs if sign.severity == self.worst.severity)


def faults_of(signs: Sequence[Sign], seen: Observations, memory: Memory) -> dict[str, Fault]:
    """Return the faults by what failed; a part whose trouble is that of something larger has none of its own."""
    nodes = {node.name: node for node in seen.nodes}
    left = _without_down(list(signs), nodes)
    left = _of_leaves(left, seen)
    left = _of_domains(left, seen, memory, nodes)
    left = _of_nodes(left, seen, memory)
    found: defaultdict[str, list[Sign]] = defaultdict(list)
    for sign in left:
        found[sign.failed].append(sign)
    rank = {severity: at for at, severity in enumerate((Severity.FATAL, Severity.DEGRADED, Severity.WATCH))}
    return {
        failed: Fault(
            failed=failed,
            part=each[0].part,
            signs=tuple(sorted(each, key=lambda sign: (rank[sign.severity], not sign.is_gone, sign.what))),
            nodes=_nodes_of(each, nodes),
        )
        for failed, each in found.items()
    }


def _nodes_of(signs: Iterable[Sign], nodes: Mapping[str, NodeSeen]) -> tuple[str, ...]:
    """Return the nodes that a fault touches: all of a domain."""
    found = {sign.node for sign in signs if sign.node}
    for sign in signs:
        if sign.part is Part.HB_DOMAIN:
            domain = sign.failed.partition(":")[2]
            found |= {node.name for node in nodes.values() if node.hb_domain == domain}
        found |= set(sign.hosts)
    return tuple(sorted(found))


def _without_down(signs: list[Sign], nodes: Mapping[str, NodeSeen]) -> list[Sign]:
    """Leave out what is bad about parts of a node that is down as a whole."""
    down = {name for name, node in nodes.items() if node.is_down}
    return [sign for sign in signs if sign.node not in down or sign.part is Part.NODE]


def _made(part: Part, name: str, what: str, text: str, node: str = "", hosts: tuple[str, ...] = ()) -> Sign:
    meaning = action_of(what)
    return Sign(
        part=part, failed=f"{part}:{name}", what=what, node=node, text=text, severity=meaning.severity,
        after_s=meaning.after_s, action=meaning.action, source=meaning.source, is_gone=True, hosts=hosts,
    )  # fmt: skip


def _of_leaves(signs: list[Sign], seen: Observations) -> list[Sign]:
    """Put the ports of one leaf together: half of those that are looked at are down, on two nodes or more."""
    down: defaultdict[str, list[Sign]] = defaultdict(list)
    for sign in signs:
        if sign.what == "port_down" and sign.leaf:
            down[sign.leaf].append(sign)
    cabled: defaultdict[str, set[str]] = defaultdict(set)
    for port in seen.ports if down else ():
        if port.leaf in down:
            cabled[port.leaf].add(port.name)
    for leaf, lost in sorted(down.items()):
        hosts = sorted({sign.node for sign in lost})
        if len(hosts) < _FEW or 2 * len(lost) < len(cabled[leaf]):
            continue
        text = f"{len(lost)} of {len(cabled[leaf])} ports that are looked at are down: {_few(hosts)}"
        gone = {sign.failed for sign in lost}
        signs = [sign for sign in signs if sign.failed not in gone]
        signs.append(_made(Part.LEAF, leaf, "leaf", text, hosts=tuple(hosts)))
    return signs


def _of_domains(signs: list[Sign], seen: Observations, memory: Memory, nodes: Mapping[str, NodeSeen]) -> list[Sign]:
    """Put the GPUs of one HB domain together: half of them have trouble, at least two with NVLink or its fabric.

    Nodes of a domain of several that are down count with all their GPUs.
    """
    signs = _without_echoes(signs, nodes)
    sick, gone, down = _by_domain(signs, nodes)
    hosts = _hosts({*sick, *down}, nodes)
    places = _places({node for found in hosts.values() for node in found}, seen, memory)
    for domain, members in sorted(hosts.items()):
        gpus = [place for node in members for place in places[node]]
        linked = {sign.failed for sign in sick[domain]}
        lost = {sign.failed for sign in gone[domain]} | linked
        is_down = down[domain] if len(members) > 1 else set()
        hit = len(lost) + sum(len(places[node]) for node in is_down)
        spread = len(linked) >= _FEW or len(is_down | {sign.node for sign in sick[domain]}) >= _FEW
        if not spread or hit < _FEW or 2 * hit < len(gpus):
            continue
        why = "; ".join(dict.fromkeys(sign.text for sign in sick[domain][:_FEW])) or "its nodes are down"
        text = f"{hit} of {len(gpus)} GPUs on {len(members)} node{'s' * (len(members) > 1)} have trouble: {why}"
        swallowed = lost | {f"{Part.NODE}:{node}" for node in is_down}
        signs = [sign for sign in signs if sign.failed not in swallowed]
        signs.append(_made(Part.HB_DOMAIN, domain, "domain", text))
    return signs


def _without_echoes(signs: list[Sign], nodes: Mapping[str, NodeSeen]) -> list[Sign]:
    """Leave out that GPUs miss some NVLinks where another GPU of their domain is gone: those went to that one."""
    _, gone, _ = _by_domain(signs, nodes)
    failed = {sign.failed for found in gone.values() for sign in found}
    return [
        sign
        for sign in signs
        if sign.what != "nvlink_some" or sign.failed in failed or not gone.get(_domain(sign, nodes))
    ]


def _domain(sign: Sign, nodes: Mapping[str, NodeSeen]) -> str:
    return nodes[sign.node].hb_domain if sign.node in nodes else sign.node


def _by_domain(
    signs: Iterable[Sign], nodes: Mapping[str, NodeSeen]
) -> tuple[Mapping[str, list[Sign]], Mapping[str, list[Sign]], Mapping[str, set[str]]]:
    """Return by domain: signs of NVLink trouble, of GPUs that are gone, and nodes that are down."""
    sick: defaultdict[str, list[Sign]] = defaultdict(list)
    gone: defaultdict[str, list[Sign]] = defaultdict(list)
    down: defaultdict[str, set[str]] = defaultdict(set)
    for sign in signs:
        domain = _domain(sign, nodes)
        if sign.what == "node_down":
            down[domain].add(sign.node)
        elif sign.part is Part.GPU and sign.of_domain:
            sick[domain].append(sign)
        elif sign.part is Part.GPU and sign.is_gone:
            gone[domain].append(sign)
    return sick, gone, down


def _hosts(domains: Collection[str], nodes: Mapping[str, NodeSeen]) -> dict[str, list[str]]:
    """Return the nodes of some domains."""
    found: dict[str, list[str]] = {domain: [] for domain in domains}
    for node in nodes.values() if domains else ():
        if (domain := node.hb_domain) in found:
            found[domain].append(node.name)
    return {domain: sorted(members) or [domain] for domain, members in found.items()}


def _places(names: Collection[str], seen: Observations, memory: Memory) -> dict[str, set[tuple[str, int]]]:
    """Return the GPUs of some nodes that are known; of nodes that are down those that Slurm has configured."""
    found: dict[str, set[tuple[str, int]]] = {name: set() for name in names}
    if not found:
        return found
    for place in memory.gpus:
        if place[0] in found:
            found[place[0]].add(place)
    for gpu in seen.gpus:
        if gpu.node in found and gpu.index is not None:
            found[gpu.node].add((gpu.node, gpu.index))
    for node in seen.nodes:
        if node.is_down and node.name in found:
            found[node.name] |= {(node.name, at) for at in range(node.gpus or 0)}
    return found


def _of_nodes(signs: list[Sign], seen: Observations, memory: Memory) -> list[Sign]:
    """Put the GPUs, or the ports, of one node together where none of two or more is left."""
    hosts = {sign.node for sign in signs if sign.is_gone and sign.part in {Part.GPU, Part.NIC}}
    gpus = {
        node: {f"{Part.GPU}:{node}/{index}" for _, index in found}
        for node, found in _places(hosts, seen, memory).items()
    }
    ports: dict[str, set[str]] = {node: set() for node in hosts}
    for port in seen.ports if hosts else ():
        if port.node in hosts and port.name in memory.ports:
            ports[port.node].add(f"{Part.NIC}:{port.name}")
    for parts, what, said in ((gpus, "node_gpus", "GPUs"), (ports, "node_ports", "ports")):
        gone = {sign.failed for sign in signs if sign.is_gone}
        for node, names in sorted(parts.items()):
            if len(names) >= _FEW and names <= gone:
                signs = [sign for sign in signs if sign.failed not in names]
                signs.append(_made(Part.NODE, node, what, f"none of its {len(names)} {said} is left", node=node))
    return signs


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST_NAMED]) + (
        f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    )

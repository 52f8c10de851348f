"""Merges signs with one cause into one fault: all NVLinks of a domain, all ports of a leaf, all GPUs of a node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from opsk.diagnosis.events.actions import find_action
from opsk.diagnosis.events.findings import Finding, Memory
from opsk.diagnosis.events.observations import FailedPart, NodeSeen, Observations, Severity

_MAX_NAMED = 4
_FEW = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFault:
    """The fault of one part, with all of its findings, the worst first."""

    failed: str
    part: FailedPart
    findings: tuple[Finding, ...]
    nodes: tuple[str, ...]

    @property
    def worst(self) -> Finding:
        """The finding that decides."""
        return self.findings[0]

    @property
    def after_s(self) -> float:
        """How long it must last before it is reported [s]: the shortest time of its worst findings."""
        return min(finding.after_s for finding in self.findings if finding.severity == self.worst.severity)


def merge_faults(findings: Sequence[Finding], seen: Observations, memory: Memory) -> dict[str, PartFault]:
    """Return the faults by failed part; a part that fails because of a larger one has none of its own."""
    nodes = {node.name: node for node in seen.nodes}
    left = _drop_down_nodes(list(findings), nodes)
    left = _merge_leaves(left, seen)
    left = _merge_domains(left, seen, memory, nodes)
    left = _merge_nodes(left, seen, memory)
    by_part: defaultdict[str, list[Finding]] = defaultdict(list)
    for finding in left:
        by_part[finding.failed].append(finding)
    rank = {severity: at for at, severity in enumerate((Severity.FATAL, Severity.DEGRADED, Severity.WATCH))}
    return {
        failed: PartFault(
            failed=failed,
            part=part_findings[0].part,
            findings=tuple(
                sorted(part_findings, key=lambda finding: (rank[finding.severity], not finding.is_gone, finding.what))
            ),
            nodes=_find_nodes(part_findings, nodes),
        )
        for failed, part_findings in by_part.items()
    }


def _find_nodes(findings: Iterable[Finding], nodes: Mapping[str, NodeSeen]) -> tuple[str, ...]:
    """Return the nodes that a fault touches: all of a domain."""
    names = {finding.node for finding in findings if finding.node}
    for finding in findings:
        if finding.part is FailedPart.HB_DOMAIN:
            domain = finding.failed.partition(":")[2]
            names |= {node.name for node in nodes.values() if node.hb_domain == domain}
        names |= set(finding.hosts)
    return tuple(sorted(names))


def _drop_down_nodes(findings: list[Finding], nodes: Mapping[str, NodeSeen]) -> list[Finding]:
    """Drop findings on parts of a node that is down as a whole."""
    down = {name for name, node in nodes.items() if node.is_down}
    return [finding for finding in findings if finding.node not in down or finding.part is FailedPart.NODE]


def _build_finding(
    part: FailedPart, name: str, what: str, text: str, node: str = "", hosts: tuple[str, ...] = ()
) -> Finding:
    meaning = find_action(what)
    return Finding(
        part=part, failed=f"{part}:{name}", what=what, node=node, text=text, severity=meaning.severity,
        after_s=meaning.after_s, action=meaning.action, source=meaning.source, is_gone=True, hosts=hosts,
    )  # fmt: skip


def _merge_leaves(findings: list[Finding], seen: Observations) -> list[Finding]:
    """Merge the ports of one leaf: half of those observed are down, on two nodes or more."""
    down: defaultdict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        if finding.what == "port_down" and finding.leaf:
            down[finding.leaf].append(finding)
    cabled: defaultdict[str, set[str]] = defaultdict(set)
    for port in seen.ports if down else ():
        if port.leaf in down:
            cabled[port.leaf].add(port.name)
    for leaf, lost in sorted(down.items()):
        hosts = sorted({finding.node for finding in lost})
        if len(hosts) < _FEW or 2 * len(lost) < len(cabled[leaf]):
            continue
        text = f"{len(lost)} of {len(cabled[leaf])} ports that are looked at are down: {_format_names(hosts)}"
        gone = {finding.failed for finding in lost}
        findings = [finding for finding in findings if finding.failed not in gone]
        findings.append(_build_finding(FailedPart.LEAF, leaf, "leaf", text, hosts=tuple(hosts)))
    return findings


def _merge_domains(
    findings: list[Finding], seen: Observations, memory: Memory, nodes: Mapping[str, NodeSeen]
) -> list[Finding]:
    """Merge the GPUs of one HB domain: half of them have trouble, at least two with NVLink or its fabric.

    Nodes of a domain of several that are down count with all their GPUs.
    """
    findings = _drop_echoes(findings, nodes)
    unhealthy, gone, down = _group_by_domain(findings, nodes)
    hosts = _find_hosts({*unhealthy, *down}, nodes)
    places = _find_gpus({node for nodes_of_domain in hosts.values() for node in nodes_of_domain}, seen, memory)
    for domain, members in sorted(hosts.items()):
        gpus = [place for node in members for place in places[node]]
        linked = {finding.failed for finding in unhealthy[domain]}
        lost = {finding.failed for finding in gone[domain]} | linked
        is_down = down[domain] if len(members) > 1 else set()
        affected = len(lost) + sum(len(places[node]) for node in is_down)
        spread = len(linked) >= _FEW or len(is_down | {finding.node for finding in unhealthy[domain]}) >= _FEW
        if not spread or affected < _FEW or 2 * affected < len(gpus):
            continue
        why = "; ".join(dict.fromkeys(finding.text for finding in unhealthy[domain][:_FEW])) or "its nodes are down"
        text = f"{affected} of {len(gpus)} GPUs on {len(members)} node{'s' * (len(members) > 1)} have trouble: {why}"
        swallowed = lost | {f"{FailedPart.NODE}:{node}" for node in is_down}
        findings = [finding for finding in findings if finding.failed not in swallowed]
        findings.append(_build_finding(FailedPart.HB_DOMAIN, domain, "domain", text))
    return findings


def _drop_echoes(findings: list[Finding], nodes: Mapping[str, NodeSeen]) -> list[Finding]:
    """Leave out that GPUs miss some NVLinks where another GPU of their domain is gone: those went to that one."""
    _, gone, _ = _group_by_domain(findings, nodes)
    failed = {finding.failed for group in gone.values() for finding in group}
    return [
        finding
        for finding in findings
        if finding.what != "nvlink_some" or finding.failed in failed or not gone.get(_find_domain(finding, nodes))
    ]


def _find_domain(finding: Finding, nodes: Mapping[str, NodeSeen]) -> str:
    return nodes[finding.node].hb_domain if finding.node in nodes else finding.node


def _group_by_domain(
    findings: Iterable[Finding], nodes: Mapping[str, NodeSeen]
) -> tuple[Mapping[str, list[Finding]], Mapping[str, list[Finding]], Mapping[str, set[str]]]:
    """Return by domain: findings of NVLink trouble, of GPUs that are gone, and nodes that are down."""
    unhealthy: defaultdict[str, list[Finding]] = defaultdict(list)
    gone: defaultdict[str, list[Finding]] = defaultdict(list)
    down: defaultdict[str, set[str]] = defaultdict(set)
    for finding in findings:
        domain = _find_domain(finding, nodes)
        if finding.what == "node_down":
            down[domain].add(finding.node)
        elif finding.part is FailedPart.GPU and finding.of_domain:
            unhealthy[domain].append(finding)
        elif finding.part is FailedPart.GPU and finding.is_gone:
            gone[domain].append(finding)
    return unhealthy, gone, down


def _find_hosts(domains: Collection[str], nodes: Mapping[str, NodeSeen]) -> dict[str, list[str]]:
    """Return the nodes of some domains."""
    hosts: dict[str, list[str]] = {domain: [] for domain in domains}
    for node in nodes.values() if domains else ():
        if (domain := node.hb_domain) in hosts:
            hosts[domain].append(node.name)
    return {domain: sorted(members) or [domain] for domain, members in hosts.items()}


def _find_gpus(names: Collection[str], seen: Observations, memory: Memory) -> dict[str, set[tuple[str, int]]]:
    """Return the GPUs of some nodes that are known; of nodes that are down those that Slurm has configured."""
    gpus: dict[str, set[tuple[str, int]]] = {name: set() for name in names}
    if not gpus:
        return gpus
    for place in memory.gpus:
        if place[0] in gpus:
            gpus[place[0]].add(place)
    for gpu in seen.gpus:
        if gpu.node in gpus and gpu.index is not None:
            gpus[gpu.node].add((gpu.node, gpu.index))
    for node in seen.nodes:
        if node.is_down and node.name in gpus:
            gpus[node.name] |= {(node.name, at) for at in range(node.gpus or 0)}
    return gpus


def _merge_nodes(findings: list[Finding], seen: Observations, memory: Memory) -> list[Finding]:
    """Merge the GPUs, or the ports, of one node where none of two or more is left."""
    hosts = {
        finding.node for finding in findings if finding.is_gone and finding.part in {FailedPart.GPU, FailedPart.NIC}
    }
    gpus = {
        node: {f"{FailedPart.GPU}:{node}/{index}" for _, index in group}
        for node, group in _find_gpus(hosts, seen, memory).items()
    }
    ports: dict[str, set[str]] = {node: set() for node in hosts}
    for port in seen.ports if hosts else ():
        if port.node in hosts and port.name in memory.ports:
            ports[port.node].add(f"{FailedPart.NIC}:{port.name}")
    for parts, what, label in ((gpus, "node_gpus", "GPUs"), (ports, "node_ports", "ports")):
        gone = {finding.failed for finding in findings if finding.is_gone}
        for node, names in sorted(parts.items()):
            if len(names) >= _FEW and names <= gone:
                findings = [finding for finding in findings if finding.failed not in names]
                findings.append(
                    _build_finding(FailedPart.NODE, node, what, f"none of its {len(names)} {label} is left", node=node)
                )
    return findings


def _format_names(names: Sequence[str]) -> str:
    return ", ".join(names[:_MAX_NAMED]) + (f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else "")

"""Reports hosts that no scheduler can use, and parts of a fabric without a cable to the rest.

On a fabric without spines across rails, each rail is a part of its own by design and most nodes have an HCA in each.
A part with few of the nodes is cut off.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Set
from dataclasses import dataclass

from opsk.fabric.cabling import Cabling
from opsk.fabric.checks.links import cable_ends
from opsk.fabric.fabric import Fault
from opsk.fabric.graph import HcaLink, find_components
from opsk.fabric.hosts.hosts import COMPUTE

_MAJORITY_SHARE = 0.5
_MAX_NAMED = 4
_ODD_SHARE = 0.1
"""HCAs with two cables are odd where fewer than this share of all HCAs has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Island:
    """A part that no cable joins to the rest: its switches, HCAs (no SHARP nodes), and the hosts these name."""

    switches: tuple[str, ...]
    hcas: tuple[str, ...]
    nodes: tuple[str, ...]


def find_islands(cabling: Cabling) -> tuple[Island, ...]:
    """Return the parts that are cut off, largest first."""
    fabric = cabling.fabric
    parts = find_components(fabric)
    compute = {host.name for host in cabling.compute}
    islands = []
    for part in parts[1:]:
        hcas = tuple(sorted(guid for guid in part & fabric.hcas.keys() if not fabric.hcas[guid].sharp))
        nodes = {node for guid in hcas if (node := fabric.hcas[guid].node) is not None}
        switches = tuple(sorted(part & fabric.switches.keys()))
        if (switches or hcas) and not _is_plane(cabling, nodes, compute):
            islands.append(Island(switches=switches, hcas=hcas, nodes=tuple(sorted(nodes))))
    return tuple(islands)


def _is_plane(cabling: Cabling, nodes: Set[str], compute: Set[str]) -> bool:
    """Return whether most compute nodes have an HCA in this part too, or it serves hosts of another sort only."""
    if compute and len(nodes & compute) > _MAJORITY_SHARE * len(compute):
        return True
    return len(nodes) > 1 and all(cabling.hosts[node].role != COMPUTE for node in nodes if node in cabling.hosts)


def check_islands(cabling: Cabling, islands: tuple[Island, ...]) -> Iterator[Fault]:
    """Yield one finding for each part that is cut off, and for each switch or HCA without any cable."""
    for island in islands:
        if len(island.switches) + len(island.hcas) == 1:
            guid = (*island.switches, *island.hcas)[0]
            yield Fault(
                kind="no_cable",
                where=_name(cabling, guid),
                evidence="no port of it is cabled to another switch or host",
                cost="a spine less for all leaves" if island.switches else "its node has one HCA less",
                switches=island.switches,
                devices=island.hcas,
                nodes=island.nodes,
            )
            continue
        yield Fault(
            kind="isolated_part",
            where=_where(cabling, island),
            evidence=f"{_count(len(island.switches), 'switch', 'switches')} and "
            f"{_count(len(island.hcas), 'adapter', 'adapters')}"
            + (f" ({_join_names(island.nodes)})" if island.nodes else "")
            + ": no cable to the rest",
            cost="a job cannot span it and the rest",
            nodes=island.nodes,
            switches=island.switches,
            devices=island.hcas,
        )


def _where(cabling: Cabling, island: Island) -> str:
    names = [_name(cabling, guid) for guid in island.switches or island.hcas]
    return _join_names(names)


def _join_names(names: tuple[str, ...] | list[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(names[:_MAX_NAMED]) + more


def _count(number: int, singular: str, plural: str) -> str:
    return f"{number} {singular if number == 1 else plural}"


def _name(cabling: Cabling, guid: str) -> str:
    if guid in cabling.fabric.switches:
        return cabling.name(guid)
    return cabling.fabric.hcas[guid].description or guid


def check_hosts(cabling: Cabling) -> Iterator[Fault]:
    """Yield hosts off-tier, names that stand for several machines, HCAs without host name, odd second cables."""
    yield from _off_tier(cabling)
    yield from _find_shared_names(cabling)
    yield from _find_unnamed(cabling)
    yield from _two_cables(cabling)


def _off_tier(cabling: Cabling) -> Iterator[Fault]:
    for guid in sorted(cabling.off_tier):
        links = cabling.by_leaf[guid]
        around = cabling.neighbours[guid]
        below = [other for other in around if cabling.tier.get(other, 0) < cabling.tier.get(guid, 0)]
        cables = sum(around[other] for other in below)
        word = "leaves" if cabling.tier.get(guid) == 1 else "switches of a lower tier"
        yield Fault(
            kind="host_off_tier",
            where=f"{_hosts(cabling, links)} on {cabling.name(guid)}",
            evidence=f"HCA links: {len(links)}, on a switch with {cables} cables to {len(below)} {word}: "
            "a spine or director chip, not a leaf",
            cost="takes spine ports, and counts as a leaf in tools that go by HCAs alone, which shifts the tiers",
            nodes=tuple(sorted({node for link in links if (node := cabling.fabric.hcas[link.hca].node) is not None})),
            switches=(guid,),
            devices=tuple(link.hca for link in links),
            cables=tuple(cable_ends(link.cable) for link in links),
        )


def _find_shared_names(cabling: Cabling) -> Iterator[Fault]:
    for host in cabling.hosts.values():
        if host.generic:
            yield Fault(
                kind="generic_host_name",
                where=host.name,
                evidence=f"{len(host.ports)} HCAs carry the installer's name {host.name}: it may be several machines",
                cost="no job can be placed on it by name",
                nodes=(host.name,),
                devices=tuple(port.guid for port in host.ports),
            )
        elif host.twice:
            yield Fault(
                kind="duplicate_host_name",
                where=host.name,
                evidence=host.why_twice,
                cost="its rails cannot be told",
                nodes=(host.name,),
                devices=tuple(port.guid for port in host.ports),
            )


def _find_unnamed(cabling: Cabling) -> Iterator[Fault]:
    for guid, links in sorted(cabling.by_leaf.items()):
        unnamed = [link for link in links if cabling.fabric.hcas[link.hca].node is None]
        if unnamed:
            ports = ", ".join(str(port) for port in sorted(link.switch_port for link in unnamed))
            yield Fault(
                kind="unnamed_hca",
                where=f"{cabling.name(guid)} port {ports}",
                evidence=f"factory description on {len(unnamed)} of {len(links)} HCAs "
                f"({cabling.fabric.hcas[unnamed[0].hca].description or 'empty'!r}): their host is not known",
                cost="their nodes cannot be placed; set the node description (rdma-ndd)",
                switches=(guid,),
                devices=tuple(link.hca for link in unnamed),
                cables=tuple(cable_ends(link.cable) for link in unnamed),
            )


def _two_cables(cabling: Cabling) -> Iterator[Fault]:
    if len({link.hca for link in cabling.links}) == len(cabling.links):
        return
    cables: defaultdict[str, list[HcaLink]] = defaultdict(list)
    for link in cabling.links:
        cables[link.hca].append(link)
    odd = {hca: links for hca, links in cables.items() if len(links) > 1}
    if len(odd) >= _ODD_SHARE * len(cables) and len(cables) > _MAX_NAMED:
        return
    for hca, links in sorted(odd.items()):
        where = " and ".join(f"{cabling.name(link.switch)} port {link.switch_port}" for link in links)
        yield Fault(
            kind="two_cables_on_one_hca",
            where=cabling.fabric.hcas[hca].description or hca,
            evidence=f"one HCA has {len(links)} cables: {where}",
            cost="both share the HCA's PCIe slot",
            nodes=tuple(node for node in (cabling.fabric.hcas[hca].node,) if node is not None),
            switches=tuple(sorted({link.switch for link in links})),
            devices=(hca,),
            cables=tuple(cable_ends(link.cable) for link in links),
        )


def _hosts(cabling: Cabling, links: tuple[HcaLink, ...]) -> str:
    """Return the hosts on a switch, those of compute nodes with the HCA."""
    names = set()
    for link in links:
        hca = cabling.fabric.hcas[link.hca]
        compute = hca.node is not None and cabling.hosts[hca.node].role == COMPUTE
        names.add(hca.description if compute else hca.node or "an unnamed host")
    shown = sorted(names)
    more = f" and {len(shown) - _MAX_NAMED} more" if len(shown) > _MAX_NAMED else ""
    return ", ".join(shown[:_MAX_NAMED]) + more

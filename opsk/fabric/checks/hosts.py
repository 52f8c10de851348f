"""Reports hosts that no scheduler can use: unnamed HCAs, names that several machines share, hosts on spines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from opsk.fabric.cabling import Cabling
from opsk.fabric.checks.links import cable_ends
from opsk.fabric.fabric import Fault
from opsk.fabric.graph import HcaLink
from opsk.fabric.hosts.hosts import COMPUTE

_MAX_NAMED = 4
_ODD_SHARE = 0.1
"""HCAs with two cables are odd where fewer than this share of all HCAs has them."""


def check_hosts(cabling: Cabling) -> Iterator[Fault]:
    """Yield hosts off-tier, names that stand for several machines, HCAs without host name, odd second cables."""
    yield from _off_tier(cabling)
    yield from _shared_names(cabling)
    yield from _unnamed(cabling)
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


def _shared_names(cabling: Cabling) -> Iterator[Fault]:
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


def _unnamed(cabling: Cabling) -> Iterator[Fault]:
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

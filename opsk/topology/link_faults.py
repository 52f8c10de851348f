"""Which links are slower or narrower than their like, loop back, or leave a part of the fabric on its own?"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator

from opsk.topology.cabling import Cabling
from opsk.topology.fabric import Cable, Fault
from opsk.topology.graph import components, isl_cables
from opsk.topology.hosts import family_of
from opsk.topology.link_speed import link_bytes_per_s

_ONE_BY_ONE = 4
"""More slow links than this of one kind of host or switch become one finding."""


def link_faults(cabling: Cabling) -> Iterator[Fault]:
    """Yield slow and narrow links, loops, cables inside a tier, isolated parts."""
    isls = [cable for cable in isl_cables(cabling.fabric) if cable.a_guid != cable.b_guid]
    hca_cables = [link.cable for link in cabling.links]
    yield from _slow(cabling, hca_cables, "HCA links", lambda cable: _kind_of_host(cabling, cable))
    yield from _slow(cabling, isls, "inter-switch links", lambda _cable: "switches")
    yield from _loops(cabling)
    yield from _level(cabling, isls)
    yield from _isolated(cabling)


def _slow(cabling: Cabling, cables: Iterable[Cable], word: str, kind_of: Callable[[Cable], str]) -> Iterator[Fault]:
    """Yield links below the usual width or rate of their sort; many of one kind as one finding."""
    known = [cable for cable in cables if cable.bytes_per_s]
    if not known:
        return
    rates = Counter((cable.width, cable.speed) for cable in known)
    width, speed = max(rates, key=lambda rate: (rates[rate], link_bytes_per_s(*rate)))
    usual = link_bytes_per_s(width, speed)
    groups: defaultdict[tuple[str, int, str], list[Cable]] = defaultdict(list)
    for cable in known:
        if cable.bytes_per_s < usual:
            groups[kind_of(cable), cable.width, cable.speed].append(cable)
    for (kind, own_width, own_speed), slow in sorted(groups.items()):
        fault = "narrow_link" if own_width < width else "slow_link"
        share = f"{link_bytes_per_s(own_width, own_speed) / usual:.0%} of the usual bandwidth"
        evidence = f"at {own_width}x{own_speed}, {rates[width, speed]} of {len(known)} {word} run at {width}x{speed}"
        if len(slow) > _ONE_BY_ONE:
            where = f"{len(slow)} {word} of {kind}, first {_ends(cabling, slow[0])}"
            yield Fault(kind=fault, where=where, evidence=f"{len(slow)} links {evidence}", cost=share)
            continue
        for cable in slow:
            yield Fault(kind=fault, where=_ends(cabling, cable), evidence=f"runs {evidence}", cost=share)


def _loops(cabling: Cabling) -> Iterator[Fault]:
    for cable in cabling.fabric.cables:
        if cable.a_guid == cable.b_guid:
            yield Fault(
                kind="loop_cable",
                where=f"{_name(cabling, cable.a_guid)} ports {cable.a_port} and {cable.b_port}",
                evidence="two ports of one switch are cabled to each other",
                cost="two ports that carry nothing",
            )


def _level(cabling: Cabling, isls: list[Cable]) -> Iterator[Fault]:
    """Yield one finding when switches of one tier are cabled to each other: neither a tree nor a Clos."""
    level = [cable for cable in isls if cabling.tier.get(cable.a_guid, -1) == cabling.tier.get(cable.b_guid, -2)]
    if level:
        yield Fault(
            kind="cables_inside_a_tier",
            where=_ends(cabling, level[0]) + (f" and {len(level) - 1} more" if len(level) > 1 else ""),
            evidence=f"{len(level)} of {len(isls)} inter-switch cables join two switches of one tier",
            cost="no fat tree: routing may use these for some pairs only",
        )


def _isolated(cabling: Cabling) -> Iterator[Fault]:
    """Yield the parts that no cable joins to the largest, and HCAs and switches without any cable."""
    fabric = cabling.fabric
    for part in components(fabric)[1:]:
        switches = sorted(part & fabric.switches.keys())
        nodes = sorted({hca.node for guid in part if (hca := fabric.hcas.get(guid)) and hca.node})
        named = ", ".join(nodes[:_ONE_BY_ONE]) or _name(cabling, min(part))
        where = cabling.name(switches[0]) if switches else named
        cost = "a job cannot span it and the rest"
        if len(part) == 1:
            yield Fault(kind="no_cable", where=where, evidence="no port of it is cabled", cost=cost)
            continue
        evidence = f"{len(switches)} switches and {len(part) - len(switches)} adapters ({named}): no cable to the rest"
        yield Fault(kind="isolated_part", where=where, evidence=evidence, cost=cost)


def _kind_of_host(cabling: Cabling, cable: Cable) -> str:
    hca = cabling.fabric.hcas.get(cable.a_guid) or cabling.fabric.hcas[cable.b_guid]
    return f"hosts {family_of(hca.node)}" if hca.node else "unnamed hosts"


def _ends(cabling: Cabling, cable: Cable) -> str:
    ends = ((cable.a_guid, cable.a_port), (cable.b_guid, cable.b_port))
    return " to ".join(f"{_name(cabling, guid)} port {port}" for guid, port in ends)


def _name(cabling: Cabling, guid: str) -> str:
    if guid in cabling.fabric.switches:
        return cabling.name(guid)
    hca = cabling.fabric.hcas.get(guid) or cabling.fabric.routers[guid]
    return hca.description if hca.node else f"{hca.description} ({guid})"

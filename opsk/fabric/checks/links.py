"""Reports links that are slower or narrower than similar ones, loop back, or join switches of one tier."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from opsk.fabric.cabling import Cabling
from opsk.fabric.fabric import Cable, Fault
from opsk.fabric.hosts.ports import mask_numbers
from opsk.fabric.link_speed import link_bytes_per_s

_MAX_SINGLE_FINDINGS = 4
"""More slow links than this that are usual for a sort of host become one finding."""
_MIN_LINKS = 4
"""A sort of fewer links than this has no usual rate of its own."""
_ODD_SHARE = 0.1
"""Up to this share of the cables between switches, those inside a tier are reported pair by pair."""


def check_links(cabling: Cabling) -> Iterator[Fault]:
    """Yield slow and narrow links, loops, cables inside a tier."""
    isls = [cable for cable in cabling.isls if cable.a_guid != cable.b_guid]
    for links in (group_hca_links(cabling), group_isls(cabling, isls)):
        yield from sorted(_check_rates(cabling, links), key=lambda fault: (fault.kind, fault.cables))
    yield from _check_loops(cabling)
    yield from _check_same_tier(cabling, isls)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkGroup:
    """Links that should be similar: of HCAs of one kind of host, or between two tiers; ``word`` names them."""

    word: str
    cables: tuple[Cable, ...]
    usual: tuple[int, str]
    best: tuple[int, str]

    @property
    def usual_bytes_per_s(self) -> float:
        """Data rate of the usual width and speed of this sort [bytes/s]."""
        return link_bytes_per_s(*self.usual)

    @property
    def best_bytes_per_s(self) -> float:
        """Data rate of what is usual on the whole fabric, or of this sort where that is more [bytes/s]."""
        return link_bytes_per_s(*self.best)


def group_hca_links(cabling: Cabling) -> list[LinkGroup]:
    """Return the HCA links by family of host; the best of each is what most HCA links run at, or more."""
    sorts: defaultdict[str, list[Cable]] = defaultdict(list)
    families: dict[str, str] = {}
    hcas = cabling.fabric.hcas
    for link in cabling.links:
        if link.cable.bytes_per_s:
            node = hcas[link.hca].node
            if node not in families:
                families[node or ""] = (
                    f"HCA links of hosts {mask_numbers(node)}" if node else "HCA links of unnamed hosts"
                )
            sorts[families[node or ""]].append(link.cable)
    overall = _find_usual_rate(cable for cables in sorts.values() for cable in cables)
    return _build_groups(sorts, overall)


def group_isls(cabling: Cabling, isls: Iterable[Cable]) -> list[LinkGroup]:
    """Return the links between switches by the tiers that they join."""
    tier = cabling.tier
    by_tiers: defaultdict[tuple[int, int], list[Cable]] = defaultdict(list)
    for cable in isls:
        if cable.bytes_per_s:
            low, high = tier.get(cable.a_guid, -1), tier.get(cable.b_guid, -1)
            by_tiers[(low, high) if low <= high else (high, low)].append(cable)
    sorts = {f"links between tiers {low} and {high}": cables for (low, high), cables in by_tiers.items()}
    return _build_groups(sorts, None)


def _build_groups(sorts: Mapping[str, list[Cable]], overall: tuple[int, str] | None) -> list[LinkGroup]:
    groups = []
    for word, cables in sorted(sorts.items()):
        usual = _find_usual_rate(cables)
        if usual is None:
            continue
        if overall is not None and len(cables) < _MIN_LINKS:
            usual = max(usual, overall, key=lambda rate: link_bytes_per_s(*rate))
        best = max(usual, overall or usual, key=lambda rate: link_bytes_per_s(*rate))
        groups.append(LinkGroup(word=word, cables=tuple(cables), usual=usual, best=best))
    return groups


def _find_usual_rate(cables: Iterable[Cable]) -> tuple[int, str] | None:
    rates = Counter((cable.width, cable.speed) for cable in cables)
    return max(rates, key=lambda rate: (rates[rate], link_bytes_per_s(*rate)), default=None)


def _check_rates(cabling: Cabling, sorts: Iterable[LinkGroup]) -> Iterator[Fault]:
    """Yield each link below what is usual for its sort, and one finding for a sort that is below all others."""
    for sort in sorts:
        usual, best = sort.usual_bytes_per_s, sort.best_bytes_per_s
        as_usual = [cable for cable in sort.cables if (cable.width, cable.speed) == sort.usual]
        if usual < best and len(as_usual) > _MAX_SINGLE_FINDINGS:
            yield _slow_group_fault(cabling, sort, as_usual)
        expected = usual if usual < best and len(as_usual) > _MAX_SINGLE_FINDINGS else best
        slow = [cable for cable in sort.cables if cable.bytes_per_s < expected]
        reference = sort.usual if expected == usual else sort.best
        for word, cables in _group_by_cause(cabling, slow):
            yield _slow_links_fault(cabling, sort, word, cables, reference, len(as_usual))


def _group_by_cause(cabling: Cabling, slow: Iterable[Cable]) -> list[tuple[str, list[Cable]]]:
    """Return slow links one by one; those of a host or switch together where every one of its links is slow.

    The text with them names the host or switch; it is empty for a single link.
    """
    owners: defaultdict[tuple[str, tuple[int, str]], list[Cable]] = defaultdict(list)
    left = dict.fromkeys(slow)
    for cable in left:
        for owner in _find_owners(cabling, cable):
            owners[owner, (cable.width, cable.speed)].append(cable)
    groups: list[tuple[str, list[Cable]]] = []
    for (owner, _), cables in owners.items():
        total, word = _describe_owner(cabling, owner, cables)
        if 1 < total == len(cables) and all(cable in left for cable in cables):
            groups.append((word, cables))
            for cable in cables:
                del left[cable]
    return groups + [("", [cable]) for cable in left]


def _find_owners(cabling: Cabling, cable: Cable) -> list[str]:
    """Return whose links may all be slow for one cause: the host and the leaf, or the lower switch of an uplink."""
    fabric = cabling.fabric
    if cable.a_guid in fabric.switches and cable.b_guid in fabric.switches:
        return [min(cable.a_guid, cable.b_guid, key=lambda guid: cabling.tier.get(guid, -1))]
    hca = fabric.hcas.get(cable.a_guid) or fabric.hcas[cable.b_guid]
    leaf = cable.a_guid if cable.a_guid in fabric.switches else cable.b_guid
    return [leaf] if hca.node is None else [hca.node, leaf]


def _describe_owner(cabling: Cabling, owner: str, cables: list[Cable]) -> tuple[int, str]:
    """Return how many links of this sort a host or switch has, and how a finding names it."""
    if owner in cabling.hosts:
        devices = ", ".join(port.device for port in cabling.hosts[owner].ports)
        return len(cabling.hosts[owner].ports), f"{owner}: {devices}"
    if cables[0].a_guid in cabling.fabric.switches and cables[0].b_guid in cabling.fabric.switches:
        return cabling.uplinks(owner).total(), f"{cabling.name(owner)}: all uplinks"
    return len(cabling.by_leaf.get(owner, ())), f"{cabling.name(owner)}: all HCA links"


def _slow_links_fault(
    cabling: Cabling, sort: LinkGroup, word: str, cables: list[Cable], reference: tuple[int, str], usual_count: int
) -> Fault:
    width, speed = cables[0].width, cables[0].speed
    nodes = _nodes(cabling, cables)
    evidence = (
        f"at {width}x{speed}, {usual_count} of {len(sort.cables)} {sort.word} run at {reference[0]}x{reference[1]}"
    )
    if sort.usual != reference or 2 * usual_count < len(sort.cables):
        evidence = f"at {width}x{speed}, most {'HCA ' if nodes else ''}links run at {reference[0]}x{reference[1]}"
    return Fault(
        kind=_kind(width, reference),
        where=word or _ends(cabling, cables[0]),
        evidence=f"runs {evidence}" if len(cables) == 1 else f"all {len(cables)} run {evidence}",
        cost=f"{cables[0].bytes_per_s / link_bytes_per_s(*reference):.0%} of the usual bandwidth",
        nodes=nodes,
        switches=_switches(cabling, cables),
        devices=_devices(cabling, cables),
        cables=tuple(map(cable_ends, cables)),
    )


def _slow_group_fault(cabling: Cabling, sort: LinkGroup, cables: list[Cable]) -> Fault:
    """Return one finding for a sort of host whose links are all slower than those of the others."""
    width, speed = sort.usual
    return Fault(
        kind=_kind(width, sort.best),
        where=f"{len(cables)} {sort.word}, first {_ends(cabling, cables[0])}",
        evidence=f"{len(cables)} links at {width}x{speed}, most HCA links run at {sort.best[0]}x{sort.best[1]}",
        cost=f"{sort.usual_bytes_per_s / sort.best_bytes_per_s:.0%} of the usual bandwidth",
        nodes=_nodes(cabling, cables),
        switches=_switches(cabling, cables),
        devices=_devices(cabling, cables),
        cables=tuple(map(cable_ends, cables)),
    )


def _kind(width: int, reference: tuple[int, str]) -> str:
    return "narrow_link" if width < reference[0] else "slow_link"


def _nodes(cabling: Cabling, cables: Iterable[Cable]) -> tuple[str, ...]:
    hcas = cabling.fabric.hcas
    return tuple(sorted({node for guid in _devices(cabling, cables) if (node := hcas[guid].node) is not None}))


def _devices(cabling: Cabling, cables: Iterable[Cable]) -> tuple[str, ...]:
    return tuple(guid for cable in cables for guid in (cable.a_guid, cable.b_guid) if guid in cabling.fabric.hcas)


def _switches(cabling: Cabling, cables: Iterable[Cable]) -> tuple[str, ...]:
    guids = {guid for cable in cables for guid in (cable.a_guid, cable.b_guid) if guid in cabling.fabric.switches}
    return tuple(sorted(guids))


def _check_loops(cabling: Cabling) -> Iterator[Fault]:
    for cable in cabling.fabric.cables:
        if cable.a_guid == cable.b_guid:
            yield Fault(
                kind="loop_cable",
                where=f"{_name(cabling, cable.a_guid)} ports {cable.a_port} and {cable.b_port}",
                evidence="two ports of one switch are cabled to each other",
                cost="two ports that carry nothing",
                switches=(cable.a_guid,),
                cables=(cable_ends(cable),),
            )


def _check_same_tier(cabling: Cabling, isls: list[Cable]) -> Iterator[Fault]:
    """Yield the cables between switches of one tier, by pair; one finding where they are many: no tree, nor a Clos."""
    level = [cable for cable in isls if cabling.tier.get(cable.a_guid, -1) == cabling.tier.get(cable.b_guid, -2)]
    pairs: defaultdict[tuple[str, str], list[Cable]] = defaultdict(list)
    for cable in level:
        pairs[cable.a_guid, cable.b_guid].append(cable)
    groups = list(pairs.values()) if len(level) <= _ODD_SHARE * len(isls) else [level]
    for cables in groups:
        if not cables:
            continue
        joined = {(cable.a_guid, cable.b_guid) for cable in cables}
        more = f" and {len(cables) - 1} more" if len(cables) > 1 else ""
        yield Fault(
            kind="cables_inside_a_tier",
            where=_ends(cabling, cables[0]) + more + (f" of {len(joined)} pairs" if len(joined) > 1 else ""),
            evidence=f"{len(cables)} of {len(isls)} inter-switch cables join two switches of one tier",
            cost="no fat tree: routing may use these for some pairs only",
            switches=tuple(sorted({guid for pair in joined for guid in pair})),
            cables=tuple(map(cable_ends, cables)),
        )


def cable_ends(cable: Cable) -> tuple[str, int, str, int]:
    """Return the two ends of a cable, as a fault names it."""
    return cable.a_guid, cable.a_port, cable.b_guid, cable.b_port


def _ends(cabling: Cabling, cable: Cable) -> str:
    ends = ((cable.a_guid, cable.a_port), (cable.b_guid, cable.b_port))
    return " to ".join(f"{_name(cabling, guid)} port {port}" for guid, port in ends)


def _name(cabling: Cabling, guid: str) -> str:
    if guid in cabling.fabric.switches:
        return cabling.name(guid)
    hca = cabling.fabric.hcas.get(guid) or cabling.fabric.routers[guid]
    return hca.description if hca.node else f"{hca.description} ({guid})"

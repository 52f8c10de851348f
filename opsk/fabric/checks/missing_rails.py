"""Which nodes lack a rail that their like have, which units have no leaf for one, and which nodes have fewer HCAs?"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from opsk.fabric.cabling import Cabling
from opsk.fabric.fabric import Fault
from opsk.fabric.hosts.hosts import Host
from opsk.fabric.numbering import Numbering

_MOST = 0.5
_NEARLY = 0.75
"""A family of hosts with at least this share of the rails that most nodes have should have them all."""
_FEW_NAMED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A node of a unit and the rails that it lacks, out of ``usual`` that its like have."""

    host: Host
    unit: int
    rails: tuple[int, ...]
    usual: int


def gap_faults(cabling: Cabling, numbering: Numbering) -> Iterator[Fault]:
    """Yield units without a leaf for a rail, nodes without a rail, nodes with fewer HCAs than their like."""
    gaps = find_gaps(cabling, numbering)
    by_unit: defaultdict[int, list[Gap]] = defaultdict(list)
    for gap in gaps:
        by_unit[gap.unit].append(gap)
    for index in sorted(by_unit):
        carried = carried_rails(cabling, numbering, index)
        yield from _missing_leaves(cabling, index, by_unit[index], carried)
        for gap in by_unit[index]:
            rails = _without_explained(cabling, gap)
            if rails:
                yield _lacks(cabling, numbering, gap, rails, carried)
    yield from _fewer_ports(cabling, {gap.host.name for gap in gaps})


def find_gaps(cabling: Cabling, numbering: Numbering) -> list[Gap]:
    """Return the nodes that lack a rail which their like have, in units whose device names follow the rails."""
    usual = _usual_rails(cabling, numbering)
    gaps = []
    for host in cabling.compute:
        unit = cabling.unit_of.get(host.name)
        if unit is None or not numbering.follows_names[unit]:
            continue
        wanted = usual[host.family]
        without = wanted.difference(numbering.rails_of[host.name])
        if without:
            gaps.append(Gap(host=host, unit=unit, rails=tuple(sorted(without)), usual=len(wanted)))
    order = {name: index for unit in cabling.units for index, name in enumerate(unit.nodes)}
    return sorted(gaps, key=lambda gap: (gap.unit, order[gap.host.name]))


def carried_rails(cabling: Cabling, numbering: Numbering, unit: int) -> dict[int, list[str]]:
    """Return the leaves of a unit by the rails that they carry."""
    carried: defaultdict[int, list[str]] = defaultdict(list)
    for leaf in cabling.units[unit].leaves:
        for rail in numbering.carries[leaf]:
            carried[rail].append(leaf)
    return carried


def unit_name(cabling: Cabling, index: int) -> str:
    """Return what people call a unit: its first and last node."""
    nodes = cabling.units[index].nodes
    return f"unit {index} ({nodes[0]} to {nodes[-1]})" if nodes else f"unit {index}"


def _missing_leaves(
    cabling: Cabling, index: int, gaps: Sequence[Gap], carried: Mapping[int, Sequence[str]]
) -> Iterator[Fault]:
    nodes = cabling.units[index].nodes
    lacking: defaultdict[int, list[str]] = defaultdict(list)
    for gap in gaps:
        for rail in gap.rails:
            lacking[rail].append(gap.host.name)
    for rail, names in sorted(lacking.items()):
        if rail not in carried and len(names) > _MOST * len(nodes) and len(nodes) > 1:
            yield Fault(
                kind="missing_leaf",
                where=f"{unit_name(cabling, index)}: rail {rail}",
                evidence=f"no leaf of this unit carries rail {rail}; {len(names)} of {len(nodes)} nodes lack that HCA",
                cost="one rail less for every job here",
                nodes=tuple(names),
                switches=cabling.units[index].leaves,
            )


def _without_explained(cabling: Cabling, gap: Gap) -> tuple[int, ...]:
    """Return the rails that a node lacks for a cause not yet told: none where its HCAs are cabled elsewhere."""
    crossed = cabling.crossed.get(gap.host.name)
    return gap.rails[len(crossed.missed) :] if crossed else gap.rails


def _lacks(
    cabling: Cabling, numbering: Numbering, gap: Gap, rails: Sequence[int], carried: Mapping[int, Sequence[str]]
) -> Fault:
    host = gap.host
    absent = [rail for rail in rails if rail not in carried]
    why = f"; its unit has no leaf for rail {', '.join(map(str, absent))}" if absent else ""
    right = [leaf for rail in rails for leaf in carried.get(rail, ())]
    unnamed = sum(1 for leaf in right for link in cabling.by_leaf[leaf] if cabling.fabric.hcas[link.hca].node is None)
    if unnamed:
        why += f"; {unnamed} HCAs without a host name are on that leaf: it may be one of them"
    has = ", ".join(port.device for port in host.ports)
    return Fault(
        kind="missing_rail",
        where=host.name,
        evidence=f"has {has} on the compute fabric, none on rail {', '.join(map(str, rails))}{why}",
        cost=f"{(gap.usual - len(rails)) / gap.usual:.0%} of the inter-node bandwidth of its kind",
        nodes=(host.name,),
        switches=tuple(right),
    )


def _usual_rails(cabling: Cabling, numbering: Numbering) -> dict[str, frozenset[int]]:
    """Return for each family of hosts the rails that at least half of them have; small gaps are those of all nodes."""
    members = Counter(host.family for host in cabling.compute)
    has: Counter[tuple[str, int]] = Counter()
    all_have: Counter[int] = Counter()
    for host in cabling.compute:
        own = set(numbering.rails_of[host.name])
        all_have.update(own)
        for rail in own:
            has[host.family, rail] += 1
    overall = frozenset(rail for rail, count in all_have.items() if count >= _MOST * len(cabling.compute))
    usual: dict[str, frozenset[int]] = {}
    for family, count in members.items():
        own = {rail for rail in all_have if has[family, rail] >= _MOST * count}
        nearly = len(own & overall) >= _NEARLY * len(overall)
        alone = count < _FEW_NAMED and 2 * len(own) >= len(overall)
        usual[family] = frozenset(own | overall) if nearly or alone else frozenset(own)
    return usual


def _fewer_ports(cabling: Cabling, told: set[str]) -> Iterator[Fault]:
    """Yield the nodes with fewer HCAs than most of their family, though none of their rails is without one."""
    counts: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for host in cabling.compute:
        counts[host.family][len(host.ports)] += 1
    for host in cabling.compute:
        votes = counts[host.family]
        usual = max(votes, key=lambda count: (votes[count], count))
        odd = len(host.ports) < usual and votes[usual] > _MOST * votes.total()
        if odd and host.name not in told and host.name not in cabling.crossed:
            yield Fault(
                kind="fewer_hcas",
                where=host.name,
                evidence=f"{len(host.ports)} HCAs on the compute fabric, {votes[usual]} of {votes.total()} nodes of "
                f"its kind have {usual}",
                cost=f"{len(host.ports) / usual:.0%} of the inter-node bandwidth of its kind",
                nodes=(host.name,),
            )

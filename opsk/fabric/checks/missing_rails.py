"""Reports nodes that lack a rail of similar nodes, units without a leaf for a rail, and nodes with fewer HCAs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from opsk.fabric.cabling import Cabling
from opsk.fabric.fabric import Fault
from opsk.fabric.hosts.hosts import Host
from opsk.fabric.numbering import Numbering

_MAJORITY_SHARE = 0.5
_NEARLY = 0.75
"""A family of hosts with at least this share of the rails that most nodes have should have them all."""
_MIN_FAMILY = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A node of a unit and the rails that it lacks, out of ``usual`` that similar nodes have."""

    host: Host
    unit: int
    rails: tuple[int, ...]
    usual: int


def check_missing_rails(cabling: Cabling, numbering: Numbering) -> Iterator[Fault]:
    """Yield units without a leaf for a rail, nodes without a rail, nodes with fewer HCAs than similar nodes."""
    gaps = find_gaps(cabling, numbering)
    by_unit: defaultdict[int, list[Gap]] = defaultdict(list)
    for gap in gaps:
        by_unit[gap.unit].append(gap)
    for index in sorted(by_unit):
        carried = group_leaves_by_rail(cabling, numbering, index)
        yield from _check_missing_leaves(cabling, index, by_unit[index], carried)
        for gap in by_unit[index]:
            rails = _drop_explained(cabling, gap)
            if rails:
                yield _missing_rail_fault(cabling, numbering, gap, rails, carried)
    yield from _check_hca_counts(cabling, {gap.host.name for gap in gaps})


def find_gaps(cabling: Cabling, numbering: Numbering) -> list[Gap]:
    """Return the nodes that lack a rail which similar nodes have, in units whose device names follow the rails."""
    usual = _find_usual_rails(cabling, numbering)
    gaps = []
    for host in cabling.compute:
        unit = cabling.unit_of.get(host.name)
        if unit is None or not numbering.follows_names[unit]:
            continue
        expected = usual[host.family]
        without = expected.difference(numbering.rails_of[host.name])
        if without:
            gaps.append(Gap(host=host, unit=unit, rails=tuple(sorted(without)), usual=len(expected)))
    order = {name: index for unit in cabling.units for index, name in enumerate(unit.nodes)}
    return sorted(gaps, key=lambda gap: (gap.unit, order[gap.host.name]))


def group_leaves_by_rail(cabling: Cabling, numbering: Numbering, unit: int) -> dict[int, list[str]]:
    """Return the leaves of a unit by the rails that they carry."""
    carried: defaultdict[int, list[str]] = defaultdict(list)
    for leaf in cabling.units[unit].leaves:
        for rail in numbering.carries[leaf]:
            carried[rail].append(leaf)
    return carried


def format_unit(cabling: Cabling, index: int) -> str:
    """Return what people call a unit: its first and last node."""
    nodes = cabling.units[index].nodes
    return f"unit {index} ({nodes[0]} to {nodes[-1]})" if nodes else f"unit {index}"


def _check_missing_leaves(
    cabling: Cabling, index: int, gaps: Sequence[Gap], carried: Mapping[int, Sequence[str]]
) -> Iterator[Fault]:
    nodes = cabling.units[index].nodes
    lacking: defaultdict[int, list[str]] = defaultdict(list)
    for gap in gaps:
        for rail in gap.rails:
            lacking[rail].append(gap.host.name)
    for rail, names in sorted(lacking.items()):
        if rail not in carried and len(names) > _MAJORITY_SHARE * len(nodes) and len(nodes) > 1:
            yield Fault(
                kind="missing_leaf",
                where=f"{format_unit(cabling, index)}: rail {rail}",
                evidence=f"no leaf of this unit carries rail {rail}; {len(names)} of {len(nodes)} nodes lack that HCA",
                cost="one rail less for every job here",
                nodes=tuple(names),
                switches=cabling.units[index].leaves,
            )


def _drop_explained(cabling: Cabling, gap: Gap) -> tuple[int, ...]:
    """Return the rails that a node lacks for a cause not yet reported: none where its HCAs are cabled elsewhere."""
    crossed = cabling.crossed.get(gap.host.name)
    return gap.rails[len(crossed.missed) :] if crossed else gap.rails


def _missing_rail_fault(
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


def _find_usual_rails(cabling: Cabling, numbering: Numbering) -> dict[str, frozenset[int]]:
    """Return for each family of hosts the rails that at least half of them have; small gaps are those of all nodes."""
    members = Counter(host.family for host in cabling.compute)
    has: Counter[tuple[str, int]] = Counter()
    all_have: Counter[int] = Counter()
    for host in cabling.compute:
        rails = set(numbering.rails_of[host.name])
        all_have.update(rails)
        for rail in rails:
            has[host.family, rail] += 1
    overall = frozenset(rail for rail, count in all_have.items() if count >= _MAJORITY_SHARE * len(cabling.compute))
    usual: dict[str, frozenset[int]] = {}
    for family, count in members.items():
        rails = {rail for rail in all_have if has[family, rail] >= _MAJORITY_SHARE * count}
        nearly = len(rails & overall) >= _NEARLY * len(overall)
        alone = count < _MIN_FAMILY and 2 * len(rails) >= len(overall)
        usual[family] = frozenset(rails | overall) if nearly or alone else frozenset(rails)
    return usual


def _check_hca_counts(cabling: Cabling, reported: set[str]) -> Iterator[Fault]:
    """Yield the nodes with fewer HCAs than most of their family, though none of their rails is without one."""
    counts: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for host in cabling.compute:
        counts[host.family][len(host.ports)] += 1
    for host in cabling.compute:
        votes = counts[host.family]
        usual = max(votes, key=lambda count: (votes[count], count))
        odd = len(host.ports) < usual and votes[usual] > _MAJORITY_SHARE * votes.total()
        if odd and host.name not in reported and host.name not in cabling.crossed:
            yield Fault(
                kind="fewer_hcas",
                where=host.name,
                evidence=f"{len(host.ports)} HCAs on the compute fabric, {votes[usual]} of {votes.total()} nodes of "
                f"its kind have {usual}",
                cost=f"{len(host.ports) / usual:.0%} of the inter-node bandwidth of its kind",
                nodes=(host.name,),
            )

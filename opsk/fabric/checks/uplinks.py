"""Reports switches with fewer uplinks than similar ones, or uplinks to other switches, and spines that lost cables.

A plane is a set of switches of one tier that are cabled to the same switches above: a pod's leaves and its spines, or
the spines of equal number and their cores.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from opsk.fabric.cabling import Cabling
from opsk.fabric.fabric import Fault
from opsk.fabric.leaves.leaf import Leaf
from opsk.units import as_gbit_per_s

_REGULAR = 0.6
"""Share of the pairs of a plane that must have the usual number of cables before a deviation means anything."""
_OVERLAP = 0.5
_DEAD = 0.5
"""A switch above that has lost more than this share of its cables to a plane is itself the cause."""
_MIN_SWITCHES = 3
_USUAL_SHARE = 0.5
_THIN = 0.25
_MAX_NAMED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Plane:
    """``lower`` switches and the ``upper`` ones that are theirs; ``usual`` cables between each two, 0 if irregular.

    ``failed`` are upper switches that have lost most of their cables to this plane.
    """

    lower: tuple[str, ...]
    upper: tuple[str, ...]
    usual: int
    failed: tuple[str, ...]

    @property
    def full(self) -> int:
        """Return how many cables upwards each lower switch has where nothing is missing."""
        return self.usual * len(self.upper)

    @property
    def sound(self) -> int:
        """Return the same without the upper switches that have failed."""
        return self.usual * (len(self.upper) - len(self.failed))

    def lacking(self, cables: Mapping[str, int], *, with_failed: bool = False) -> Counter[str]:
        """Return to which upper switches one with these ``cables`` has fewer than usual, and how many fewer."""
        skip = () if with_failed else self.failed
        return Counter(
            {
                guid: self.usual - cables.get(guid, 0)
                for guid in self.upper
                if cables.get(guid, 0) < self.usual and guid not in skip
            }
        )

    def extra(self, cables: Mapping[str, int]) -> Counter[str]:
        """Return to which switches one with these ``cables`` has more than usual, and how many more."""
        upper = set(self.upper)
        return Counter(
            {
                guid: count - (self.usual if guid in upper else 0)
                for guid, count in cables.items()
                if count > (self.usual if guid in upper else 0)
            }
        )


def find_planes(cabling: Cabling, lower: Collection[str]) -> tuple[Plane, ...]:
    """Return the planes of ``lower`` switches of one tier; those without any cable upwards are in none."""
    up = {guid: cabling.uplinks(guid) for guid in sorted(lower)}
    groups = _group_by_upper({guid: cables for guid, cables in up.items() if cables})
    home = _assign_upper(groups, up)
    planes = []
    for index, members in enumerate(groups):
        upper = tuple(sorted(guid for guid, group in home.items() if group == index))
        planes.append(_build_plane(members, upper, up))
    return tuple(planes)


def _group_by_upper(up: Mapping[str, Mapping[str, int]]) -> list[list[str]]:
    """Return the switches that share at least half of what is above them, group by group."""
    by_spines: defaultdict[frozenset[str], list[str]] = defaultdict(list)
    for guid, cables in up.items():
        by_spines[frozenset(cables)].append(guid)
    root = {group: group for group in by_spines}

    def find(group: frozenset[str]) -> frozenset[str]:
        while root[group] is not group:
            root[group] = root[root[group]]
            group = root[group]
        return group

    by_upper: defaultdict[str, list[frozenset[str]]] = defaultdict(list)
    for group in by_spines:
        for guid in group:
            by_upper[guid].append(group)
    for group in by_spines:
        shared: Counter[frozenset[str]] = Counter()
        for guid in group:
            shared.update(by_upper[guid])
        for other, count in shared.items():
            if other is not group and count >= _OVERLAP * max(len(group), len(other)):
                first, second = find(group), find(other)
                if first is not second:
                    root[first] = second
    merged: defaultdict[frozenset[str], list[str]] = defaultdict(list)
    for group, members in by_spines.items():
        merged[find(group)] += members
    return sorted(sorted(members) for members in merged.values())


def _assign_upper(groups: list[list[str]], up: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Return for each upper switch the group that it has most cables to: a stray cable makes no member."""
    cables: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for index, members in enumerate(groups):
        for guid in members:
            for upper, count in up[guid].items():
                cables[upper][index] += count
    return {upper: min(votes, key=lambda index: (-votes[index], index)) for upper, votes in cables.items()}


def _build_plane(members: list[str], upper: tuple[str, ...], up: Mapping[str, Mapping[str, int]]) -> Plane:
    pairs: Counter[int] = Counter()
    total: Counter[str] = Counter()
    for guid in members:
        cables = up[guid]
        counts = [cables.get(other, 0) for other in upper]
        pairs.update(counts)
        for other, count in zip(upper, counts, strict=True):
            total[other] += count
    pairs.pop(0, None)
    usual = max(pairs, key=lambda count: (pairs[count], count), default=0)
    failed = tuple(guid for guid in upper if total[guid] < (1 - _DEAD) * usual * len(members))
    expected_pairs = len(members) * (len(upper) - len(failed))
    regular = expected_pairs > 0 and pairs[usual] >= _REGULAR * expected_pairs and len(members) >= _MIN_SWITCHES
    return Plane(lower=tuple(members), upper=upper, usual=usual if regular else 0, failed=failed if regular else ())


def check_uplinks(
    cabling: Cabling, leaves: Mapping[str, Leaf], cut_off: Collection[str], bare: int = 0
) -> Iterator[Fault]:
    """Yield switches short of uplinks, uneven ones, and spines that have lost their cables.

    Parameters
    ----------
    cut_off
        Switches of parts without a cable to the rest: that finding covers theirs.
    bare
        Switches without any cable: as many planes that lack a spine are explained by them.
    """
    for fault in _check_all(cabling, leaves, cut_off):
        if fault.kind == "missing_spine" and bare:
            bare -= 1
            continue
        yield fault


def _check_all(cabling: Cabling, leaves: Mapping[str, Leaf], cut_off: Collection[str]) -> Iterator[Fault]:
    regular = [leaf for leaf in leaves.values() if not leaf.off_tier and leaf.guid not in cut_off]
    for role in sorted({leaf.role for leaf in regular}):
        similar = [leaf.guid for leaf in regular if leaf.role == role]
        if len(similar) >= _MIN_SWITCHES:
            yield from _check_cables(cabling, leaves, similar, "leaf")
            yield from _thin_leaf_faults(cabling, [leaf for leaf in regular if leaf.role == role])
    for tier in sorted(set(cabling.tier.values()))[1:]:
        similar = [guid for guid, level in cabling.tier.items() if level == tier and guid not in cut_off]
        if len(similar) >= _MIN_SWITCHES and any(cabling.up_bytes_per_s.get(guid) for guid in similar):
            yield from _check_cables(cabling, leaves, similar, "spine")


def _check_cables(cabling: Cabling, leaves: Mapping[str, Leaf], similar: Sequence[str], word: str) -> Iterator[Fault]:
    """Yield what is missing between switches of one tier and role and those above."""
    planes = find_planes(cabling, similar)
    in_plane = {guid for plane in planes for guid in plane.lower}
    totals = Counter({guid: cabling.uplinks(guid).total() for guid in similar})
    full = _find_usual_total([plane.full or totals[guid] for plane in planes for guid in plane.lower])
    for plane in planes:
        if plane.usual:
            if word == "leaf":
                yield from _find_failed_spines(cabling, plane)
            yield from _regular_plane_faults(cabling, leaves, plane, word)
        elif word == "leaf":
            yield from _irregular_leaf_faults(cabling, leaves, plane.lower, totals, full)
    whole = [plane for plane in planes if plane.usual]
    if len(whole) > 1 and len(whole) == len(planes):
        yield from _missing_spine_faults(cabling, whole, word)
    if word == "leaf":
        without = [guid for guid in similar if guid not in in_plane]
        yield from _irregular_leaf_faults(cabling, leaves, without, totals, full)


def _find_usual_total(totals: Sequence[int]) -> int:
    """Return the number of uplinks that most have; the most that any has where there is no such majority."""
    counts = Counter(totals)
    usual = max(counts, key=lambda count: (counts[count], count), default=0)
    return usual if counts[usual] >= _USUAL_SHARE * len(totals) else max(counts, default=0)


def _find_failed_spines(cabling: Cabling, plane: Plane) -> Iterator[Fault]:
    """Yield the upper switches that have lost most of their cables to a plane: one cause for all its switches."""
    for guid in plane.failed:
        has = sum(cabling.neighbours[guid][lower] for lower in plane.lower)
        usual = plane.usual * len(plane.lower)
        without = [lower for lower in plane.lower if cabling.neighbours[guid][lower] < plane.usual]
        yield Fault(
            kind="spine_short_of_cables",
            where=cabling.name(guid),
            evidence=f"{has} of {usual} cables to the {len(plane.lower)} switches below it; "
            f"{_join_names([cabling.name(lower) for lower in without])} lack theirs",
            cost=f"{(usual - has) / (plane.full * len(plane.lower)):.0%} less bandwidth out of these",
            switches=(guid, *without),
        )


def _regular_plane_faults(cabling: Cabling, leaves: Mapping[str, Leaf], plane: Plane, word: str) -> Iterator[Fault]:
    """Yield the switches of a plane that have fewer cables than usual to some switch above."""
    whole = sum(1 for guid in plane.lower if not plane.lacking(cabling.uplinks(guid)))
    for guid in plane.lower:
        cables = cabling.uplinks(guid)
        lacking, extra = plane.lacking(cables), plane.extra(cables)
        if not lacking:
            continue
        shortages = [
            f"{cables[other]} of {plane.usual} to {cabling.name(other)}" for other in _sort_by_name(cabling, lacking)
        ]
        if extra.total() >= lacking.total():
            too_many = [f"{cables[other]} to {cabling.name(other)}" for other in _sort_by_name(cabling, extra)]
            yield Fault(
                kind="uneven_uplinks",
                where=cabling.name(guid),
                evidence=f"{_join_names(shortages)}, but {_join_names(too_many)}: {whole} of {len(plane.lower)} of its "
                f"like have {plane.usual} to each",
                cost="routes that spread evenly over the spines crowd the fewer cables",
                switches=(guid, *sorted(lacking), *sorted(extra)),
            )
            continue
        usual = plane.sound
        like = f"{whole} of {len(plane.lower)} {'leaves' if word == 'leaf' else 'spines'} like it have {usual}"
        evidence = f"{cables.total()} uplinks, {like}; {_join_names(shortages)}"
        yield _shortage_fault(cabling, leaves, guid, usual, evidence, tuple(sorted(lacking)))


def _irregular_leaf_faults(
    cabling: Cabling, leaves: Mapping[str, Leaf], guids: Sequence[str], totals: Counter[str], usual: int
) -> Iterator[Fault]:
    """Yield the leaves with fewer cables upwards than most, where each is cabled to others than the next."""
    whole = sum(1 for count in totals.values() if count == usual)
    for guid in guids:
        if totals[guid] < usual:
            evidence = f"{totals[guid]} uplinks, {whole} of {len(totals)} leaves of its role have {usual}"
            yield _shortage_fault(cabling, leaves, guid, usual, evidence, ())


def _shortage_fault(
    cabling: Cabling, leaves: Mapping[str, Leaf], guid: str, usual: int, evidence: str, above: tuple[str, ...]
) -> Fault:
    has = cabling.uplinks(guid).total()
    if guid not in leaves:
        return Fault(
            kind="spine_short_of_uplinks",
            where=cabling.name(guid),
            evidence=evidence,
            cost=f"{1 - has / usual:.0%} less bandwidth out of its pod through it",
            switches=(guid, *above),
        )
    leaf = leaves[guid]
    ratio = f"{leaf.down_bytes_per_s / leaf.up_bytes_per_s:.2f}:1" if leaf.up_bytes_per_s else "no way up"
    return Fault(
        kind="leaf_short_of_uplinks",
        where=cabling.name(guid),
        evidence=evidence,
        cost=f"{1 - has / usual:.0%} less bandwidth out of the leaf ({as_gbit_per_s(leaf.down_bytes_per_s):.0f} Gbit/s "
        f"of HCAs over {as_gbit_per_s(leaf.up_bytes_per_s):.0f} Gbit/s up, {ratio})",
        nodes=leaf.nodes,
        switches=(guid, *above),
    )


def _missing_spine_faults(cabling: Cabling, planes: Sequence[Plane], word: str) -> Iterator[Fault]:
    """Yield the planes whose switches all have fewer cables upwards than those of the others: a spine is missing.

    Above spines, a switch with few cables may be a leaf without nodes rather than a core that has lost its cables.
    """
    totals = {plane.lower: plane.full if word == "leaf" else plane.sound for plane in planes}
    full = _find_usual_total([totals[plane.lower] for plane in planes for _ in plane.lower])
    for plane in planes:
        if totals[plane.lower] < full and full % plane.usual == 0:
            yield Fault(
                kind="missing_spine",
                where=f"above {_join_names([cabling.name(guid) for guid in plane.lower])}",
                evidence=f"{len(plane.lower)} switches have {totals[plane.lower]} uplinks each, most others of their "
                f"tier have {full}",
                cost=f"{1 - totals[plane.lower] / full:.0%} less bandwidth out of these",
                switches=plane.lower,
            )


def _thin_leaf_faults(cabling: Cabling, similar: Sequence[Leaf]) -> Iterator[Fault]:
    """Yield the leaves with hardly any HCA, unless their whole unit is small: then it is the last, not yet full."""
    counts = sorted(leaf.hca_links for leaf in similar)
    median = counts[len(counts) // 2]
    of_unit: dict[int | None, list[int]] = {}
    for leaf in similar:
        of_unit.setdefault(leaf.unit, []).append(leaf.hca_links)
    several = len({leaf.unit for leaf in similar}) < len(similar)
    for leaf in similar:
        mates = of_unit[leaf.unit]
        lonely = leaf.unit is None or (len(mates) == 1 and several) or leaf.hca_links < _THIN * max(mates)
        if leaf.hca_links < _THIN * median and lonely:
            names = ", ".join(leaf.nodes[:_MAX_NAMED]) or "unnamed hosts"
            yield Fault(
                kind="thin_leaf",
                where=cabling.name(leaf.guid),
                evidence=f"HCA links: {leaf.hca_links} ({names}), the median of its role is {median}",
                cost="a job on its nodes reaches all others through spines",
                nodes=leaf.nodes,
                switches=(leaf.guid,),
            )


def _sort_by_name(cabling: Cabling, guids: Collection[str]) -> list[str]:
    return sorted(guids, key=cabling.name)


def _join_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(names[:_MAX_NAMED]) + more

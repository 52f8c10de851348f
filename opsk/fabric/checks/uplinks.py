"""Reports switches with fewer uplinks than similar ones, or uplinks to other switches, and spines that lost cables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from opsk.fabric.cabling import Cabling
from opsk.fabric.fabric import Fault
from opsk.fabric.leaves.leaf import Leaf
from opsk.fabric.uplinks import Plane, find_planes
from opsk.units import as_gbit_per_s

_MIN_SWITCHES = 3
_USUAL_SHARE = 0.5
_THIN = 0.25
_MAX_NAMED = 4


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
                yield from _failed_spine_faults(cabling, plane)
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


def _failed_spine_faults(cabling: Cabling, plane: Plane) -> Iterator[Fault]:
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

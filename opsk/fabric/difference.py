"""Compares two snapshots of a fabric: switches, HCAs, cables, links, names, rails and findings.

A device that was exchanged for another of the same name is *replaced*, an HCA or cable that is plugged in elsewhere is
*moved*; only what has no partner on the other side is *added* or *removed*. The cables of an added or removed device
are part of its change, and so are the HCAs of an added or removed host.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from opsk.fabric.cabling import shorten_name
from opsk.fabric.fabric import Cable, Fabric, Fault
from opsk.fabric.hb_domains import HbDomain
from opsk.fabric.hosts.ports import natural_key
from opsk.fabric.rails import Rails, find_rails
from opsk.fabric.snapshot import Snapshot

End = tuple[str, int]
_MAX_SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that is different.

    ``kind`` is a short fixed word (``hca_moved``, ``link_changed``, ...); ``where`` names what changed; ``before`` and
    ``after`` how it was and is, ``None`` where there is nothing. For programs: the ``guids`` and ``nodes`` concerned.
    """

    kind: str
    where: str
    before: str | None
    after: str | None
    guids: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the two fabrics: its cables by end, its rails, and what it has under each name."""

    fabric: Fabric
    rails: Rails
    cable_at: Mapping[End, Cable]
    ports: Mapping[str, list[int]]

    def name(self, guid: str) -> str:
        fabric = self.fabric
        if guid in fabric.switches:
            return shorten_name(fabric.switches[guid].description) or guid
        hca = fabric.hcas.get(guid) or fabric.routers.get(guid)
        return (hca.description if hca else "") or guid

    def place(self, end: End) -> str:
        return f"{self.name(end[0])} port {end[1]}"

    def describe_attachment(self, end: End) -> str:
        """Name the port that an HCA is cabled to, with the rail that its leaf carries."""
        leaf = self.rails.leaves.get(end[0])
        return self.place(end) + (f" (rail {leaf.rail})" if leaf and leaf.rail is not None else "")


def compare_snapshots(before: Snapshot, after: Snapshot) -> tuple[Change, ...]:
    """Return all changes: boxes first, then hosts, cables, names, rails and units, HB domains, findings."""
    old, new = _build_side(before.fabric), _build_side(after.fabric)
    replaced = _match_replaced(old, new)
    removed, added = _find_unmatched(old.fabric, new.fabric, replaced)
    return (
        *_device_changes(old, new, replaced, removed, added),
        *_cable_changes(old, new, replaced, removed, added),
        *_name_changes(old, new),
        *_rail_changes(old.rails, new.rails),
        *_domain_changes(before.hb_domains, after.hb_domains),
        *_finding_changes(old.rails.faults, new.rails.faults),
    )


def _build_side(fabric: Fabric) -> _Side:
    cable_at: dict[End, Cable] = {}
    ports: defaultdict[str, list[int]] = defaultdict(list)
    for cable in fabric.cables:
        for guid, port in ((cable.a_guid, cable.a_port), (cable.b_guid, cable.b_port)):
            cable_at[guid, port] = cable
            ports[guid].append(port)
    return _Side(fabric, find_rails(fabric), cable_at, ports)


def _all_guids(fabric: Fabric) -> set[str]:
    return fabric.switches.keys() | fabric.hcas.keys() | fabric.routers.keys()


def _match_replaced(old: _Side, new: _Side) -> dict[str, str]:
    """Return old guids to new ones of replaced devices: the same name, which no other device has."""
    partners: dict[str, str] = {}
    for was, now in (
        (old.fabric.switches.keys(), new.fabric.switches.keys()),
        (old.fabric.hcas.keys(), new.fabric.hcas.keys()),
        (old.fabric.routers.keys(), new.fabric.routers.keys()),
    ):
        stayed = _by_name(old, was & now).keys() | _by_name(new, was & now).keys()
        right = _by_name(new, now - was)
        for name, guids in _by_name(old, was - now).items():
            if name not in stayed and len(guids) == len(right.get(name, ())) == 1:
                partners[guids[0]] = right[name][0]
    return partners


def _by_name(side: _Side, guids: Iterable[str]) -> dict[str, list[str]]:
    """Return guids by a description that distinguishes them: one that is not the factory's."""
    named: defaultdict[str, list[str]] = defaultdict(list)
    for guid in sorted(guids):
        hca = side.fabric.hcas.get(guid)
        if hca is None or hca.node is not None:
            named[side.name(guid)].append(guid)
    return named


def _find_unmatched(old: Fabric, new: Fabric, replaced: Mapping[str, str]) -> tuple[set[str], set[str]]:
    """Return the guids that only one of the two has, and that were not replaced."""
    return (
        _all_guids(old) - _all_guids(new) - replaced.keys(),
        _all_guids(new) - _all_guids(old) - set(replaced.values()),
    )


def _device_changes(
    old: _Side, new: _Side, replaced: Mapping[str, str], removed: set[str], added: set[str]
) -> Iterator[Change]:
    for guid, other in sorted(replaced.items(), key=lambda pair: natural_key(old.name(pair[0]))):
        kind = "switch" if guid in old.fabric.switches else "hca" if guid in old.fabric.hcas else "router"
        yield Change(
            kind=f"{kind}_replaced", where=old.name(guid), before=guid, after=other, guids=(guid, other),
            nodes=_nodes(old, (guid,)),
        )  # fmt: skip
    for side, guids, word in ((old, removed, "removed"), (new, added, "added")):
        for guid in sorted(guids & side.fabric.switches.keys(), key=lambda guid: natural_key(side.name(guid))):
            yield _one_sided_change(f"switch_{word}", side, guid, _describe_cabling(side, guid))
        for guid in sorted(guids & side.fabric.routers.keys()):
            yield _one_sided_change(f"router_{word}", side, guid, _describe_cabling(side, guid))
        yield from _adapter_changes(side, guids & side.fabric.hcas.keys(), word, _hosts(new if side is old else old))


def _adapter_changes(side: _Side, guids: set[str], word: str, hosts_beyond: set[str]) -> Iterator[Change]:
    """Yield hosts that came or went with all their HCAs, then HCAs of hosts that are on both sides."""
    by_host: defaultdict[str | None, list[str]] = defaultdict(list)
    for guid in guids:
        by_host[side.fabric.hcas[guid].node].append(guid)
    for host in sorted((name for name in by_host if name is not None), key=natural_key):
        host_guids = sorted(by_host[host], key=lambda guid: natural_key(side.name(guid)))
        if host in hosts_beyond:
            for guid in host_guids:
                yield _one_sided_change(f"hca_{word}", side, guid, _describe_cabling(side, guid))
            continue
        devices = ", ".join(side.fabric.hcas[guid].device or guid for guid in host_guids[:_MAX_SHOWN])
        yield _one_sided_change(f"host_{word}", side, host, f"{len(host_guids)} HCAs: {devices}", tuple(host_guids))
    for guid in sorted(by_host.get(None, ())):
        yield _one_sided_change(f"hca_{word}", side, guid, _describe_cabling(side, guid))


def _one_sided_change(kind: str, side: _Side, what: str, text: str, guids: tuple[str, ...] = ()) -> Change:
    """Return a change of something that only one side has."""
    removed = kind.endswith("removed")
    changed_guids = guids or (what,)
    return Change(
        kind=kind,
        where=what if guids else side.name(what),
        before=text if removed else None,
        after=None if removed else text,
        guids=changed_guids,
        nodes=_nodes(side, changed_guids),
    )


def _describe_cabling(side: _Side, guid: str) -> str:
    """Say how a box is, or was, cabled."""
    ports = side.ports.get(guid, [])
    if guid in side.fabric.hcas and ports:
        ends = [(guid, port) for port in sorted(ports)]
        return "; ".join(side.describe_attachment(_far(side.cable_at[end], end)) for end in ends)
    return f"{len(ports)} cabled ports"


def _hosts(side: _Side) -> set[str]:
    return {hca.node for hca in side.fabric.hcas.values() if hca.node is not None}


def _cable_changes(
    old: _Side, new: _Side, replaced: Mapping[str, str], removed: set[str], added: set[str]
) -> Iterator[Change]:
    """Yield cables between boxes that both sides have: moved at one end, gone, new, or with another link."""
    lost: dict[tuple[End, End], Cable] = {}
    fresh = {
        ends: cable
        for cable in new.fabric.cables
        if cable.a_guid not in added and cable.b_guid not in added
        for ends in (_ends(cable, {}),)
    }
    for cable in old.fabric.cables:
        if cable.a_guid in removed or cable.b_guid in removed:
            continue
        ends = _ends(cable, replaced)
        now = fresh.pop(ends, None)
        if now is None:
            lost[ends] = cable
        elif (now.width, now.speed) != (cable.width, cable.speed):
            where = f"{new.place(ends[0])} to {new.place(ends[1])}"
            yield _change("link_changed", where, _link(cable), _link(now), new, ends)
    yield from _moved_cable_changes(old, new, lost, fresh)
    reverse = {other: guid for guid, other in replaced.items()}
    for ends in sorted(lost):
        where = " to ".join(old.place((reverse.get(guid, guid), port)) for guid, port in ends)
        yield _change("cable_removed", where, _link(lost[ends]), None, old, ends)
    for ends in sorted(fresh):
        where = f"{new.place(ends[0])} to {new.place(ends[1])}"
        yield _change("cable_added", where, None, _link(fresh[ends]), new, ends)


def _moved_cable_changes(
    old: _Side, new: _Side, lost: dict[tuple[End, End], Cable], fresh: dict[tuple[End, End], Cable]
) -> Iterator[Change]:
    """Yield and take out the cables with one end where it was and the other elsewhere: HCAs, then switch to switch."""
    hcas, switches = new.fabric.hcas, new.fabric.switches
    fresh_at = {end: ends for ends in fresh for end in ends}
    for hca in (True, False):
        for ends in sorted(lost):
            for fixed_end in ends:
                now = fresh_at.get(fixed_end)
                if now is None or now not in fresh or (fixed_end[0] in hcas) != hca:
                    continue
                if not hca and not all(guid in switches for guid, _ in (*ends, *now)):
                    continue
                was, is_now = lost.pop(ends), fresh.pop(now)
                yield from _move_changes(old, new, fixed_end, (ends, was), (now, is_now))
                break


def _move_changes(
    old: _Side,
    new: _Side,
    fixed_end: End,
    was: tuple[tuple[End, End], Cable],
    now: tuple[tuple[End, End], Cable],
) -> Iterator[Change]:
    """Yield the move of a cable that stayed plugged in at ``fixed_end``, and the change of its link if there is one."""
    was_far, is_far = _other(was[0], fixed_end), _other(now[0], fixed_end)
    if fixed_end[0] in new.fabric.hcas:
        where, kind = new.name(fixed_end[0]), "hca_moved"
        yield _change(
            kind, where, old.describe_attachment(was_far), new.describe_attachment(is_far), new, (fixed_end, is_far)
        )
    else:
        where, kind = new.place(fixed_end), "cable_moved"
        yield _change(kind, where, old.place(was_far), new.place(is_far), new, (fixed_end, is_far))
    if _link(was[1]) != _link(now[1]):
        yield _change("link_changed", where, _link(was[1]), _link(now[1]), new, now[0])


def _name_changes(old: _Side, new: _Side) -> Iterator[Change]:
    """Yield boxes with another description than before."""
    for word, was, now in (
        ("switch", old.fabric.switches, new.fabric.switches),
        ("hca", old.fabric.hcas, new.fabric.hcas),
        ("router", old.fabric.routers, new.fabric.routers),
    ):
        for guid in sorted(was.keys() & now.keys()):
            if was[guid].description != now[guid].description:
                texts = was[guid].description, now[guid].description
                yield Change(
                    kind=f"{word}_renamed", where=guid, before=texts[0], after=texts[1], guids=(guid,),
                    nodes=_nodes(new, (guid,)),
                )  # fmt: skip


def _rail_changes(old: Rails, new: Rails) -> Iterator[Change]:
    """Yield another number of rails, and units that were added, removed or changed; matched by the nodes they share."""
    if old.rail_count != new.rail_count:
        yield Change(kind="rails_changed", where="rails", before=str(old.rail_count), after=str(new.rail_count))
    unit_of = {node: index for index, unit in enumerate(new.units) for node in unit}
    partner: dict[int, int] = {}
    for index, unit in enumerate(old.units):
        votes = Counter(unit_of[node] for node in unit if node in unit_of)
        best = min(votes, key=lambda other: (-votes[other], other), default=None)
        if best is not None and best not in partner.values():
            partner[index] = best
    for index, unit in enumerate(old.units):
        now = new.units[partner[index]] if index in partner else None
        if now is None:
            yield Change(kind="unit_removed", where=_span(unit), before=f"{len(unit)} nodes", after=None, nodes=unit)
        elif set(now) != set(unit):
            moved = tuple(sorted(set(now) ^ set(unit), key=natural_key))
            yield Change(
                kind="unit_changed", where=_span(now), before=f"{len(unit)} nodes", after=f"{len(now)} nodes",
                nodes=moved,
            )  # fmt: skip
    for index, unit in enumerate(new.units):
        if index not in partner.values():
            yield Change(kind="unit_added", where=_span(unit), before=None, after=f"{len(unit)} nodes", nodes=unit)


def _domain_changes(old: Iterable[HbDomain], new: Iterable[HbDomain]) -> Iterator[Change]:
    was = {domain.name: domain for domain in old}
    now = {domain.name: domain for domain in new}
    for name in sorted(was.keys() | now.keys(), key=natural_key):
        before, after = was.get(name), now.get(name)
        if before != after:
            texts = [None if domain is None else _domain_text(domain) for domain in (before, after)]
            nodes = sorted({*(before.nodes if before else ()), *(after.nodes if after else ())}, key=natural_key)
            yield Change(kind="hb_domain_changed", where=name, before=texts[0], after=texts[1], nodes=tuple(nodes))


def _finding_changes(old: Iterable[Fault], new: Iterable[Fault]) -> Iterator[Change]:
    """Yield findings that one side has and the other has not, by kind and place."""
    was = {(fault.kind, fault.where): fault for fault in old}
    now = {(fault.kind, fault.where): fault for fault in new}
    for key in sorted(was.keys() - now.keys()):
        yield _finding("fault_vanished", was[key], before=was[key].evidence, after=None)
    for key in sorted(now.keys() - was.keys()):
        yield _finding("fault_appeared", now[key], before=None, after=now[key].evidence)


def _finding(kind: str, fault: Fault, *, before: str | None, after: str | None) -> Change:
    where = f"{fault.kind}: {fault.where}"
    return Change(kind=kind, where=where, before=before, after=after, nodes=fault.nodes)


def _change(kind: str, where: str, before: str | None, after: str | None, side: _Side, ends: tuple[End, End]) -> Change:
    guids = tuple(dict.fromkeys(guid for guid, _ in ends))
    return Change(kind=kind, where=where, before=before, after=after, guids=guids, nodes=_nodes(side, guids))


def _nodes(side: _Side, guids: Iterable[str]) -> tuple[str, ...]:
    names = {hca.node for guid in guids if (hca := side.fabric.hcas.get(guid)) is not None and hca.node}
    return tuple(sorted(names, key=natural_key))


def _ends(cable: Cable, replaced: Mapping[str, str]) -> tuple[End, End]:
    a = (replaced.get(cable.a_guid, cable.a_guid), cable.a_port)
    b = (replaced.get(cable.b_guid, cable.b_guid), cable.b_port)
    return (a, b) if a <= b else (b, a)


def _far(cable: Cable, near: End) -> End:
    a, b = (cable.a_guid, cable.a_port), (cable.b_guid, cable.b_port)
    return b if a == near else a


def _other(ends: tuple[End, End], near: End) -> End:
    return ends[1] if ends[0] == near else ends[0]


def _link(cable: Cable) -> str:
    return f"{cable.width}x{cable.speed}"


def _span(unit: tuple[str, ...]) -> str:
    return f"unit of {unit[0]} to {unit[-1]}" if len(unit) > 1 else f"unit of {''.join(unit) or 'no node'}"


def _domain_text(domain: HbDomain) -> str:
    gpus = f", {domain.gpus} GPUs" if domain.gpus is not None else ""
    return f"{len(domain.nodes)} nodes{gpus}: {', '.join(domain.nodes[:_MAX_SHOWN])}"

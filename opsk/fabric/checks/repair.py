"""Computes the fabric without one finding: the same fabric with that one fault repaired.

The price of a fault is what a job gains when it is gone; this module provides the repaired fabric to compare with.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping

from opsk.fabric.cabling import Cabling, read_cabling
from opsk.fabric.checks.links import cable_ends, group_hca_links, group_isls
from opsk.fabric.checks.oversubscription import compute_tier_capacities
from opsk.fabric.checks.rails import find_gaps, group_leaves_by_rail
from opsk.fabric.checks.uplinks import Plane, find_planes
from opsk.fabric.fabric import Cable, Fabric, Fault, Hca, Switch
from opsk.fabric.hosts.ports import mask_numbers
from opsk.fabric.link_speed import link_bytes_per_s
from opsk.fabric.numbering import Numbering, number_rails

_MADE = 0xFFFE_0000_0000_0000
"""Guids of what a repair adds start here."""

End = tuple[str, int]
"""A guid and a port."""


class FabricEditor:
    """A fabric under repair: its cables as a list, free ports, and its cabling as it was."""

    def __init__(self, fabric: Fabric, cabling: Cabling) -> None:
        self.fabric = fabric
        self.switches = dict(fabric.switches)
        self.hcas = dict(fabric.hcas)
        self.cables = list(fabric.cables)
        self.cabling = cabling
        self._used: defaultdict[str, set[int]] = defaultdict(set)
        for cable in fabric.cables:
            self._used[cable.a_guid].add(cable.a_port)
            self._used[cable.b_guid].add(cable.b_port)

    def build_fabric(self) -> Fabric:
        """Return the fabric as it now is."""
        return dataclasses.replace(self.fabric, switches=self.switches, hcas=self.hcas, cables=tuple(self.cables))

    def remove_cables(self, requested: Iterable[tuple[str, int, str, int]]) -> list[Cable]:
        """Remove cables by their ends and return them, in the order requested."""
        keys = list(requested)
        matching = {cable_ends(cable): cable for cable in self.cables if cable_ends(cable) in set(keys)}
        self.cables = [cable for cable in self.cables if cable_ends(cable) not in matching]
        return [matching[key] for key in keys if key in matching]

    def take_free_port(self, guid: str) -> int:
        """Return the first free port of a switch or HCA, and take it."""
        port = next(port for port in range(1, len(self._used[guid]) + 2) if port not in self._used[guid])
        self._used[guid].add(port)
        return port

    def add_cable(self, first: End, second: End, width: int, speed: str) -> None:
        """Add a cable between two ports."""
        low, high = sorted((first, second))
        self.cables.append(
            Cable(
                a_guid=low[0],
                a_port=low[1],
                b_guid=high[0],
                b_port=high[1],
                width=width,
                speed=speed,
                bytes_per_s=link_bytes_per_s(width, speed),
            )
        )

    def add_cable_between(self, first: str, second: str, rate: tuple[int, str]) -> None:
        """Add a cable between free ports."""
        self.add_cable((first, self.take_free_port(first)), (second, self.take_free_port(second)), *rate)

    def create_guid(self) -> str:
        """Return a guid that nothing has yet."""
        value = _MADE
        while f"{value:016x}" in self.hcas or f"{value:016x}" in self.switches:
            value += 1
        return f"{value:016x}"

    def numbering(self) -> Numbering:
        """Return the rails of the fabric as it was."""
        return number_rails(self.cabling)

    def find_usual_rate(self, cables: Iterable[Cable]) -> tuple[int, str]:
        """Return the most usual width and speed, NDR where there is nothing to go by."""
        rates = Counter((cable.width, cable.speed) for cable in cables if cable.bytes_per_s)
        return max(rates, key=lambda rate: (rates[rate], link_bytes_per_s(*rate)), default=(4, "NDR"))


def _find_peer_planes(editor: FabricEditor, guid: str) -> tuple[Plane, ...]:
    """Return the planes of the switches that are compared with one: of its tier and role."""
    cabling = editor.cabling
    tier, role = cabling.tier.get(guid), cabling.roles.get(guid)
    return find_planes(
        cabling,
        [other for other, level in cabling.tier.items() if level == tier and cabling.roles.get(other) == role],
    )


def add_uplinks(editor: FabricEditor, fault: Fault) -> Fabric | None:
    """Give a switch the cables that similar switches have to the switches above."""
    guid = fault.switches[0]
    planes = _find_peer_planes(editor, guid)
    cables = editor.cabling.uplinks(guid)
    rate = editor.find_usual_rate(cable for cable in editor.cabling.isls)
    plane = next((plane for plane in planes if guid in plane.lower), None)
    if plane is not None and plane.usual:
        lacking = plane.lacking(cables)
        if fault.kind == "uneven_uplinks":
            _drop_extra(editor, guid, plane.extra(cables))
    else:
        lacking = _distribute_uplinks(editor, guid, planes, plane)
    for spine, count in sorted(lacking.items()):
        for _ in range(count):
            editor.add_cable_between(guid, spine, rate)
    return editor.build_fabric() if lacking else None


def _drop_extra(editor: FabricEditor, guid: str, extra: Counter[str]) -> None:
    left = Counter(extra)
    remaining = []
    for cable in editor.cables:
        ends = {cable.a_guid, cable.b_guid}
        far = next(iter(ends - {guid}), guid)
        if guid in ends and far in left and left[far] > 0:
            left[far] -= 1
        else:
            remaining.append(cable)
    editor.cables = remaining


def _distribute_uplinks(
    editor: FabricEditor, guid: str, planes: tuple[Plane, ...], own_plane: Plane | None
) -> Counter[str]:
    """Return the cables that bring a switch to the usual number where similar switches follow no pattern."""
    cabling = editor.cabling
    similar = [other for plane in planes for other in plane.lower]
    totals = Counter(cabling.uplinks(other).total() for other in similar)
    usual = max(totals, key=lambda count: (totals[count], count), default=0)
    if 2 * totals[usual] < len(similar):
        usual = max(totals, default=0)
    above = sorted(cabling.uplinks(guid)) or (list(own_plane.upper) if own_plane else [])
    if not above:
        best = max(planes, key=lambda plane: (len(plane.lower), plane.lower), default=None)
        above = list(best.upper) if best else []
    missing = max(0, usual - cabling.uplinks(guid).total())
    return Counter(above[index % len(above)] for index in range(missing)) if above else Counter()


def add_spine_cables(editor: FabricEditor, fault: Fault) -> Fabric | None:
    """Give a spine the cables to its leaves again."""
    spine, below = fault.switches[0], fault.switches[1:]
    rate = editor.find_usual_rate(cable for cable in editor.cabling.isls)
    plane = next((p for p in _find_peer_planes(editor, below[0]) if spine in p.failed), None) if below else None
    if plane is None:
        return None
    for leaf in plane.lower:
        for _ in range(plane.usual - editor.cabling.neighbours[spine][leaf]):
            editor.add_cable_between(leaf, spine, rate)
    return editor.build_fabric()


def add_spine(editor: FabricEditor, fault: Fault) -> Fabric | None:
    """Give the switches of a plane one more switch above, or as many as they lack."""
    planes = _find_peer_planes(editor, fault.switches[0])
    plane = next((plane for plane in planes if fault.switches[0] in plane.lower), None)
    if plane is None or not plane.usual:
        return None
    full = max(other.full for other in planes)
    rate = editor.find_usual_rate(cable for cable in editor.cabling.isls)
    for _ in range((full - plane.full) // plane.usual):
        guid = editor.create_guid()
        editor.switches[guid] = Switch(guid=guid, description="spine", ports=editor.switches[plane.upper[0]].ports)
        for lower in plane.lower:
            for _ in range(plane.usual):
                editor.add_cable_between(lower, guid, rate)
    return editor.build_fabric()


def cable_spine(editor: FabricEditor, fault: Fault) -> Fabric | None:
    """Cable a switch without cables as the spines of its name are: to the plane that has fewest."""
    if not fault.switches or not editor.cabling.by_leaf:
        return None
    guid, kind = fault.switches[0], _get_kind(editor, fault.switches[0])
    planes = [
        plane
        for plane in _find_peer_planes(
            editor, next(iter(sorted(editor.cabling.by_leaf.keys() - editor.cabling.off_tier)), "")
        )
        if plane.usual and any(_get_kind(editor, upper) == kind for upper in plane.upper)
    ]
    plane = min(planes, key=lambda plane: (plane.full, plane.lower), default=None)
    if plane is None:
        return None
    rate = editor.find_usual_rate(cable for cable in editor.cabling.isls)
    for lower in plane.lower:
        for _ in range(plane.usual):
            editor.add_cable_between(lower, guid, rate)
    return editor.build_fabric()


def _get_kind(editor: FabricEditor, guid: str) -> str:
    return mask_numbers(editor.switches[guid].description)


def connect_part(editor: FabricEditor, fault: Fault) -> Fabric | None:
    """Give the leaves of a part that is cut off the uplinks that leaves usually have."""
    leaves = [guid for guid in fault.switches if guid in editor.cabling.by_leaf]
    cut = set(fault.switches)
    for leaf in leaves:
        planes = [plane for plane in _find_peer_planes(editor, leaf) if not cut & set(plane.lower)]
        best = max(planes, key=lambda plane: (len(plane.lower), plane.lower), default=None)
        if best is None:
            return None
        rate = editor.find_usual_rate(cable for cable in editor.cabling.isls)
        for spine in best.upper:
            for _ in range(best.usual or 1):
                editor.add_cable_between(leaf, spine, rate)
    return editor.build_fabric() if leaves else None


def relieve_leaf(editor: FabricEditor, fault: Fault) -> Fabric | None:
    """Give a crowded leaf uplinks until it has as much bandwidth upwards as from below."""
    leaf = fault.switches[0]
    down = sum(link.cable.bytes_per_s for link in editor.cabling.by_leaf.get(leaf, ()))
    above = sorted(editor.cabling.uplinks(leaf).items(), key=lambda item: (item[1], item[0]))
    rate = editor.find_usual_rate(cable for cable in editor.cabling.isls)
    if not above or not link_bytes_per_s(*rate):
        return None
    up, index = editor.cabling.up_bytes_per_s.get(leaf, 0.0), 0
    while up < down:
        editor.add_cable_between(leaf, above[index % len(above)][0], rate)
        up, index = up + link_bytes_per_s(*rate), index + 1
    return editor.build_fabric()


def widen_tier(editor: FabricEditor, fault: Fault) -> Fabric | None:
    """Give a tier full bandwidth upwards: its cables there carry as much more as they lack."""
    cabling = editor.cabling
    tier = cabling.tier.get(fault.switches[0]) if fault.switches else None
    ratio: Mapping[int, float | None] = {
        entry.tier: entry.ratio for entry in compute_tier_capacities(cabling.links, cabling.isls, cabling.tier)
    }
    if tier is None or not (factor := ratio.get(tier)):
        return None
    cables = []
    for cable in editor.cables:
        low, high = sorted((cabling.tier.get(cable.a_guid, -1), cabling.tier.get(cable.b_guid, -1)))
        up = cable.a_guid in editor.switches and cable.b_guid in editor.switches and low == tier < high
        cables.append(dataclasses.replace(cable, bytes_per_s=cable.bytes_per_s * factor) if up else cable)
    editor.cables = cables
    return editor.build_fabric()


def is_repairable(fault: Fault) -> bool:
    """Return whether there is anything of the cabling that could be put right about a finding of this kind."""
    return fault.kind in _REPAIRS


def repair_fault(fabric: Fabric, fault: Fault, *, cabling: Cabling | None = None) -> Fabric | None:
    """Return the fabric as it would be without ``fault``, or ``None`` where nothing of its cabling is to be changed.

    HCAs go where the others of their rail are, missing cables and HCAs are added, links run at the usual width and
    speed. Names of several machines, or of none, are not guessed. The other faults stay.

    Parameters
    ----------
    fault
        A finding of ``find_rails`` on this very fabric.
    cabling
        The result of ``read_cabling``, where it is known: saves reading it for each of many findings.
    """
    repair = _REPAIRS.get(fault.kind)
    return repair(FabricEditor(fabric, cabling or read_cabling(fabric)), fault) if repair else None


def _order_ends(cable: Cable, hca: str) -> tuple[End, End]:
    """Return the end at an HCA, and the other one."""
    first, second = (cable.a_guid, cable.a_port), (cable.b_guid, cable.b_port)
    return (first, second) if cable.a_guid == hca else (second, first)


def _unswap(editor: FabricEditor, fault: Fault) -> Fabric | None:
    """Cable each HCA of the ring where the next one is: that is where it belongs."""
    cables = editor.remove_cables(fault.cables)
    if len(cables) != len(fault.devices) or len(cables) < 2:
        return None
    both = [_order_ends(cable, hca) for cable, hca in zip(cables, fault.devices, strict=True)]
    for index, (near, _) in enumerate(both):
        cable, far = cables[index], both[(index + 1) % len(both)][1]
        editor.add_cable(near, far, cable.width, cable.speed)
    return editor.build_fabric()


def _move_to_leaf(editor: FabricEditor, fault: Fault) -> Fabric | None:
    """Move the HCA to the leaf that the others of its rail are on; one whose place is not known is taken off."""
    cables = editor.remove_cables(fault.cables)
    if not cables:
        return None
    if len(fault.switches) > 1:
        near, _ = _order_ends(cables[0], fault.devices[0])
        leaf = fault.switches[1]
        editor.add_cable(near, (leaf, editor.take_free_port(leaf)), cables[0].width, cables[0].speed)
        return editor.build_fabric()
    _remove_uncabled_hcas(editor, fault.devices)
    return editor.build_fabric()


def _remove_uncabled_hcas(editor: FabricEditor, hcas: Iterable[str]) -> None:
    """Take HCAs off, where no cable is left to them."""
    cabled = {guid for cable in editor.cables for guid in (cable.a_guid, cable.b_guid)}
    for guid in hcas:
        if guid not in cabled:
            editor.hcas.pop(guid, None)


def _add_hca(editor: FabricEditor, node: str, device: str, leaf: str, rate: tuple[int, str]) -> None:
    guid = editor.create_guid()
    editor.hcas[guid] = Hca(guid=guid, description=f"{node} {device}", node=node, device=device)
    editor.add_cable((guid, 1), (leaf, editor.take_free_port(leaf)), *rate)


def _add_missing_rail(editor: FabricEditor, fault: Fault) -> Fabric | None:
    """Give a node the HCAs of the rails that it lacks, and its unit the leaves for them."""
    cabling, numbering = editor.cabling, editor.numbering()
    gaps = find_gaps(cabling, numbering)
    node_gap = next((gap for gap in gaps if gap.host.name == fault.nodes[0]), None)
    if node_gap is None:
        return None
    carried = group_leaves_by_rail(cabling, numbering, node_gap.unit)
    for rail in node_gap.rails:
        if rail in carried:
            _add_device(editor, numbering, node_gap.host.name, rail, carried[rail][0])
        else:
            mates = [gap.host.name for gap in gaps if gap.unit == node_gap.unit and rail in gap.rails]
            _add_leaf(editor, numbering, cabling.units[node_gap.unit].leaves, mates, rail)
    return editor.build_fabric()


def _add_device(editor: FabricEditor, numbering: Numbering, node: str, rail: int, leaf: str) -> None:
    """Add the HCA of a rail to a node."""
    rate = editor.find_usual_rate(link.cable for link in editor.cabling.links)
    _add_hca(editor, node, _device(editor.cabling, numbering, node, rail), leaf, rate)


def _device(cabling: Cabling, numbering: Numbering, node: str, rail: int) -> str:
    """Return what the HCA of a rail is called on the node whose device names agree most with this one's."""
    own_devices = {port.device for host in cabling.compute if host.name == node for port in host.ports}
    best: tuple[int, str] = (-1, f"rail{rail}")
    for host in cabling.compute:
        devices = [port.device for port in host.ports]
        positions = [index for index, entry in enumerate(numbering.rails_of[host.name]) if entry == rail]
        shared = len(own_devices.intersection(devices))
        if positions and shared > best[0] and devices[positions[0]] not in own_devices:
            best = (shared, devices[positions[0]])
    return best[1]


def _add_missing_leaf(editor: FabricEditor, fault: Fault) -> Fabric | None:
    """Give a unit the leaf that it lacks."""
    numbering = editor.numbering()
    gaps = [gap for gap in find_gaps(editor.cabling, numbering) if gap.host.name in fault.nodes]
    shared = set.intersection(*(set(gap.rails) for gap in gaps)) if gaps else set()
    rail = next((rail for rail in sorted(shared) if fault.where.endswith(f"rail {rail}")), None)
    if rail is None:
        return None
    _add_leaf(editor, numbering, fault.switches, fault.nodes, rail)
    return editor.build_fabric()


def _add_leaf(
    editor: FabricEditor, numbering: Numbering, mates: Iterable[str], nodes: Iterable[str], rail: int
) -> None:
    """Add a leaf for a rail with uplinks as the unit's other leaves have, and its nodes' HCAs on it."""
    cabling = editor.cabling
    model = max(mates, key=lambda guid: (cabling.uplinks(guid).total(), guid))
    guid = editor.create_guid()
    editor.switches[guid] = Switch(guid=guid, description=f"leaf for rail {rail}", ports=editor.switches[model].ports)
    rate = editor.find_usual_rate(cable for cable in cabling.isls if model in (cable.a_guid, cable.b_guid))
    for spine, count in sorted(cabling.uplinks(model).items()):
        for _ in range(count):
            editor.add_cable_between(guid, spine, rate)
    for node in nodes:
        _add_device(editor, numbering, node, rail, guid)


def _add_missing_hcas(editor: FabricEditor, fault: Fault) -> Fabric | None:
    """Give a node as many HCAs as most of its family, on the leaves that its own are on."""
    cabling = editor.cabling
    host = next((host for host in cabling.compute if host.name in fault.nodes), None)
    if host is None:
        return None
    counts = Counter(len(other.ports) for other in cabling.compute if other.family == host.family)
    usual = max(counts, key=lambda count: (counts[count], count))
    model = next(other for other in cabling.compute if other.family == host.family and len(other.ports) == usual)
    own_devices = {port.device for port in host.ports}
    used = Counter(port.switch for port in host.ports)
    for port in [port for port in model.ports if port.device not in own_devices][: usual - len(host.ports)]:
        leaf = min(used, key=lambda guid: (used[guid], guid))
        used[leaf] += 1
        _add_hca(editor, host.name, port.device, leaf, (port.width, port.speed))
    return editor.build_fabric()


def _restore_rates(editor: FabricEditor, fault: Fault) -> Fabric | None:
    """Let the links run at what is usual for their sort, or at what the other sorts run at."""
    targets = set(fault.cables)
    rates: dict[tuple[str, int, str, int], tuple[int, str]] = {}
    isls = [cable for cable in editor.cabling.isls if cable.a_guid != cable.b_guid]
    for sort in (*group_hca_links(editor.cabling), *group_isls(editor.cabling, isls)):
        for cable in sort.cables:
            if cable_ends(cable) in targets:
                slower = cable.bytes_per_s < sort.usual_bytes_per_s
                rates[cable_ends(cable)] = sort.usual if slower else sort.best
    if not rates:
        return None
    editor.cables = [_set_rate(cable, rates.get(cable_ends(cable))) for cable in editor.cables]
    return editor.build_fabric()


def _set_rate(cable: Cable, rate: tuple[int, str] | None) -> Cable:
    if rate is None:
        return cable
    return dataclasses.replace(cable, width=rate[0], speed=rate[1], bytes_per_s=link_bytes_per_s(*rate))


def _remove_cables(editor: FabricEditor, fault: Fault) -> Fabric | None:
    """Take the cables away that should not be."""
    editor.remove_cables(fault.cables)
    _remove_uncabled_hcas(editor, fault.devices)
    return editor.build_fabric()


def _remove_extra_cables(editor: FabricEditor, fault: Fault) -> Fabric | None:
    """Leave an HCA its first cable."""
    editor.remove_cables(sorted(fault.cables)[1:])
    return editor.build_fabric()


_REPAIRS: Mapping[str, Callable[[FabricEditor, Fault], Fabric | None]] = {
    "swapped_hcas": _unswap,
    "misplaced_hca": _move_to_leaf,
    "missing_rail": _add_missing_rail,
    "missing_leaf": _add_missing_leaf,
    "fewer_hcas": _add_missing_hcas,
    "slow_link": _restore_rates,
    "narrow_link": _restore_rates,
    "loop_cable": _remove_cables,
    "cables_inside_a_tier": _remove_cables,
    "host_off_tier": _remove_cables,
    "two_cables_on_one_hca": _remove_extra_cables,
    "leaf_short_of_uplinks": add_uplinks,
    "spine_short_of_uplinks": add_uplinks,
    "uneven_uplinks": add_uplinks,
    "spine_short_of_cables": add_spine_cables,
    "missing_spine": add_spine,
    "no_cable": cable_spine,
    "isolated_part": connect_part,
    "oversubscribed_leaf": relieve_leaf,
    "oversubscribed_tier": widen_tier,
}

"""Which rail does each leaf carry? A vote of the nodes of a unit, by the position of the HCA that each has there."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from opsk.topology.cabling import Cabling
from opsk.topology.hosts import Host
from opsk.topology.positions import positions
from opsk.topology.renumbered import renumbered
from opsk.topology.units import Unit

_AGREED = 0.6
"""Share of a unit's HCAs that must be where the vote says before a deviation is called a fault."""
_SPREAD = 0.8
"""Share of a unit's leaves that a node of as many HCAs uses on average, where leaves are rails."""
_STRAY = 0.25
"""A leaf with less than this share of the nodes that the unit's best leaf has on a rail does not carry that rail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbering:
    """The rails: ``carries`` by leaf, the main one first; ``rails_of`` by host, one entry a port, by position.

    ``follows_names`` tells for each unit whether device names agree with the cabling; where they do not, its leaves
    are numbered in order and no HCA can be called misplaced.
    """

    rail_count: int
    carries: Mapping[str, tuple[int, ...]]
    rails_of: Mapping[str, tuple[int, ...]]
    follows_names: tuple[bool, ...]

    def rails_at(self, host: Host) -> list[int | None]:
        """Return for each port of a host the rail that it really is on, by the leaf it is cabled to."""
        carries, found = self.carries, []
        for rail, port in zip(self.rails_of[host.name], host.ports, strict=True):
            carried = carries.get(port.switch, ())
            found.append(rail if rail in carried else carried[0] if carried else None)
        return found


def number_rails(cabling: Cabling) -> Numbering:
    """Vote on the rail of each leaf; see ``Numbering``."""
    place = positions(cabling.compute)
    by_name = {host.name: host for host in cabling.compute}
    classes = _classes(cabling, by_name, place)
    kinds = {entries: tuple(classes[position] for position in entries) for entries in set(place.values())}
    rails_of = {name: kinds[entries] for name, entries in place.items()}
    carries: dict[str, tuple[int, ...]] = {}
    follows = []
    for unit in cabling.units:
        found, agreed = _unit_rails(unit, by_name, rails_of)
        carries |= found
        follows.append(agreed)
        if agreed:
            rails_of |= renumbered([by_name[name] for name in unit.nodes], found, rails_of)
    used = {rail for rails in carries.values() for rail in rails}
    return Numbering(
        rail_count=max(used, default=-1) + 1, carries=carries, rails_of=rails_of, follows_names=tuple(follows)
    )


def _classes(cabling: Cabling, hosts: Mapping[str, Host], place: Mapping[str, tuple[int, ...]]) -> dict[int, int]:
    """Return the rail of each position: positions that most nodes have on one and the same leaf are one rail."""
    together: Counter[tuple[int, int]] = Counter()
    apart: Counter[tuple[int, int]] = Counter()
    known = {position for entries in set(place.values()) for position in entries}
    alike: Counter[tuple[tuple[int, int], ...]] = Counter()
    for name, entries in place.items():
        if name in cabling.unit_of:
            first: dict[str, int] = {}
            leaves = [first.setdefault(port.switch, index) for index, port in enumerate(hosts[name].ports)]
            alike[tuple(sorted(zip(entries, leaves, strict=True)))] += 1
    for at, count in alike.items():
        for (one, leaf), (other, other_leaf) in combinations(at, 2):
            (together if leaf == other_leaf else apart)[one, other] += count
    root: dict[int, int] = {}
    for position in sorted(known):
        joined = [low for low in root if together[low, position] > apart[low, position]]
        root[position] = root[joined[0]] if joined else position
    order = {least: rail for rail, least in enumerate(sorted(set(root.values())))}
    return {position: order[least] for position, least in root.items()}


def _unit_rails(
    unit: Unit, hosts: Mapping[str, Host], rails_of: Mapping[str, tuple[int, ...]]
) -> tuple[dict[str, tuple[int, ...]], bool]:
    """Return the rails of each leaf of a unit, and whether device names agree with them."""
    seats: dict[str, defaultdict[int, set[str]]] = {leaf: defaultdict(set) for leaf in unit.leaves}
    spread = 0.0
    ports: list[tuple[str, int]] = []
    for name in unit.nodes:
        used = set()
        for rail, port in zip(rails_of[name], hosts[name].ports, strict=True):
            if port.switch in seats:
                seats[port.switch][rail].add(name)
                used.add(port.switch)
                ports.append((port.switch, rail))
        spread += len(used) / min(len(hosts[name].ports), len(unit.leaves))
    carries = _without_strays({leaf: _carried(votes) for leaf, votes in seats.items()}, seats)
    agreed = sum(rail in carries[leaf] for leaf, rail in ports)
    if agreed >= _AGREED * len(ports) or len(unit.leaves) == 1:
        return carries, True
    if len(unit.leaves) > 1 and spread >= _SPREAD * len(unit.nodes):
        return {leaf: (index,) for index, leaf in enumerate(unit.leaves)}, False
    return dict.fromkeys(unit.leaves, ()), False


def _without_strays(
    carries: Mapping[str, tuple[int, ...]], seats: Mapping[str, Mapping[int, set[str]]]
) -> dict[str, tuple[int, ...]]:
    """Take a rail from a leaf that far fewer nodes have it on than another leaf of the unit: that is a stray cable."""
    most: Counter[int] = Counter()
    for leaf, rails in carries.items():
        for rail in rails:
            most[rail] = max(most[rail], len(seats[leaf][rail]))
    return {
        leaf: tuple(rail for rail in rails if len(seats[leaf][rail]) >= _STRAY * most[rail])
        for leaf, rails in carries.items()
    }


def _carried(votes: Mapping[int, set[str]]) -> tuple[int, ...]:
    """Return the rails of one leaf: the one with most nodes, and those that the same nodes have there too."""
    if not votes:
        return ()
    main = min(votes, key=lambda rail: (-len(votes[rail]), rail))
    also = [
        rail
        for rail, nodes in sorted(votes.items())
        if rail != main and 2 * len(nodes) >= len(votes[main]) and 2 * len(nodes & votes[main]) > len(nodes)
    ]
    return (main, *also)

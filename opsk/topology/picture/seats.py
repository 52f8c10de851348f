"""On which rail does each port of a node belong, and what do nodes of its kind usually have?

A port belongs on the rail of the leaf that it is on, unless a fault says that it is on the wrong one: then on the rail
where the other nodes have the port of that name.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from opsk.topology.hosts import device_slot, family_of
from opsk.topology.picture.marks import ON_WRONG_LEAF, SLOW, Marks
from opsk.topology.rails import Attachment, Rails

_USUAL = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Seats:
    """``by_node`` holds the ports of each node by the rail where they belong.

    ``misplaced`` and ``slow`` are the guids that faults name; ``families`` holds what is usual among hosts of one kind
    of name: the rails that half of them have, and the bandwidth of most ports.
    """

    by_node: Mapping[str, Mapping[int, list[Attachment]]]
    misplaced: frozenset[str]
    slow: frozenset[str]
    families: Mapping[str, tuple[frozenset[int], float]]
    best_bytes_per_s: float

    def usual_rails(self, node: str) -> frozenset[int]:
        """Return the rails that nodes of this kind have."""
        return self.families[family_of(node)][0]

    def usual_bytes_per_s(self, node: str) -> float:
        """Return the bandwidth of most ports of nodes of this kind."""
        return self.families[family_of(node)][1]


def seats_of(rails: Rails, marks: Marks) -> Seats:
    """Return where the ports of all compute nodes belong."""
    misplaced = frozenset(_named(rails, marks, ON_WRONG_LEAF))
    unit_of = {name: index for index, unit in enumerate(rails.units) for name in unit}
    votes = _votes(rails, misplaced, unit_of)
    seated = {name: _seated(ports, misplaced, unit_of.get(name), votes) for name, ports in rails.attachments.items()}
    families = _families(rails, seated)
    return Seats(
        by_node=seated,
        misplaced=misplaced,
        slow=frozenset(_named(rails, marks, SLOW)),
        families=families,
        best_bytes_per_s=_most_frequent(port for ports in rails.attachments.values() for port in ports),
    )


def _named(rails: Rails, marks: Marks, kinds: frozenset[str]) -> Iterator[str]:
    """Yield the guids of ports that a fault of these kinds concerns, by itself or by its cable."""
    for ports in rails.attachments.values():
        for port in ports:
            low, high = sorted((port.guid, port.leaf))
            found = (*marks.devices.get(port.guid, ()), *marks.cables.get((low, high), ()))
            if any(fault.kind in kinds for fault in found):
                yield port.guid


_Votes = Mapping[tuple[int | None, tuple[int, ...]], Counter[int]]


def _votes(rails: Rails, misplaced: frozenset[str], unit_of: Mapping[str, int]) -> _Votes:
    """Return for each unit, and for all together, on which rails the ports of each name are."""
    votes: defaultdict[tuple[int | None, tuple[int, ...]], Counter[int]] = defaultdict(Counter)
    if not misplaced:
        return votes
    for name, ports in rails.attachments.items():
        for port in ports:
            if port.rail is not None and port.guid not in misplaced:
                slot = device_slot(port.device)
                votes[unit_of.get(name), slot][port.rail] += 1
                votes[None, slot][port.rail] += 1
    return votes


def _seated(
    ports: tuple[Attachment, ...], misplaced: frozenset[str], unit: int | None, votes: _Votes
) -> dict[int, list[Attachment]]:
    """Return the ports of one node by rail; those on a leaf of no rail are left out unless they are misplaced."""
    seats: defaultdict[int, list[Attachment]] = defaultdict(list)
    for port in ports:
        rail = port.rail
        if port.guid in misplaced:
            slot = device_slot(port.device)
            voted = votes.get((unit, slot)) or votes.get((None, slot))
            rail = _winner(voted) if voted else rail
        if rail is not None:
            seats[rail].append(port)
    return dict(seats)


def _winner(votes: Counter[int]) -> int:
    return min(votes, key=lambda rail: (-votes[rail], rail))


def _families(
    rails: Rails, seated: Mapping[str, Mapping[int, list[Attachment]]]
) -> dict[str, tuple[frozenset[int], float]]:
    members: defaultdict[str, list[str]] = defaultdict(list)
    for name in rails.attachments:
        members[family_of(name)].append(name)
    families = {}
    for family, names in members.items():
        has = Counter(rail for name in names for rail in seated[name])
        usual = frozenset(rail for rail, count in has.items() if count >= _USUAL * len(names))
        families[family] = (usual, _most_frequent(port for name in names for port in rails.attachments[name]))
    return families


def _most_frequent(ports: Iterator[Attachment]) -> float:
    """Return the bandwidth that most ports have."""
    counts = Counter(port.bytes_per_s for port in ports if port.bytes_per_s)
    return max(counts, key=lambda rate: (counts[rate], rate), default=0.0)

"""Which HCA of one node answers to which HCA of another? Positions that do not go by device names alone.

``HCA-1,2,5,6`` and ``mlx5_0,1,4,5`` are both positions 0 to 3; a node that shows ``HCA-1,2,6`` only has positions 0, 1
and 3, since most nodes have the third one too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from opsk.topology.hosts import Host

Slots = tuple[tuple[int, ...], ...]


def positions(hosts: Sequence[Host]) -> dict[str, tuple[int, ...]]:
    """Return for each host the position of each of its ports, in port order."""
    patterns = Counter(_slots(host) for host in hosts if not host.twice)
    templates = {pattern: _template(pattern, patterns) for pattern in patterns}
    return {host.name: _positions(host, templates) for host in hosts}


def _slots(host: Host) -> Slots:
    return tuple(port.slot for port in host.ports)


def _template(pattern: Slots, patterns: Mapping[Slots, int]) -> Slots:
    """Return the pattern that ``pattern`` is a gappy case of: itself, or a larger one that is at least as common."""
    wanted = set(pattern)
    larger = [
        other
        for other, count in patterns.items()
        if len(other) > len(pattern) and count >= patterns[pattern] and wanted <= set(other)
    ]
    return max(larger, key=lambda other: (patterns[other], len(other), other), default=pattern)


def _positions(host: Host, templates: Mapping[Slots, Slots]) -> tuple[int, ...]:
    """Return the places of a host's ports in its template; ports with one name between them follow each other."""
    slots = _slots(host)
    template = templates.get(slots)
    if template is None:
        template = max(
            (known for known in templates if set(slots) <= set(known)),
            key=lambda known: (-len(known), known),
            default=tuple(sorted(set(slots))),
        )
    if len(set(template)) < len(template):
        return tuple(range(len(slots)))
    place = {slot: index for index, slot in enumerate(template)}
    return tuple(place[slot] for slot in slots)

"""Which HCA of one node answers to which HCA of another? Positions that do not go by device names alone.

``HCA-1,2,5,6`` and ``mlx5_0,1,4,5`` are both positions 0 to 3; a node that shows ``HCA-1,2,6`` only has positions 0, 1
and 3, since most nodes have the third one too. A unit without one leaf shows the same gap on all of its nodes: it is
seen against any whole node that names its devices in that style, else against counting without gaps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache

from opsk.topology.hosts import Host, family_of

Slots = tuple[tuple[int, ...], ...]
Pattern = tuple[str, Slots]
"""The naming style of a host's devices, and their places."""

_NEARLY = 0.75
"""A host with at least this share of the HCAs that most hosts have may be one of them that lacks some."""


def positions(hosts: Sequence[Host]) -> dict[str, tuple[int, ...]]:
    """Return for each host the position of each of its ports, in port order."""
    style = cache(_style)
    shapes = {host.name: (style(host.ports[0].device) if host.ports else "", _slots(host)) for host in hosts}
    sizes = Counter(len(host.ports) for host in hosts if not host.twice)
    usual = max(sizes, key=lambda size: (sizes[size], size), default=0)
    patterns = Counter(shapes[host.name] for host in hosts if not host.twice)
    templates = {pattern: _template(pattern, patterns, usual) for pattern in patterns}
    found = {shape: _positions(shape, templates) for shape in set(shapes.values())}
    return {name: found[shape] for name, shape in shapes.items()}


def _slots(host: Host) -> Slots:
    return tuple(port.slot for port in host.ports)


def _style(device: str) -> str:
    """Return what names of one style share; those of ``hosts.device_slot`` that compare with each other are one."""
    family = family_of(device)
    return "#" if family in ("HCA-#", "HCA#", "mlx#_#") else family


def _template(pattern: Pattern, patterns: Mapping[Pattern, int], usual: int) -> Slots:
    """Return the slots that those of ``pattern`` are a gappy case of: themselves, or more that are as common.

    Where they are nearly as many as most hosts have, the whole ones may be rare: a unit that names its devices in its
    own style and lacks a leaf has the gap on all of its nodes.
    """
    slots = max(
        (other for other in _larger(pattern, patterns) if patterns[other] >= patterns[pattern]),
        key=lambda other: (patterns[other], len(other[1]), other),
        default=pattern,
    )[1]
    if len(slots) >= usual or len(slots) < min(_NEARLY * usual, usual - 1):
        return slots
    whole = [other for other in _larger((pattern[0], slots), patterns) if len(other[1]) == usual]
    return max(whole, key=lambda other: (patterns[other], other))[1] if whole else _counted(slots, usual)


def _larger(pattern: Pattern, patterns: Mapping[Pattern, int]) -> list[Pattern]:
    style, slots = pattern
    wanted = set(slots)
    return [other for other in patterns if other[0] == style and len(other[1]) > len(slots) and wanted <= set(other[1])]


def _counted(slots: Slots, usual: int) -> Slots:
    """Return as many slots as most hosts have, counted from 0 or 1 on, where they hold ``slots``; else these."""
    for first in (0, 1):
        counted = tuple((*slots[0][:-1], number) for number in range(first, first + usual))
        if set(slots) < set(counted):
            return counted
    return slots


def _positions(shape: Pattern, templates: Mapping[Pattern, Slots]) -> tuple[int, ...]:
    """Return the places of a host's ports in its template; ports with one name between them follow each other."""
    style, slots = shape
    template = templates.get(shape)
    if template is None:
        template = max(
            (known for (other, _), known in templates.items() if other == style and set(slots) <= set(known)),
            key=lambda known: (-len(known), known),
            default=tuple(sorted(set(slots))),
        )
    if len(set(template)) < len(template):
        return tuple(range(len(slots)))
    place = {slot: index for index, slot in enumerate(template)}
    return tuple(place[slot] for slot in slots)

"""Finds compute nodes whose HCAs are exchanged between the compute fabric and another one, compared with similar nodes.

A node of eight compute HCAs often has two more for storage: ``mlx5_1`` belongs on a storage leaf, ``mlx5_0`` on a rail.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from opsk.fabric.hosts.hosts import Host
from opsk.fabric.hosts.ports import HostPort

_MIN_SIMILAR = 3
"""Fewer nodes with the same devices than this do not show where each device belongs."""
_SURE = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossed:
    """A node's ports on the wrong fabric: ``missed`` belong on the compute fabric, ``strayed`` do not."""

    missed: tuple[HostPort, ...]
    strayed: tuple[HostPort, ...]


def find_crossed(hosts: Sequence[Host], leaves: Collection[str]) -> dict[str, Crossed]:
    """Return the nodes whose HCAs are on ``leaves`` where nodes with the same devices have them elsewhere.

    Nodes with ports elsewhere are rare: nothing is compared where there are none.
    """
    partly = [host for host in hosts if not host.twice and any(port.switch not in leaves for port in host.ports)]
    if not partly:
        return {}
    relevant = {_slots(host) for host in partly}
    total: Counter[tuple[tuple[int, ...], ...]] = Counter()
    inside: defaultdict[tuple[tuple[int, ...], ...], Counter[int]] = defaultdict(Counter)
    similar: defaultdict[tuple[tuple[int, ...], ...], list[Host]] = defaultdict(list)
    for host in hosts:
        slots = _slots(host)
        if not host.twice and slots in relevant:
            total[slots] += 1
            inside[slots].update(index for index, port in enumerate(host.ports) if port.switch in leaves)
            similar[slots].append(host)
    crossed = {}
    for slots, members in similar.items():
        if total[slots] < _MIN_SIMILAR:
            continue
        # By place, not by slot: where a node mixes two styles of names, two of its devices may share a slot.
        belongs = [inside[slots][index] / total[slots] for index in range(len(slots))]
        for host in members:
            ports = list(zip(host.ports, belongs, strict=True))
            missed = tuple(port for port, share in ports if port.switch not in leaves and share >= _SURE)
            strayed = tuple(port for port, share in ports if port.switch in leaves and share <= 1 - _SURE)
            if missed or strayed:
                crossed[host.name] = Crossed(missed=missed, strayed=strayed)
    return crossed


def _slots(host: Host) -> tuple[tuple[int, ...], ...]:
    return tuple(port.slot for port in host.ports)

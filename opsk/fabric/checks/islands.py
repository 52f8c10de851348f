"""Finds the parts of a fabric without a cable to the rest; planes and storage fabrics do not count.

On a fabric without spines across rails, each rail is a part of its own by design and most nodes have an HCA in each.
A part with few of the nodes is cut off.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass

from opsk.fabric.cabling import Cabling
from opsk.fabric.fabric import Fault
from opsk.fabric.graph import find_components
from opsk.fabric.hosts.hosts import COMPUTE

_MAJORITY_SHARE = 0.5
_MAX_NAMED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Island:
    """A part that no cable joins to the rest: its switches, HCAs (no SHARP nodes), and the hosts these name."""

    switches: tuple[str, ...]
    hcas: tuple[str, ...]
    nodes: tuple[str, ...]


def find_islands(cabling: Cabling) -> tuple[Island, ...]:
    """Return the parts that are cut off, largest first."""
    fabric = cabling.fabric
    parts = find_components(fabric)
    compute = {host.name for host in cabling.compute}
    islands = []
    for part in parts[1:]:
        hcas = tuple(sorted(guid for guid in part & fabric.hcas.keys() if not fabric.hcas[guid].sharp))
        nodes = {node for guid in hcas if (node := fabric.hcas[guid].node) is not None}
        switches = tuple(sorted(part & fabric.switches.keys()))
        if (switches or hcas) and not _is_plane(cabling, nodes, compute):
            islands.append(Island(switches=switches, hcas=hcas, nodes=tuple(sorted(nodes))))
    return tuple(islands)


def _is_plane(cabling: Cabling, nodes: Set[str], compute: Set[str]) -> bool:
    """Return whether most compute nodes have an HCA in this part too, or it serves hosts of another sort only."""
    if compute and len(nodes & compute) > _MAJORITY_SHARE * len(compute):
        return True
    return len(nodes) > 1 and all(cabling.hosts[node].role != COMPUTE for node in nodes if node in cabling.hosts)


def check_islands(cabling: Cabling, islands: tuple[Island, ...]) -> Iterator[Fault]:
    """Yield one finding for each part that is cut off, and for each switch or HCA without any cable."""
    for island in islands:
        if len(island.switches) + len(island.hcas) == 1:
            guid = (*island.switches, *island.hcas)[0]
            yield Fault(
                kind="no_cable",
                where=_name(cabling, guid),
                evidence="no port of it is cabled to another switch or host",
                cost="a spine less for all leaves" if island.switches else "its node has one HCA less",
                switches=island.switches,
                devices=island.hcas,
                nodes=island.nodes,
            )
            continue
        yield Fault(
            kind="isolated_part",
            where=_where(cabling, island),
            evidence=f"{_count(len(island.switches), 'switch', 'switches')} and "
            f"{_count(len(island.hcas), 'adapter', 'adapters')}"
            + (f" ({_join_names(island.nodes)})" if island.nodes else "")
            + ": no cable to the rest",
            cost="a job cannot span it and the rest",
            nodes=island.nodes,
            switches=island.switches,
            devices=island.hcas,
        )


def _where(cabling: Cabling, island: Island) -> str:
    names = [_name(cabling, guid) for guid in island.switches or island.hcas]
    return _join_names(names)


def _join_names(names: tuple[str, ...] | list[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(names[:_MAX_NAMED]) + more


def _count(number: int, singular: str, plural: str) -> str:
    return f"{number} {singular if number == 1 else plural}"


def _name(cabling: Cabling, guid: str) -> str:
    if guid in cabling.fabric.switches:
        return cabling.name(guid)
    return cabling.fabric.hcas[guid].description or guid

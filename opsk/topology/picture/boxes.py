"""What is known of a switch in the tree of tiers, or of several in one box: hosts, links, oversubscription, faults?"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from opsk.topology.fabric import Fabric, Fault
from opsk.topology.graph import hca_links, isl_cables
from opsk.topology.picture.load import Loads, heaviest
from opsk.topology.picture.marks import Marks
from opsk.topology.rails import Rails

UNNAMED = "unnamed"
"""Stands with the roles of hosts for HCAs whose host is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """One switch, or several that are cabled alike.

    ``hosts`` counts hosts by role (HCAs where unnamed); ``ratio`` is the worst oversubscription of its leaves,
    ``host_load`` the heaviest link to an HCA, ``inside`` counts cables among its own switches, loops included;
    ``down_cables`` lead to switches of lower tiers.
    """

    switches: tuple[str, ...]
    tier: int | None
    hosts: Mapping[str, int] = field(default_factory=dict)
    hca_links: int = 0
    up_cables: int = 0
    down_cables: int = 0
    ratio: float | None = None
    unit: int | None = None
    off_tier: bool = False
    inside: int = 0
    host_load: float | None = None
    faults: tuple[Fault, ...] = ()


class Boxes:
    """All that boxes are filled with, by switch."""

    def __init__(
        self,
        fabric: Fabric,
        rails: Rails,
        loads: Loads | None,
        marks: Marks,
        neighbours: Mapping[str, Counter[str]],
        tier: Mapping[str, int],
    ) -> None:
        self._rails = rails
        self._marks = marks
        self._neighbours = neighbours
        self._tier = tier
        self._loops = Counter(cable.a_guid for cable in isl_cables(fabric) if cable.a_guid == cable.b_guid)
        self._host_load = _host_load(fabric, loads)
        self._hosts: defaultdict[str, defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        for link in hca_links(fabric):
            node = fabric.hcas[link.hca].node
            role = UNNAMED if node is None else rails.host_roles.get(node, UNNAMED)
            self._hosts[link.switch][role].add(link.hca if node is None else node)

    def box(self, group: Sequence[str], inside: int) -> Box:
        """Return the box of one group of switches, with ``inside`` cables among them."""
        leaves = [self._rails.leaves[guid] for guid in group if guid in self._rails.leaves]
        units = {leaf.unit for leaf in leaves}
        off_tier = any(leaf.off_tier for leaf in leaves)
        ratios = [leaf.down_bytes_per_s / leaf.up_bytes_per_s for leaf in leaves if leaf.up_bytes_per_s]
        return Box(
            switches=tuple(group),
            tier=self._tier.get(group[0]),
            hosts=self._hosts_of(group),
            hca_links=sum(leaf.hca_links for leaf in leaves),
            up_cables=sum(self._cables(guid, way=1) for guid in group),
            down_cables=sum(self._cables(guid, way=-1) for guid in group),
            ratio=None if off_tier else max(ratios, default=None),
            unit=next(iter(units)) if len(units) == 1 else None,
            off_tier=off_tier,
            inside=inside + sum(self._loops[guid] for guid in group),
            host_load=max((self._host_load[guid] for guid in group if guid in self._host_load), default=None),
            faults=tuple(fault for guid in group for fault in self._marks.switches.get(guid, ())),
        )

    def _hosts_of(self, group: Sequence[str]) -> dict[str, int]:
        names: defaultdict[str, set[str]] = defaultdict(set)
        for guid in group:
            for role, members in self._hosts.get(guid, {}).items():
                names[role] |= members
        return {role: len(members) for role, members in sorted(names.items())}

    def _cables(self, guid: str, *, way: int) -> int:
        """Return how many cables lead to higher tiers (``way`` 1) or lower ones (-1)."""
        own = self._tier.get(guid)
        if own is None:
            return 0
        return sum(
            count for other, count in self._neighbours[guid].items() if way * (self._tier.get(other, own) - own) > 0
        )


def _host_load(fabric: Fabric, loads: Loads | None) -> dict[str, float]:
    """Return the heaviest link between each leaf and an HCA."""
    found: dict[str, float] = {}
    for pair in loads or ():
        for hca, leaf in (pair, pair[::-1]):
            if hca in fabric.hcas and leaf in fabric.switches:
                load = heaviest(loads, [pair])
                if load is not None:
                    found[leaf] = max(load, found.get(leaf, 0.0))
    return found

"""Computes the graph properties of a fabric: leaves, tiers, connected components and leaf-to-leaf distances.

Definitions: a *leaf* is a switch with at least one HCA that is not a SHARP Aggregation Node; *tier* 0 is a leaf, else
1 + the least tier of its neighbours; an inter-switch cable counts once, and so does a loop from a switch to itself; a
*component* is a connected part, all channel adapters and routers included.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import rustworkx as rx

from opsk.fabric.fabric import Cable, Fabric


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricSummary:
    """The fabric in numbers; ``components`` holds sizes, largest first, ``tiers`` is how many tiers there are."""

    switches: int
    hcas: int
    nodes: int
    leaves: int
    tiers: int
    isl_cables: int
    components: tuple[int, ...]
    switches_per_tier: Mapping[int, int]
    sharp_nodes: int
    routers: int
    self_loops: int
    isl_between_same_tier: int
    switches_without_tier: int
    hcas_without_host: int
    hca_link_speeds: Mapping[str, int] = field(default_factory=dict)
    isl_speeds: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HcaLink:
    """One cabled port of an HCA: the leaf it is cabled to, and the cable."""

    hca: str
    hca_port: int
    switch: str
    switch_port: int
    cable: Cable


def find_hca_links(fabric: Fabric) -> list[HcaLink]:
    """Return the cables between a switch and an HCA that is no SHARP node, in the order of the fabric's cables."""
    links = []
    hcas, switches = fabric.hcas, fabric.switches
    for cable in fabric.cables:
        if cable.a_guid in hcas:
            if cable.b_guid in switches and not hcas[cable.a_guid].sharp:
                links.append(HcaLink(cable.a_guid, cable.a_port, cable.b_guid, cable.b_port, cable))
        elif cable.b_guid in hcas and cable.a_guid in switches and not hcas[cable.b_guid].sharp:
            links.append(HcaLink(cable.b_guid, cable.b_port, cable.a_guid, cable.a_port, cable))
    return links


def find_isl_cables(fabric: Fabric) -> list[Cable]:
    """Return the cables between two switches, loops included."""
    switches = fabric.switches
    return [cable for cable in fabric.cables if cable.a_guid in switches and cable.b_guid in switches]


def build_switch_neighbours(fabric: Fabric, isls: Iterable[Cable] | None = None) -> dict[str, Counter[str]]:
    """Return for each switch how many cables it has to each other switch; loops left out.

    Parameters
    ----------
    isls
        The cables between switches, where they are known already.
    """
    neighbours: dict[str, Counter[str]] = {guid: Counter() for guid in fabric.switches}
    for cable in find_isl_cables(fabric) if isls is None else isls:
        if cable.a_guid != cable.b_guid:
            neighbours[cable.a_guid][cable.b_guid] += 1
            neighbours[cable.b_guid][cable.a_guid] += 1
    return neighbours


def compute_tiers(neighbours: Mapping[str, Counter[str]], tier_0: Collection[str]) -> dict[str, int]:
    """Return the tier of each switch that has a path to one of ``tier_0``: the cables to the nearest of them."""
    tier = dict.fromkeys(sorted(tier_0), 0)
    queue = deque(tier)
    while queue:
        guid = queue.popleft()
        for other in neighbours[guid]:
            if other not in tier:
                tier[other] = tier[guid] + 1
                queue.append(other)
    return tier


def find_components(fabric: Fabric) -> list[set[str]]:
    """Return the connected parts as sets of guids, largest first, ties by least guid."""
    graph: rx.PyGraph[str, None] = rx.PyGraph(multigraph=True)
    guids = [*fabric.switches, *fabric.hcas, *fabric.routers]
    index = dict(zip(guids, graph.add_nodes_from(guids), strict=True))
    graph.add_edges_from_no_data([(index[cable.a_guid], index[cable.b_guid]) for cable in fabric.cables])
    parts = [{guids[position] for position in part} for part in rx.connected_components(graph)]
    return sorted(parts, key=lambda part: (-len(part), min(part)))


class LeafDistances(Mapping[tuple[str, str], int]):
    """Switch-to-switch cables between each ordered pair of connected leaves; 0 for the same leaf.

    Computed on demand: leaves with the same neighbours have the same distances to everything but themselves,
    so one search serves a whole pod.
    """

    def __init__(self, neighbours: Mapping[str, Counter[str]], leaf_guids: Collection[str]) -> None:
        self._neighbours = neighbours
        self._leaves = sorted(leaf_guids)
        self._searched: dict[frozenset[str], tuple[str, dict[str, int]]] = {}

    def __getitem__(self, pair: tuple[str, str]) -> int:
        start, end = pair
        if start == end and start in self._neighbours:
            return 0
        origin, distance = self._from(start)
        return distance[start if end == origin else end]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for start in self._leaves:
            distance = self._from(start)[1]
            yield from ((start, end) for end in self._leaves if end in distance)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _from(self, start: str) -> tuple[str, dict[str, int]]:
        key = frozenset(self._neighbours[start]) or frozenset((start,))
        if key not in self._searched:
            self._searched[key] = (start, compute_tiers(self._neighbours, (start,)))
        return self._searched[key]


def summarise_fabric(fabric: Fabric) -> FabricSummary:
    """Return the fabric in numbers, to the letter of the definitions above."""
    links, isls = find_hca_links(fabric), find_isl_cables(fabric)
    leaf_guids = {link.switch for link in links}
    tier = compute_tiers(build_switch_neighbours(fabric), leaf_guids)
    hcas = [hca for hca in fabric.hcas.values() if not hca.sharp]
    per_tier = Counter(tier.values())
    return FabricSummary(
        switches=len(fabric.switches),
        hcas=len(hcas),
        nodes=len({hca.node for hca in hcas if hca.node is not None}),
        leaves=len(leaf_guids),
        tiers=len(per_tier),
        isl_cables=len(isls),
        components=tuple(len(part) for part in find_components(fabric)),
        switches_per_tier=dict(sorted(per_tier.items())),
        sharp_nodes=len(fabric.hcas) - len(hcas),
        routers=len(fabric.routers),
        self_loops=sum(cable.a_guid == cable.b_guid for cable in isls),
        isl_between_same_tier=sum(tier.get(cable.a_guid) == tier.get(cable.b_guid) for cable in isls),
        switches_without_tier=len(fabric.switches) - len(tier),
        hcas_without_host=sum(hca.node is None for hca in hcas),
        hca_link_speeds=_speeds([link.cable for link in links]),
        isl_speeds=_speeds(isls),
    )


def _speeds(cables: list[Cable]) -> dict[str, int]:
    return dict(sorted(Counter(f"{cable.width}x{cable.speed}" for cable in cables).items()))

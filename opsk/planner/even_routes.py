"""Which cables does traffic take when it spreads over all shortest paths?

At every switch the traffic for a leaf is split over all cables that lead one step nearer to it: evenly, as equal-cost
multipath does and static InfiniBand routing on average, whatever comes after; or adaptively. Adaptive routing shuns
what is congested: a switch with fewer cables onward than most that are as far from the leaf gets so much less. Left
out: that it also answers to other jobs' traffic.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from opsk.planner.bulk_routes import BulkRouter
from opsk.planner.routes import NO_LINKS, Path, Shares
from opsk.planner.seats import Index
from opsk.planner.switch_graph import SwitchGraph
from opsk.topology.leaf import Attachment

_UNSEEN = 1 << 20


class EvenRoutes:
    """All shortest paths of a switch graph.

    ``leaves`` are those of the whole fabric: where no two are cabled together, traffic never passes through one.
    With ``adaptive`` traffic gives way to thin switches.
    """

    by_port = False

    def __init__(self, graph: SwitchGraph, leaves: Collection[str], *, adaptive: bool = False) -> None:
        self._adaptive = adaptive
        self._graph = graph
        self._leaves = {graph.index[guid] for guid in leaves if guid in graph.index}
        ends = np.zeros(len(graph.guids), dtype=np.bool_)
        ends[list(self._leaves)] = True
        self._transit = ~ends
        if (ends[graph.one] & ends[graph.other]).any():
            self._transit[:] = True
        self._start, self._far, self._link = _adjacency(graph)
        self._cables = graph.cables[self._link // 2].astype(np.float64)
        self._passing = self._transit[self._far]
        self._distances: dict[bytes, tuple[npt.NDArray[np.int32], Shares]] = {}
        self._paths: dict[tuple[int, int], Path | None] = {}

    @property
    def rates(self) -> Shares:
        """Return the rate of one cable of each link [bytes/s]."""
        return self._graph.link_rates()

    def ends(self, link: int) -> tuple[str, str]:
        """Return the guids of the switches that a link goes from and to."""
        return self._graph.ends(link)

    def path(self, leaf: str, target: Attachment) -> Path | None:
        """Return the part of a message that each cable carries."""
        return self.between(leaf, target.leaf)

    def between(self, leaf: str, other: str) -> Path | None:
        """Return the part of a message from leaf to leaf that each cable carries."""
        one, two = self._graph.index.get(leaf), self._graph.index.get(other)
        if one is None or two is None:
            return None
        if one == two:
            return NO_LINKS
        if (one, two) not in self._paths:
            self._paths[one, two] = self._spread(one, two)
        return self._paths[one, two]

    def bulk(self, leaves: Sequence[str], flows: Shares) -> Shares | None:
        """Return the seconds of each link for bytes from leaf to leaf, shape (kinds, leaves, leaves)."""
        index = self._graph.index
        if any(guid not in index for guid in leaves):
            return None
        ends = [index[guid] for guid in leaves]
        return BulkRouter(self._graph, ends, self._leaves, adaptive=self._adaptive).seconds(flows)

    def _edges(self, switches: Index) -> tuple[Index, Index]:
        """Return the edges that leave ``switches``, and which of these each leaves."""
        count = self._start[switches + 1] - self._start[switches]
        owner = np.repeat(np.arange(switches.size), count)
        offset = np.arange(owner.size) - np.repeat(np.cumsum(count) - count, count)
        return self._start[switches][owner] + offset, owner

    def _distance(self, target: int) -> tuple[npt.NDArray[np.int32], Shares]:
        """Return the cables to ``target`` from each switch that traffic passes through, and its weight.

        Kept for all leaves with the same cables upwards: they are as far from everything but themselves.
        """
        first, _ = self._edges(np.array([target]))
        key = np.array([target]) if self._transit[target] else np.concatenate([self._far[first], self._cables[first]])
        found = self._distances.get(key.tobytes())
        if found is None:
            found = self._distances[key.tobytes()] = self._searched(target)
        return found

    def _searched(self, target: int) -> tuple[npt.NDArray[np.int32], Shares]:
        """Search outwards from ``target``, whose own distance stays unseen."""
        distance = np.full(len(self._graph.guids), _UNSEEN, dtype=np.int32)
        weight = np.ones(distance.size)
        here, steps = np.array([target]), 0
        while here.size:
            steps += 1
            edges, _ = self._edges(here)
            reached = np.zeros(distance.size, dtype=np.bool_)
            reached[self._far[edges[self._passing[edges]]]] = True
            reached[target] = False
            here = np.flatnonzero(reached & (distance == _UNSEEN))
            distance[here] = steps
            if self._adaptive and here.size:
                weight[here] = self._thin(here, distance, weight, target, steps - 1)
        return distance, weight

    def _steps_to(self, target: int, edges: Index, distance: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Return how far the switch at the far end of each edge is from the target."""
        far = self._far[edges]
        found: npt.NDArray[np.int32] = np.where(far == target, np.int32(0), distance[far])
        return found

    def _thin(self, here: Index, distance: npt.NDArray[np.int32], weight: Shares, target: int, steps: int) -> Shares:
        """Return the weights of switches that are one step further: 1, less where fewer cables go on than usual."""
        edges, owner = self._edges(here)
        onward = self._steps_to(target, edges, distance) == steps
        edges, owner = edges[onward], owner[onward]
        ways = np.bincount(owner, weights=self._cables[edges] * weight[self._far[edges]], minlength=here.size)
        found: Shares = np.minimum(ways / np.median(ways), 1.0)
        return found

    def _spread(self, source: int, target: int) -> Path | None:
        """Follow a message of size 1 down the distances."""
        distance, weight = self._distance(target)
        here: Index = np.array([source])
        mass: Shares = np.ones(1)
        links: list[Index] = []
        shares: list[Shares] = []
        edges, owner = self._edges(here)
        near = int(self._steps_to(target, edges, distance).min(initial=_UNSEEN))
        while here.size:
            if near >= _UNSEEN:
                return None
            nearer = self._steps_to(target, edges, distance) == near
            edges, owner = edges[nearer], owner[nearer]
            reach = weight[self._far[edges]]
            ways = np.bincount(owner, weights=self._cables[edges] * reach, minlength=here.size)
            each = (mass / ways)[owner] * reach
            links.append(self._link[edges])
            shares.append(each)
            here, place = np.unique(self._far[edges], return_inverse=True)
            mass = np.bincount(place, weights=each * self._cables[edges]).astype(np.float64)
            if near == 0:
                break
            edges, owner = self._edges(here)
            near -= 1
        return Path(links=np.concatenate(links), shares=np.concatenate(shares))


def _adjacency(graph: SwitchGraph) -> tuple[Index, Index, Index]:
    """Return where the edges of each switch start, the far switch of each edge, and its link."""
    near = np.concatenate([graph.one, graph.other])
    far = np.concatenate([graph.other, graph.one])
    link = np.concatenate([2 * np.arange(graph.one.size), 2 * np.arange(graph.one.size) + 1])
    order = np.argsort(near, kind="stable")
    start = np.searchsorted(near[order], np.arange(len(graph.guids) + 1))
    return start, far[order], link[order]

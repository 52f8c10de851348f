"""Which cables does traffic take when it spreads over all shortest paths?

At every switch the traffic for a leaf is split over all cables that lead one step nearer to it: evenly, as equal-cost
multipath does and static InfiniBand routing on average, whatever comes after; or adaptively. Adaptive routing shuns
what is congested: a switch with fewer cables onward than most that are as far from the leaf gets so much less. Left
out: that it also answers to other jobs' traffic.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from opsk.planner.bulk_routes import BulkRouter
from opsk.planner.routes import NO_LINKS, Path, Shares
from opsk.planner.seats import Index
from opsk.planner.switch_graph import SwitchGraph
from opsk.topology.leaf import Attachment

_UNSEEN = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pattern:
    """A path between two leaves of given kinds: which of their own cables, and which links in between.

    ``up`` are places among the edges of the source, ``down`` among those of the target.
    """

    up: Index
    between: Index
    down: Index
    shares: Shares


class EvenRoutes:
    """All shortest paths of a switch graph.

    ``leaves`` are those of the whole fabric: where no two are cabled together, traffic never passes through one.
    With ``adaptive`` traffic gives way to thin switches.
    """

    by_port = False

    def __init__(self, graph: SwitchGraph, leaves: Collection[str], *, adaptive: bool = False) -> None:
        self._adaptive = adaptive
        self._graph = graph
        self._rates = graph.link_rates()
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
        self._keys: dict[int, bytes] = {}
        self._patterns: dict[tuple[bytes, bytes], _Pattern | None] = {}

    @property
    def rates(self) -> Shares:
        """Return the rate of one cable of each link [bytes/s]."""
        return self._rates

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
            self._paths[one, two] = self._found(one, two)
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
        key = self._key(target)
        found = self._distances.get(key)
        if found is None:
            found = self._distances[key] = self._searched(target)
        return found

    def _key(self, switch: int) -> bytes:
        """Return the same for all leaves with the same cables upwards, and for no other switch."""
        key = self._keys.get(switch)
        if key is None:
            own = slice(self._start[switch], self._start[switch + 1])
            up = np.array([switch]) if self._transit[switch] else np.stack([self._far[own], self._cables[own]])
            key = self._keys[switch] = up.tobytes()
        return key

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

    def _found(self, source: int, target: int) -> Path | None:
        """Return the path, by the pattern that all pairs of leaves with these cables upwards share."""
        if self._transit[source] or self._transit[target]:
            hops = self._spread(source, target)
            return _joined(hops) if hops else None
        key = (self._key(source), self._key(target))
        if key not in self._patterns:
            hops = self._spread(source, target)
            self._patterns[key] = self._pattern(hops, source, target) if hops else None
        pattern = self._patterns[key]
        if pattern is None:
            return None
        up, down = self._link[self._start[source] + pattern.up], self._link[self._start[target] + pattern.down] ^ 1
        return Path(links=np.concatenate([up, pattern.between, down]), shares=pattern.shares)

    def _pattern(self, hops: Sequence[Path], source: int, target: int) -> _Pattern:
        """Return what of a path is the same for all leaves like these two."""
        own = self._link[self._start[target] : self._start[target + 1]] ^ 1
        order = np.argsort(own)
        first = self._link[self._start[source] : self._start[source + 1]]
        first_order = np.argsort(first)
        return _Pattern(
            up=first_order[np.searchsorted(first, hops[0].links, sorter=first_order)],
            between=np.concatenate([np.empty(0, dtype=np.int64), *(hop.links for hop in hops[1:-1])]),
            down=order[np.searchsorted(own, hops[-1].links, sorter=order)],
            shares=np.concatenate([hop.shares for hop in hops]),
        )

    def _spread(self, source: int, target: int) -> list[Path] | None:
        """Follow a message of size 1 down the distances, step by step."""
        distance, weight = self._distance(target)
        here: Index = np.array([source])
        mass: Shares = np.ones(1)
        hops: list[Path] = []
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
            hops.append(Path(links=self._link[edges], shares=each))
            here, place = np.unique(self._far[edges], return_inverse=True)
            mass = np.bincount(place, weights=each * self._cables[edges]).astype(np.float64)
            if near == 0:
                break
            edges, owner = self._edges(here)
            near -= 1
        return hops


def _joined(hops: Sequence[Path]) -> Path:
    """Return the steps of a path as one."""
    return Path(links=np.concatenate([hop.links for hop in hops]), shares=np.concatenate([hop.shares for hop in hops]))


def _adjacency(graph: SwitchGraph) -> tuple[Index, Index, Index]:
    """Return where the edges of each switch start, the far switch of each edge, and its link."""
    # Sorted by the far end too, so that leaves with the same cables upwards have them in the same order.
    near = np.concatenate([graph.one, graph.other])
    far = np.concatenate([graph.other, graph.one])
    link = np.concatenate([2 * np.arange(graph.one.size), 2 * np.arange(graph.one.size) + 1])
    order = np.lexsort((far, near))
    start = np.searchsorted(near[order], np.arange(len(graph.guids) + 1))
    return start, far[order], link[order]

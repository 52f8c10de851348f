"""How loaded are the cables between switches, when traffic takes all shortest paths evenly?

At every switch the traffic for a leaf is split evenly over all cables that lead one step nearer to it: equal-cost
multipath, which adaptive routing approaches and static InfiniBand routing reaches on average. Forwarding tables are not
looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from opsk.planner.seats import Index
from opsk.topology.fabric import Fabric
from opsk.topology.graph import isl_cables
from opsk.topology.rails import Rails

Matrix = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.float64]
_MAX_HOPS = 16
_LEAST_BATCH = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchGraph:
    """The switches of a fabric and the cables between them, in a form for `busiest_cable`.

    Entries of ``one``, ``other`` and ``cables`` stand for a pair of switches and the number of cables between them;
    ``bytes_per_s`` is the slowest of these. Build it once a fabric: it serves every placement.
    """

    guids: tuple[str, ...]
    one: Index
    other: Index
    cables: Index
    bytes_per_s: npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Busiest:
    """The cable with the longest transfer: ``load_s`` [s], and the guids of the switches from and to; or none."""

    load_s: float
    cable: tuple[str, str] | None = None


def switch_graph(fabric: Fabric) -> SwitchGraph:
    """Return the switches and cables of a fabric; loops left out."""
    guids = tuple(fabric.switches)
    index = {guid: number for number, guid in enumerate(guids)}
    count: Counter[tuple[int, int]] = Counter()
    rate: dict[tuple[int, int], float] = {}
    for cable in isl_cables(fabric):
        a, b = sorted((index[cable.a_guid], index[cable.b_guid]))
        if a != b:
            count[a, b] += 1
            rate[a, b] = min(cable.bytes_per_s, rate.get((a, b), cable.bytes_per_s))
    ends = np.array(list(count), dtype=np.int64).reshape(-1, 2)
    return SwitchGraph(
        guids=guids,
        one=ends[:, 0],
        other=ends[:, 1],
        cables=np.array(list(count.values()), dtype=np.int64),
        bytes_per_s=np.array([rate[pair] for pair in count]),
    )


def busiest_cable(graph: SwitchGraph, leaves: Sequence[str], flows: Bytes, all_leaves: Collection[str]) -> Busiest:
    """Return the busiest cable between switches under ``flows``, bytes from leaf to leaf in the order of ``leaves``.

    ``all_leaves`` are those of the whole fabric: where no two are cabled together, traffic never passes through one.
    Leaves without a path between them make the load infinite.
    """
    between = np.array(flows, dtype=np.float64)
    np.fill_diagonal(between, 0.0)
    if not between.any():
        return Busiest(load_s=0.0)
    index = {guid: number for number, guid in enumerate(graph.guids)}
    if any(guid not in index for guid in leaves):
        return Busiest(load_s=float("inf"))
    return _Router(
        graph, [index[guid] for guid in leaves], {index[guid] for guid in all_leaves if guid in index}
    ).route(between)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hop:
    """One step towards the targets of a batch: from ``here`` to ``there``, over ``cables`` (here, there).

    ``at_distance`` tells which switches of ``here`` are this many steps from which target, ``nearer`` which of
    ``there`` one step less, and ``ways`` over how many cables.
    """

    here: Index
    at_distance: npt.NDArray[np.bool_]
    ways: Matrix
    there: Index
    nearer: npt.NDArray[np.bool_]
    cables: Matrix


class _Router:
    """The part of a switch graph on which a job's traffic can run, as matrices.

    Only switches that can be passed through are searched on: spines and cores, and leaves too where any two are cabled
    together. Targets are routed in batches of leaves with like neighbours, so that a batch touches one pod.
    """

    def __init__(self, graph: SwitchGraph, leaves: Sequence[int], all_leaves: Collection[int]) -> None:
        ends = np.zeros(len(graph.guids), dtype=np.bool_)
        ends[list(all_leaves)] = True
        ends[list(leaves)] = True
        transit = ~ends
        if (ends[graph.one] & ends[graph.other]).any():
            transit[:] = True
        kept = transit.copy()
        kept[list(leaves)] = True
        self._guids = np.flatnonzero(kept)
        place = np.full(len(graph.guids), -1, dtype=np.int64)
        place[self._guids] = np.arange(self._guids.size)
        used = kept[graph.one] & kept[graph.other]
        self._one, self._other = place[graph.one[used]], place[graph.other[used]]
        self._rate = graph.bytes_per_s[used]
        self._cables: Matrix = np.zeros((self._guids.size, self._guids.size), dtype=np.float32)
        self._cables[self._one, self._other] = self._cables[self._other, self._one] = graph.cables[used]
        self._neighbours = [np.flatnonzero(row) for row in self._cables]
        self._transit = transit[self._guids]
        self._leaves = place[list(leaves)]
        self._names = graph.guids
        self._load: Matrix = np.zeros_like(self._cables)

    def route(self, flows: Bytes) -> Busiest:
        """Lay the flows on the cables."""
        # Bytes are scaled into single precision's range; ratios of loads are good to six digits.
        scale = float(flows.max())
        for batch in self._batches(np.flatnonzero(flows.any(axis=0))):
            wanted = flows[:, batch] / scale
            sources = np.flatnonzero(wanted.any(axis=1))
            if not self._route_batch(self._leaves[batch], self._leaves[sources], wanted[sources].astype(np.float32)):
                return Busiest(load_s=float("inf"))
        return self._busiest(scale)

    def _batches(self, targets: Index) -> list[list[int]]:
        """Return the targets, those with the same neighbours together, small batches joined."""
        alike: dict[bytes, list[int]] = {}
        for target in targets.tolist():
            alike.setdefault(self._neighbours[self._leaves[target]].tobytes(), []).append(target)
        batches: list[list[int]] = []
        for _, members in sorted(alike.items()):
            if batches and len(batches[-1]) < _LEAST_BATCH:
                batches[-1] += members
            else:
                batches.append(members)
        return batches

    def _route_batch(self, targets: Index, sources: Index, wanted: Matrix) -> bool:
        """Add the load of the bytes in ``wanted`` (sources, targets); tell whether all could be routed."""
        searched = self._transit.copy()
        searched[sources] = True
        hops = self._distances(targets, sources, wanted > 0, searched)
        waiting: Matrix = np.zeros((self._guids.size, targets.size), dtype=np.float32)
        waiting[sources] = wanted
        for hop in reversed(hops):
            per_cable = np.where(hop.at_distance, waiting[hop.here], 0) / np.maximum(hop.ways, 1)
            busy = np.flatnonzero(per_cable.any(axis=1))
            per_cable, cables = per_cable[busy], hop.cables[busy]
            reach = hop.nearer.astype(np.float32)
            self._load[np.ix_(hop.here[busy], hop.there)] += (per_cable @ reach.T) * (cables > 0)
            waiting[hop.there] += reach * (cables.T @ per_cable)
        return bool(hops)

    def _distances(
        self, targets: Index, sources: Index, wanted: npt.NDArray[np.bool_], searched: npt.NDArray[np.bool_]
    ) -> list[_Hop]:
        """Return the steps by which the targets are reached, nearest first; none when some source is cut off."""
        nearer = np.eye(targets.size, dtype=np.bool_)
        seen = np.zeros((self._guids.size, targets.size), dtype=np.bool_)
        seen[targets] = nearer
        hops: list[_Hop] = []
        there = targets
        while not seen[sources][wanted].all():
            if len(hops) == _MAX_HOPS or not there.size:
                return []
            around = np.zeros_like(searched)
            around[np.concatenate([self._neighbours[guid] for guid in there])] = True
            here = np.flatnonzero(around & searched)
            cables = self._cables[np.ix_(here, there)]
            ways = cables @ nearer.astype(np.float32)
            fresh = (ways > 0) & ~seen[here]
            seen[here] |= fresh
            hops.append(_Hop(here=here, at_distance=fresh, ways=ways, there=there, nearer=nearer, cables=cables))
            passing = fresh.any(axis=1) & self._transit[here]
            there, nearer = here[passing], fresh[passing]
        return hops

    def _busiest(self, scale: float) -> Busiest:
        """Return the cable that takes longest; loads are those of one cable of each ordered pair."""
        one, other = self._one, self._other
        forth, back = self._load[one, other] / self._rate, self._load[other, one] / self._rate
        worst = int(np.argmax(np.maximum(forth, back)))
        ends = (self._names[self._guids[one[worst]]], self._names[self._guids[other[worst]]])
        slowest = float(max(forth[worst], back[worst])) * scale
        return Busiest(load_s=slowest, cable=ends if forth[worst] >= back[worst] else ends[::-1])


def busiest_uplinks(rails: Rails, leaves: Sequence[str], flows: Bytes, hca_bytes_per_s: float) -> Busiest:
    """Return the busiest uplinks of a leaf when only the leaves are known, not what is above them.

    What enters or leaves a leaf is spread evenly over its uplinks: equal to `busiest_cable` on two tiers where every
    leaf has as many cables to every spine. Where the leaf does not tell the speed of its uplinks they are taken to be
    as fast as ``hca_bytes_per_s``.
    """
    between = np.array(flows, dtype=np.float64)
    np.fill_diagonal(between, 0.0)
    most = Busiest(load_s=0.0)
    for number, guid in enumerate(leaves):
        leaf = rails.leaves.get(guid)
        size = max(between[number].sum(), between[:, number].sum())
        if size:
            rate = leaf.up_bytes_per_s or leaf.uplinks * hca_bytes_per_s if leaf else 0.0
            load_s = float(size / rate) if rate else float("inf")
            if load_s > most.load_s:
                most = Busiest(load_s=load_s)
    return most

"""How is the traffic of thousands of leaf pairs laid on all shortest paths at once? As products of matrices."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from opsk.planner.routes import Shares
from opsk.planner.seats import Index
from opsk.planner.switch_graph import SwitchGraph

Matrix = npt.NDArray[np.float32]
_MAX_HOPS = 16
_LEAST_BATCH = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hop:
    """One step towards the targets of a batch: from ``here`` to ``there``, over ``cables`` (here, there).

    ``at_distance`` tells which switches of ``here`` are this many steps from which target, ``nearer`` which of
    ``there`` one step less, as a weight (see `opsk.planner.even_routes`), and ``ways`` over how many weighted cables.
    """

    here: Index
    at_distance: npt.NDArray[np.bool_]
    ways: Matrix
    there: Index
    nearer: Matrix
    cables: Matrix


class BulkRouter:
    """The part of a switch graph on which a job's traffic can run, as matrices.

    Only switches that can be passed through are searched on: spines and cores, and leaves too where any two are cabled
    together. Targets are routed in batches of leaves with like neighbours, so that a batch touches one pod.
    """

    def __init__(
        self, graph: SwitchGraph, leaves: Sequence[int], all_leaves: Collection[int], *, adaptive: bool = False
    ) -> None:
        self._adaptive = adaptive
        ends = np.zeros(len(graph.guids), dtype=np.bool_)
        ends[list(all_leaves)] = True
        ends[list(leaves)] = True
        transit = ~ends
        if (ends[graph.one] & ends[graph.other]).any():
            transit[:] = True
        kept = transit.copy()
        kept[list(leaves)] = True
        guids = np.flatnonzero(kept)
        place = np.full(len(graph.guids), -1, dtype=np.int64)
        place[guids] = np.arange(guids.size)
        self._graph = graph
        self._used = np.flatnonzero(kept[graph.one] & kept[graph.other])
        self._one, self._other = place[graph.one[self._used]], place[graph.other[self._used]]
        self._cables: Matrix = np.zeros((guids.size, guids.size), dtype=np.float32)
        self._cables[self._one, self._other] = self._cables[self._other, self._one] = graph.cables[self._used]
        self._neighbours = [np.flatnonzero(row) for row in self._cables]
        self._transit = transit[guids]
        self._leaves = place[list(leaves)]

    def seconds(self, flows: Shares) -> Shares | None:
        """Return how long one cable of each link is busy, shape (kinds, links), for bytes (kinds, leaves, leaves) [s].

        ``None`` where some leaves have no path.
        """
        # Bytes are scaled into single precision's range; ratios of loads are good to six digits.
        scale = float(flows.max(initial=0.0)) or 1.0
        load: Matrix = np.zeros((flows.shape[0], *self._cables.shape), dtype=np.float32)
        every: npt.NDArray[np.bool_] = np.asarray(flows.any(axis=0))
        for batch in self._batches(np.flatnonzero(every.any(axis=0))):
            wanted = flows[:, :, batch] / scale
            sources = np.flatnonzero(every[:, batch].any(axis=1))
            bytes_there = wanted[:, sources].astype(np.float32)
            if not self._route_batch(self._leaves[batch], self._leaves[sources], bytes_there, load):
                return None
        found = np.zeros((flows.shape[0], self._graph.links))
        rate = self._graph.bytes_per_s[self._used] / scale
        found[:, 2 * self._used] = load[:, self._one, self._other] / rate
        found[:, 2 * self._used + 1] = load[:, self._other, self._one] / rate
        return found

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

    def _route_batch(self, targets: Index, sources: Index, wanted: Matrix, load: Matrix) -> bool:
        """Add the load of the bytes in ``wanted`` (kinds, sources, targets); tell whether all could be routed."""
        searched = self._transit.copy()
        searched[sources] = True
        hops = self._distances(targets, sources, np.asarray((wanted > 0).any(axis=0)), searched)
        for kind, sent in enumerate(wanted):
            if sent.any():
                self._send(hops, targets, sources, sent, load[kind])
        return bool(hops)

    def _send(self, hops: Sequence[_Hop], targets: Index, sources: Index, sent: Matrix, load: Matrix) -> None:
        """Add the load of one kind of traffic."""
        waiting: Matrix = np.zeros((self._transit.size, targets.size), dtype=np.float32)
        waiting[sources] = sent
        for hop in reversed(hops):
            per_cable = np.where(hop.at_distance, waiting[hop.here], 0) / np.where(hop.ways > 0, hop.ways, 1)
            busy = np.flatnonzero(per_cable.any(axis=1))
            per_cable, cables = per_cable[busy], hop.cables[busy]
            load[np.ix_(hop.here[busy], hop.there)] += (per_cable @ hop.nearer.T) * (cables > 0)
            waiting[hop.there] += hop.nearer * (cables.T @ per_cable)

    def _distances(
        self, targets: Index, sources: Index, wanted: npt.NDArray[np.bool_], searched: npt.NDArray[np.bool_]
    ) -> list[_Hop]:
        """Return the steps by which the targets are reached, nearest first; none when some source is cut off."""
        nearer: Matrix = np.eye(targets.size, dtype=np.float32)
        seen = np.zeros((self._transit.size, targets.size), dtype=np.bool_)
        seen[targets] = nearer > 0
        hops: list[_Hop] = []
        there = targets
        while not seen[sources][wanted].all():
            if len(hops) == _MAX_HOPS or not there.size:
                return []
            around = np.zeros_like(searched)
            around[np.concatenate([self._neighbours[guid] for guid in there])] = True
            here = np.flatnonzero(around & searched)
            cables = self._cables[np.ix_(here, there)]
            ways = cables @ nearer
            fresh = (ways > 0) & ~seen[here]
            seen[here] |= fresh
            hops.append(_Hop(here=here, at_distance=fresh, ways=ways, there=there, nearer=nearer, cables=cables))
            passing = fresh.any(axis=1) & self._transit[here]
            there, nearer = here[passing], self._weights(fresh[passing], ways[passing])
        return hops

    def _weights(self, reached: npt.NDArray[np.bool_], ways: Matrix) -> Matrix:
        """Return the weight of each switch on the way to each target: 1, or less for a thin one when adaptive."""
        if not self._adaptive or not reached.any():
            return reached.astype(np.float32)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            usual = np.nanmedian(np.where(reached, ways, np.nan), axis=0)
        thin: Matrix = np.where(reached, np.minimum(ways / usual, 1.0), 0.0).astype(np.float32)
        return thin

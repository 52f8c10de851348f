"""Builds the routes of a fabric: over all shortest paths of its topology dump, or those of its forwarding tables.

Over shortest paths, the traffic for a leaf is split at every switch over all cables that lead one hop nearer to it. The
even split models equal-cost multipath, and the average of static InfiniBand routing; it ignores what comes after the
next hop. The adaptive split models congestion avoidance: a switch with fewer onward cables than the median of the
switches at the same distance from the leaf gets proportionally less. Reactions to the traffic of other jobs are not
modelled.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from opsk.fabric.fabric import Fabric
from opsk.fabric.forwarding import ForwardingTables, NextHops, far_end, resolve_next_hops
from opsk.fabric.leaves.leaf import Attachment
from opsk.fabric.rails import Rails
from opsk.planning.routing.hca_ports import Index
from opsk.planning.routing.routes import NO_LINKS, Path, Routes, Shares, SwitchGraph, UplinkRoutes, switch_graph

Matrix = npt.NDArray[np.float32]
_MAX_HOPS = 16
_MIN_BATCH = 64
_UNSEEN = 1 << 20
_SECOND_PORT = re.compile(r":(\d{1,3})$")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hop:
    """One step towards the targets of a batch: from ``here`` to ``there``, over ``cables`` (here, there).

    ``at_distance`` marks the switches of ``here`` that are this many steps from each target, ``nearer`` has the weight
    of those of ``there`` that are one step nearer, and ``onward`` the weighted number of cables to them.
    """

    here: Index
    at_distance: npt.NDArray[np.bool_]
    onward: Matrix
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
        is_selected = transit.copy()
        is_selected[list(leaves)] = True
        guids = np.flatnonzero(is_selected)
        place = np.full(len(graph.guids), -1, dtype=np.int64)
        place[guids] = np.arange(guids.size)
        self._graph = graph
        self._used = np.flatnonzero(is_selected[graph.one] & is_selected[graph.other])
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
        has_flow: npt.NDArray[np.bool_] = np.asarray(flows.any(axis=0))
        for batch in self._batches(np.flatnonzero(has_flow.any(axis=0))):
            scaled = flows[:, :, batch] / scale
            sources = np.flatnonzero(has_flow[:, batch].any(axis=1))
            bytes_there = scaled[:, sources].astype(np.float32)
            if not self._route_batch(self._leaves[batch], self._leaves[sources], bytes_there, load):
                return None
        busy_s = np.zeros((flows.shape[0], self._graph.links))
        rate = self._graph.bytes_per_s[self._used] / scale
        busy_s[:, 2 * self._used] = load[:, self._one, self._other] / rate
        busy_s[:, 2 * self._used + 1] = load[:, self._other, self._one] / rate
        return busy_s

    def _batches(self, targets: Index) -> list[list[int]]:
        """Return the targets in batches: those with the same neighbours together, small batches joined."""
        by_neighbours: dict[bytes, list[int]] = {}
        for target in targets.tolist():
            by_neighbours.setdefault(self._neighbours[self._leaves[target]].tobytes(), []).append(target)
        batches: list[list[int]] = []
        for _, members in sorted(by_neighbours.items()):
            if batches and len(batches[-1]) < _MIN_BATCH:
                batches[-1] += members
            else:
                batches.append(members)
        return batches

    def _route_batch(self, targets: Index, sources: Index, flows: Matrix, load: Matrix) -> bool:
        """Add the load of the bytes in ``flows`` (kinds, sources, targets); return whether all have a path."""
        searched = self._transit.copy()
        searched[sources] = True
        hops = self._distances(targets, sources, np.asarray((flows > 0).any(axis=0)), searched)
        for kind, sent in enumerate(flows):
            if sent.any():
                self._send(hops, targets, sources, sent, load[kind])
        return bool(hops)

    def _send(self, hops: Sequence[_Hop], targets: Index, sources: Index, sent: Matrix, load: Matrix) -> None:
        """Add the load of one kind of traffic."""
        waiting: Matrix = np.zeros((self._transit.size, targets.size), dtype=np.float32)
        waiting[sources] = sent
        for hop in reversed(hops):
            per_cable = np.where(hop.at_distance, waiting[hop.here], 0) / np.where(hop.onward > 0, hop.onward, 1)
            busy = np.flatnonzero(per_cable.any(axis=1))
            per_cable, cables = per_cable[busy], hop.cables[busy]
            load[np.ix_(hop.here[busy], hop.there)] += (per_cable @ hop.nearer.T) * (cables > 0)
            waiting[hop.there] += hop.nearer * (cables.T @ per_cable)

    def _distances(
        self, targets: Index, sources: Index, required: npt.NDArray[np.bool_], searched: npt.NDArray[np.bool_]
    ) -> list[_Hop]:
        """Return the steps by which the targets are reached, nearest first; none when some source is cut off."""
        nearer: Matrix = np.eye(targets.size, dtype=np.float32)
        seen = np.zeros((self._transit.size, targets.size), dtype=np.bool_)
        seen[targets] = nearer > 0
        hops: list[_Hop] = []
        there = targets
        while not seen[sources][required].all():
            if len(hops) == _MAX_HOPS or not there.size:
                return []
            around = np.zeros_like(searched)
            around[np.concatenate([self._neighbours[guid] for guid in there])] = True
            here = np.flatnonzero(around & searched)
            cables = self._cables[np.ix_(here, there)]
            onward = cables @ nearer
            fresh = (onward > 0) & ~seen[here]
            seen[here] |= fresh
            hops.append(_Hop(here=here, at_distance=fresh, onward=onward, there=there, nearer=nearer, cables=cables))
            passing = fresh.any(axis=1) & self._transit[here]
            there, nearer = here[passing], self._weights(fresh[passing], onward[passing])
        return hops

    def _weights(self, reached: npt.NDArray[np.bool_], onward: Matrix) -> Matrix:
        """Return the weight of each switch on the way to each target: 1, or less for a thin one when adaptive."""
        if not self._adaptive or not reached.any():
            return reached.astype(np.float32)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            usual = np.nanmedian(np.where(reached, onward, np.nan), axis=0)
        thin: Matrix = np.where(reached, np.minimum(onward / usual, 1.0), 0.0).astype(np.float32)
        return thin


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pattern:
    """A path between two leaves of given kinds: the indices of their own cables, and the links in between.

    ``up`` are places among the edges of the source, ``down`` among those of the target.
    """

    up: Index
    between: Index
    down: Index
    shares: Shares


class EvenRoutes:
    """All shortest paths of a switch graph.

    ``leaves`` are those of the whole fabric: where no two are cabled together, traffic never passes through one.
    With ``adaptive`` traffic avoids switches with few onward cables.
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
        self._start, self._far, self._link = _build_adjacency(graph)
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
        source, destination = self._graph.index.get(leaf), self._graph.index.get(other)
        if source is None or destination is None:
            return None
        if source == destination:
            return NO_LINKS
        if (source, destination) not in self._paths:
            self._paths[source, destination] = self._find_path(source, destination)
        return self._paths[source, destination]

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

        Cached for all leaves with the same cables upwards: they are at the same distance from every other switch.
        """
        key = self._uplink_key(target)
        result = self._distances.get(key)
        if result is None:
            result = self._distances[key] = self._search(target)
        return result

    def _uplink_key(self, switch: int) -> bytes:
        """Return a key that is equal for leaves with the same cables upwards, and for no other switch."""
        key = self._keys.get(switch)
        if key is None:
            uplinks = slice(self._start[switch], self._start[switch + 1])
            up = np.array([switch]) if self._transit[switch] else np.stack([self._far[uplinks], self._cables[uplinks]])
            key = self._keys[switch] = up.tobytes()
        return key

    def _search(self, target: int) -> tuple[npt.NDArray[np.int32], Shares]:
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
                weight[here] = self._compute_weights(here, distance, weight, target, steps - 1)
        return distance, weight

    def _steps_to(self, target: int, edges: Index, distance: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Return how far the switch at the far end of each edge is from the target."""
        far = self._far[edges]
        steps: npt.NDArray[np.int32] = np.where(far == target, np.int32(0), distance[far])
        return steps

    def _compute_weights(
        self, here: Index, distance: npt.NDArray[np.int32], weight: Shares, target: int, steps: int
    ) -> Shares:
        """Return the weights of switches that are one step further: 1, less where fewer cables go on than usual."""
        edges, owner = self._edges(here)
        onward = self._steps_to(target, edges, distance) == steps
        edges, owner = edges[onward], owner[onward]
        onward_cables = np.bincount(owner, weights=self._cables[edges] * weight[self._far[edges]], minlength=here.size)
        weights: Shares = np.minimum(onward_cables / np.median(onward_cables), 1.0)
        return weights

    def _find_path(self, source: int, target: int) -> Path | None:
        """Return the path, by the pattern that all pairs of leaves with these cables upwards share."""
        if self._transit[source] or self._transit[target]:
            hops = self._spread_message(source, target)
            return _join(hops) if hops else None
        key = (self._uplink_key(source), self._uplink_key(target))
        if key not in self._patterns:
            hops = self._spread_message(source, target)
            self._patterns[key] = self._build_pattern(hops, source, target) if hops else None
        pattern = self._patterns[key]
        if pattern is None:
            return None
        up, down = self._link[self._start[source] + pattern.up], self._link[self._start[target] + pattern.down] ^ 1
        return Path(links=np.concatenate([up, pattern.between, down]), shares=pattern.shares)

    def _build_pattern(self, hops: Sequence[Path], source: int, target: int) -> _Pattern:
        """Return the part of a path that is the same for all leaves of the same two kinds."""
        target_links = self._link[self._start[target] : self._start[target + 1]] ^ 1
        order = np.argsort(target_links)
        first = self._link[self._start[source] : self._start[source + 1]]
        first_order = np.argsort(first)
        return _Pattern(
            up=first_order[np.searchsorted(first, hops[0].links, sorter=first_order)],
            between=np.concatenate([np.empty(0, dtype=np.int64), *(hop.links for hop in hops[1:-1])]),
            down=order[np.searchsorted(target_links, hops[-1].links, sorter=order)],
            shares=np.concatenate([hop.shares for hop in hops]),
        )

    def _spread_message(self, source: int, target: int) -> list[Path] | None:
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
            onward = np.bincount(owner, weights=self._cables[edges] * reach, minlength=here.size)
            mass_per_cable = (mass / onward)[owner] * reach
            hops.append(Path(links=self._link[edges], shares=mass_per_cable))
            here, place = np.unique(self._far[edges], return_inverse=True)
            mass = np.bincount(place, weights=mass_per_cable * self._cables[edges]).astype(np.float64)
            if near == 0:
                break
            edges, owner = self._edges(here)
            near -= 1
        return hops


def _join(hops: Sequence[Path]) -> Path:
    """Return the hops of a path as one path."""
    return Path(links=np.concatenate([hop.links for hop in hops]), shares=np.concatenate([hop.shares for hop in hops]))


def _build_adjacency(graph: SwitchGraph) -> tuple[Index, Index, Index]:
    """Return where the edges of each switch start, the far switch of each edge, and its link."""
    # Sorted by the far end too, so that leaves with the same cables upwards have them in the same order.
    near = np.concatenate([graph.one, graph.other])
    far = np.concatenate([graph.other, graph.one])
    link = np.concatenate([2 * np.arange(graph.one.size), 2 * np.arange(graph.one.size) + 1])
    order = np.lexsort((far, near))
    start = np.searchsorted(near[order], np.arange(len(graph.guids) + 1))
    return start, far[order], link[order]


class TableRoutes:
    """Static routes; where the tables do not lead to an HCA, traffic is assumed to spread evenly, and is recorded.

    Parameters
    ----------
    graph
        Switches with parallel cables as separate links: tables choose one of them.
    hops
        The tables, resolved on the same fabric.
    otherwise
        Routes on the same graph for paths that are not in the tables.
    """

    by_port = True

    def __init__(self, graph: SwitchGraph, hops: NextHops, otherwise: EvenRoutes) -> None:
        self._graph = graph
        self._rates = graph.link_rates()
        self._hops = hops
        self._otherwise = otherwise
        self._paths: dict[tuple[str, str, str], Path | None] = {}
        self.guessed: set[tuple[str, str]] = set()
        """Leaf and HCA guid of the paths that are not in the tables."""

    @property
    def rates(self) -> Shares:
        """Return the rate of each cable [bytes/s]."""
        return self._rates

    def ends(self, link: int) -> tuple[str, str]:
        """Return the guids of the switches that a cable goes from and to."""
        return self._graph.ends(link)

    def path(self, leaf: str, target: Attachment) -> Path | None:
        """Return the cables on which the tables send a message."""
        key = (leaf, target.guid, target.device)
        if key not in self._paths:
            route = self._walk(leaf, target)
            if route is None:
                self.guessed.add((leaf, target.guid))
                route = self._otherwise.path(leaf, target)
            self._paths[key] = route
        return self._paths[key]

    def _walk(self, leaf: str, target: Attachment) -> Path | None:
        """Follow the tables from switch to switch."""
        hops = self._hops
        second_port = _SECOND_PORT.search(target.device)
        lid = hops.lid(target.guid, int(second_port[1]) if second_port else None)
        links: list[int] = []
        switch = leaf
        while switch != target.leaf:
            out = hops.tables.out_port(switch, lid) if lid is not None else None
            link = self._graph.link_of_port.get((switch, out)) if out else None
            if link is None or out is None or len(links) > len(hops.switches):
                return None
            links.append(link)
            switch, _ = far_end(hops.cable_at[switch, out], (switch, out))
        return Path(links=np.array(links, dtype=np.int64), shares=np.ones(len(links))) if links else NO_LINKS


def build_routes(
    fabric: Fabric | None, rails: Rails, tables: ForwardingTables | None = None, *, adaptive: bool = False
) -> Routes:
    """Return the routes of a fabric: by its forwarding tables, else all shortest paths, else up and down its leaves.

    With ``adaptive`` traffic on shortest paths avoids switches with few cables. Spines that carry a few
    hosts are passed through; leaves are not, unless two of them are cabled together.
    """
    if fabric is None or not rails.leaves:
        return UplinkRoutes(rails)
    on_tier = [guid for guid, leaf in rails.leaves.items() if not leaf.off_tier]
    if tables is None:
        return EvenRoutes(switch_graph(fabric), on_tier, adaptive=adaptive)
    graph = switch_graph(fabric, apart=True)
    return TableRoutes(graph, resolve_next_hops(tables, fabric), EvenRoutes(graph, on_tier))

"""Computes how long each link is busy with the messages of one step, by axis, and which link limits each axis.

A link is one direction of a cable between switches (or of several cables that share their traffic), or one direction of
an HCA port. The busiest link of an axis is a lower bound for the time of that axis, since its ranks wait for each
other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from opsk.costmodel.table import FloatColumn
from opsk.planning.routing.fabric_routes import EvenRoutes
from opsk.planning.routing.hca_ports import NOWHERE, Index, Ports
from opsk.planning.routing.routes import NO_LINKS, Path, Routes
from opsk.planning.routing.traffic import AXES, Flows

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_BULK_PAIRS = 2000
"""From so many leaf pairs on, the traffic of one placement is routed in bulk rather than pair by pair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSeconds:
    """Seconds that links are busy in one step, by axis, one row a placement.

    Parameters
    ----------
    links
        The links between switches that are used at all, as `Routes` numbers them.
    switches
        Axis to seconds of each of ``links``, shape (rows, links).
    ports
        Axis to seconds of each port, sending in the first half, receiving in the second, shape (rows, 2 x ports).
    cut
        Axis to whether some message has no path, shape (rows,).
    """

    links: Index
    switches: Mapping[str, FloatColumn]
    ports: Mapping[str, FloatColumn]
    cut: Mapping[str, npt.NDArray[np.bool_]]

    def axis_s(self) -> FloatColumn:
        """Return how long the busiest link of each axis is busy, shape (rows, axes) [s]; infinite without a path."""
        columns = []
        for axis in AXES:
            ports = self.ports[axis].max(axis=1, initial=0.0)
            switches = self.switches[axis].max(axis=1, initial=0.0)
            columns.append(np.where(self.cut[axis], np.inf, np.maximum(ports, switches)))
        return np.stack(columns, axis=1)

    def busiest_switch_link(self) -> tuple[FloatColumn, Index]:
        """Return the busiest link between switches by all axes together: its seconds and number, shape (rows,)."""
        total = np.sum([self.switches[axis] for axis in AXES], axis=0)
        rows = total.shape[0]
        if not self.links.size:
            load, link = np.zeros(rows), np.full(rows, NOWHERE, dtype=np.int64)
        else:
            worst = total.argmax(axis=1)
            load = total[np.arange(rows), worst]
            link = np.where(load > 0, self.links[worst], NOWHERE)
        cut = np.any([self.cut[axis] for axis in AXES], axis=0)
        return np.where(cut, np.inf, load), np.where(cut, NOWHERE, link)


def port_rates(ports: Ports) -> FloatColumn:
    """Return the rate of each port [bytes/s]; a port of unknown rate is as fast as the fastest."""
    known = ports.bytes_per_s
    return np.where(known > 0, known, known.max(initial=0.0) or np.inf)


def link_seconds(flows: Mapping[str, Flows], rows: int, ports: Ports, routes: Routes) -> LinkSeconds:
    """Route the messages of every placement on the links."""
    rate = port_rates(ports)
    count = rate.size
    port_s: dict[str, FloatColumn] = {}
    for axis, flow in flows.items():
        sent = np.bincount(flow.row * count + flow.source, weights=flow.size_bytes, minlength=rows * count)
        received = np.bincount(flow.row * count + flow.target, weights=flow.size_bytes, minlength=rows * count)
        port_s[axis] = np.hstack([sent.reshape(rows, count) / rate, received.reshape(rows, count) / rate])
        port_s[axis][:, [ports.nowhere, count + ports.nowhere]] = 0.0
    crossing = {axis: _select_crossing(flow, ports) for axis, flow in flows.items()}
    keys = {axis: _number_routes(flow, ports, routes) for axis, flow in crossing.items()}
    pairs = np.unique(np.concatenate(list(keys.values())))
    if rows == 1 and pairs.size > _BULK_PAIRS and isinstance(routes, EvenRoutes):
        links, switches, cut = _route_in_bulk(crossing, ports, routes)
    else:
        links, switches, cut = _route_by_pair(crossing, keys, pairs, rows, ports, routes)
    return LinkSeconds(links=links, switches=switches, ports=port_s, cut=cut)


_LinkTimes = tuple[Index, dict[str, FloatColumn], dict[str, npt.NDArray[np.bool_]]]


def _select_crossing(flow: Flows, ports: Ports) -> Flows:
    """Return the messages from one known leaf to another."""
    source, target = ports.leaf[flow.source], ports.leaf[flow.target]
    is_crossing = (source != target) & (source >= 0) & (target >= 0) & (flow.size_bytes > 0)
    return Flows(
        row=flow.row[is_crossing],
        source=flow.source[is_crossing],
        target=flow.target[is_crossing],
        size_bytes=flow.size_bytes[is_crossing],
    )


def _number_routes(flow: Flows, ports: Ports, routes: Routes) -> Index:
    """Return a number for the route of each message: from leaf to leaf, or from leaf to HCA."""
    ends = flow.target if routes.by_port else ports.leaf[flow.target]
    keys: Index = ports.leaf[flow.source] * len(ports.hcas) + ends
    return keys


def _route_by_pair(
    crossing: Mapping[str, Flows],
    keys: Mapping[str, Index],
    pairs: Index,
    rows: int,
    ports: Ports,
    routes: Routes,
) -> _LinkTimes:
    """Look up the path of each pair, and sum the loads."""
    from scipy.sparse import csr_matrix  # loads 170 modules: only where ranks are placed

    paths = _find_paths(pairs, ports, routes)
    no_path = np.array([path is None for path in paths], dtype=np.bool_)
    sent: dict[str, csr_matrix] = {}
    cut: dict[str, npt.NDArray[np.bool_]] = {}
    for axis, flow in crossing.items():
        pair = np.searchsorted(pairs, keys[axis])
        cut[axis] = np.bincount(flow.row[no_path[pair]], minlength=rows) > 0
        if pair.size:
            sent[axis] = csr_matrix((flow.size_bytes, (flow.row, pair)), shape=(rows, pairs.size))
    known = [path or NO_LINKS for path in paths]
    links, busy = _sum_one_row(sent, known, routes) if rows == 1 else _sum_all_rows(sent, known, routes)
    return links, {axis: busy.get(axis, np.zeros((rows, links.size))) for axis in crossing}, cut


def _find_paths(pairs: Index, ports: Ports, routes: Routes) -> list[Path | None]:
    """Return the path of each pair."""
    first_on_leaf = dict(zip(reversed(ports.leaf[:-1].tolist()), reversed(ports.hcas[:-1]), strict=True))
    paths = []
    for key in pairs.tolist():
        leaf, end = divmod(key, len(ports.hcas))
        target = ports.hcas[end] if routes.by_port else first_on_leaf[end]
        paths.append(routes.path(ports.leaves[leaf], target) if target is not None else None)
    return paths


def _sum_one_row(
    sent: Mapping[str, csr_matrix], paths: Sequence[Path], routes: Routes
) -> tuple[Index, dict[str, FloatColumn]]:
    """Sum the traffic of one placement by axis: equal to `_sum_all_rows`, in less than half the time."""
    rates = routes.rates
    is_used = np.zeros(rates.size, dtype=np.bool_)
    busy: dict[str, FloatColumn] = {}
    for axis, row in sent.items():
        link, share, lengths = _concatenate_paths([paths[pair] for pair in row.indices.tolist()])
        seconds = share / rates[link] * np.repeat(row.data, lengths)
        busy[axis] = np.bincount(link, weights=seconds, minlength=rates.size).astype(np.float64)
        is_used[link] = True
    links = np.flatnonzero(is_used)
    return links, {axis: seconds[links].reshape(1, -1) for axis, seconds in busy.items()}


def _sum_all_rows(
    sent: Mapping[str, csr_matrix], paths: Sequence[Path], routes: Routes
) -> tuple[Index, dict[str, FloatColumn]]:
    """Sum the traffic of several placements: products of matrices of placements, pairs and links."""
    from scipy.sparse import csr_matrix

    link, share, lengths = _concatenate_paths(paths)
    rates = routes.rates
    is_used = np.zeros(rates.size, dtype=np.bool_)
    is_used[link] = True
    links, place = np.flatnonzero(is_used), np.cumsum(is_used) - 1
    starts = np.concatenate([[0], np.cumsum(lengths)])
    seconds = csr_matrix((share / rates[link], place[link], starts), shape=(len(paths), links.size))
    return links, {axis: np.asarray((rows @ seconds).toarray(), dtype=np.float64) for axis, rows in sent.items()}


def _concatenate_paths(paths: Sequence[Path]) -> tuple[Index, FloatColumn, Index]:
    """Return links and shares of some paths one after the other, and how many links each has."""
    return (
        np.concatenate([np.empty(0, dtype=np.int64), *(path.links for path in paths)]),
        np.concatenate([np.empty(0), *(path.shares for path in paths)]),
        np.array([path.links.size for path in paths], dtype=np.int64),
    )


def _route_in_bulk(crossing: Mapping[str, Flows], ports: Ports, routes: EvenRoutes) -> _LinkTimes:
    """Route all leaf pairs of one placement at once."""
    count = len(ports.leaves)
    busy = [axis for axis, flow in crossing.items() if flow.size_bytes.size]
    between = np.zeros((len(busy), count, count))
    for number, axis in enumerate(busy):
        flow = crossing[axis]
        pair = ports.leaf[flow.source] * count + ports.leaf[flow.target]
        between[number].ravel()[:] = np.bincount(pair, weights=flow.size_bytes, minlength=count * count)
    seconds = routes.bulk(ports.leaves, between)
    if seconds is None:
        nothing = {axis: np.zeros((1, 0)) for axis in crossing}
        return np.empty(0, dtype=np.int64), nothing, {axis: np.array([axis in busy]) for axis in crossing}
    links = np.flatnonzero(seconds.any(axis=0))
    busy_s = {axis: np.zeros((1, links.size)) for axis in crossing}
    busy_s |= {axis: seconds[[number]][:, links] for number, axis in enumerate(busy)}
    return links, busy_s, {axis: np.zeros(1, dtype=np.bool_) for axis in crossing}


def busiest_of_axis(loads: LinkSeconds, axis: str, row: int, ports: Ports, routes: Routes) -> Sequence[str]:
    """Return the guids of the ends of an axis's busiest link: two switches, or an HCA and its leaf for a port."""
    port_s, switch_s = loads.ports[axis][row], loads.switches[axis][row]
    if switch_s.max(initial=0.0) > port_s.max(initial=0.0):
        return routes.ends(int(loads.links[switch_s.argmax()]))
    if not port_s.any():
        return ()
    sends, port = divmod(int(port_s.argmax()), ports.bytes_per_s.size)
    hca = ports.hcas[port]
    ends = (hca.guid, hca.leaf) if hca is not None else ()
    return ends if sends == 0 else ends[::-1]

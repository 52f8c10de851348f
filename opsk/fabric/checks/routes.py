"""Checks that the forwarding tables lead from every leaf to every HCA, and reports dead ends and loops."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from opsk.fabric.fabric import Fabric, Fault
from opsk.fabric.forwarding import NO_PATH, NextHops, far_end
from opsk.fabric.graph import find_components, find_hca_links

MAX_HOPS = 64
"""Switches on a path at most, as an InfiniBand packet's hop count (IBA 13.4.4); more is a circle."""
_CELLS = 1 << 22
"""Switches times destinations that are followed at once: 50 MB."""
_MAX_SHOWN = 4
_PORTS = 256

_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteReport:
    """The result of following the tables.

    ``switches`` have a table; ``destinations`` are HCA ports with a LID; ``unreachable`` and ``loops`` count the pairs
    of a leaf and such a port of the same part of the fabric where packets get lost, or run in a circle.
    """

    switches: int
    destinations: int
    unreachable: int
    loops: int
    faults: tuple[Fault, ...] = ()


def check_routes(hops: NextHops, fabric: Fabric) -> RouteReport:
    """Follow the tables from every leaf to every HCA port that is cabled to a switch and has a LID."""
    leaves = sorted({link.switch for link in find_hca_links(fabric)})
    destinations = [
        (end, lid, far_end(hops.cable_at[end], end))
        for end, lid in sorted(hops.lids.items(), key=lambda item: item[1])
        if end[0] in fabric.hcas and end in hops.cable_at and far_end(hops.cable_at[end], end)[0] in fabric.switches
    ]
    walk = _Walk(hops, fabric)
    part_of = _number_parts(fabric)
    lost: Counter[tuple[str, int]] = Counter()
    circles: defaultdict[str, list[str]] = defaultdict(list)
    unreachable = loops = 0
    starts = np.array([walk.index[leaf] for leaf in leaves], dtype=np.int64)
    parts = np.array([part_of[leaf] for leaf in leaves], dtype=np.int64)
    step = max(1, _CELLS // max(1, len(walk.switches)))
    for first in range(0, len(destinations), step):
        chunk = destinations[first : first + step]
        ends, following = walk.follow([lid for _, lid, _ in chunk], chunk)
        mine = parts[:, None] == np.array([part_of.get(end[0], -1) for end, _, _ in chunk], dtype=np.int64)
        arrived = ends[starts] == walk.delivered
        bad = mine & ~arrived
        circling = bad & (ends[starts] < len(walk.switches))
        loops += int(circling.sum())
        unreachable += int(bad.sum()) - int(circling.sum())
        for row, column in zip(*np.nonzero(circling), strict=True):
            name = f"{fabric.hcas[chunk[column][0][0]].description} (LID {chunk[column][1]})"
            if len(circles) < MAX_HOPS or name in circles:
                circles[name].append(leaves[row])
        for column in np.unique(np.nonzero(bad & ~circling)[1]):
            for row in np.unique(walk.last(following[:, column], starts[(bad & ~circling)[:, column]])):
                lost[walk.switches[row], walk.out_port(row, chunk[column][1])] += 1
    return RouteReport(
        switches=len(hops.tables.rows),
        destinations=len(destinations),
        unreachable=unreachable,
        loops=loops,
        faults=(*_check_tables(hops, fabric), *_dead_end_faults(lost, hops, fabric), *_loop_faults(circles, fabric)),
    )


class _Walk:
    """All tables as numbers: switches by index, then one index for "delivered" and one for "lost"."""

    def __init__(self, hops: NextHops, fabric: Fabric) -> None:
        self.switches = sorted(fabric.switches)
        self.index = {guid: position for position, guid in enumerate(self.switches)}
        self.delivered, self.lost = len(self.switches), len(self.switches) + 1
        table = hops.tables.out_ports
        self._rows = np.array([hops.tables.rows.get(guid, len(table)) for guid in self.switches], dtype=np.int64)
        self._table = np.vstack([table, np.full((1, table.shape[1]), NO_PATH, dtype=np.uint8)])
        self._beyond = np.full((len(self.switches), _PORTS), self.lost, dtype=np.int64)
        for (guid, port), cable in hops.cable_at.items():
            far = far_end(cable, (guid, port))[0]
            if guid in self.index and far in self.index and port < NO_PATH:
                self._beyond[self.index[guid], port] = self.index[far]

    def out_port(self, switch: int, lid: int) -> int:
        """Return the output port in the table of a switch for a LID."""
        return int(self._table[self._rows[switch], lid]) if lid < self._table.shape[1] else NO_PATH

    def follow(
        self, lids: Sequence[int], chunk: Sequence[tuple[tuple[str, int], int, tuple[str, int]]]
    ) -> tuple[_Ints, _Ints]:
        """Return where packets for each LID end that start at each switch, and the switch after each."""
        count = len(self.switches)
        wide = np.array([lid if lid < self._table.shape[1] else 0 for lid in lids], dtype=np.int64)
        out = self._table[self._rows[:, None], wide[None, :]]
        out[:, np.array(lids) >= self._table.shape[1]] = NO_PATH
        following = np.full((count + 2, len(lids)), self.lost, dtype=np.int64)
        following[:count] = self._beyond[np.arange(count)[:, None], out]
        following[self.delivered] = self.delivered
        for column, (_, _, (switch, port)) in enumerate(chunk):
            if switch in self.index and out[self.index[switch], column] == port:
                following[self.index[switch], column] = self.delivered
        ends = following
        columns = np.arange(len(lids))[None, :]
        for _ in range(MAX_HOPS.bit_length()):
            ends = ends[ends, columns]
        return ends, following

    def last(self, following: _Ints, starts: _Ints) -> _Ints:
        """Return the switches where packets from ``starts`` get lost."""
        current = starts
        for _ in range(MAX_HOPS):
            beyond = following[current]
            current = np.where(beyond == self.lost, current, beyond)
            if (following[current] == self.lost).all():
                break
        return current


def _number_parts(fabric: Fabric) -> dict[str, int]:
    return {guid: index for index, part in enumerate(find_components(fabric)) for guid in part}


def _check_tables(hops: NextHops, fabric: Fabric) -> Iterator[Fault]:
    absent = sorted(guid for guid in fabric.switches if guid not in hops.tables.rows)
    if absent:
        names = ", ".join(_name(fabric, guid) for guid in absent[:_MAX_SHOWN])
        yield Fault(
            kind="no_forwarding_table",
            where=names + (f" and {len(absent) - _MAX_SHOWN} more" if len(absent) > _MAX_SHOWN else ""),
            evidence=f"{len(absent)} of {len(fabric.switches)} switches have no table in {hops.tables.source}",
            cost="routes through them are not known",
            switches=tuple(absent),
        )
    strange = sorted(hops.tables.rows.keys() - fabric.switches.keys())
    if strange:
        yield Fault(
            kind="table_of_no_switch",
            where=", ".join(strange[:_MAX_SHOWN]),
            evidence=f"{len(strange)} tables are of switches that the fabric dump does not have",
            cost="the two dumps may not be of one time, or of one subnet",
        )


def _dead_end_faults(lost: Mapping[tuple[str, int], int], hops: NextHops, fabric: Fabric) -> Iterator[Fault]:
    for (guid, port), count in sorted(lost.items(), key=lambda item: (-item[1], item[0])):
        if guid not in hops.tables.rows:
            continue
        if port == NO_PATH:
            evidence = f"no path to {count} HCA ports that other tables lead through it, or that hang on its part"
        elif (guid, port) in hops.cable_at:
            evidence = f"{count} HCA ports are not at the far end of the port that its table names for them"
        else:
            evidence = f"its table sends packets for {count} HCA ports out of port {port}, which has no cable"
        where = f"{_name(fabric, guid)}" + ("" if port == NO_PATH else f" port {port}")
        yield Fault(kind="dead_end_route", where=where, evidence=evidence, cost="jobs there hang", switches=(guid,))


def _loop_faults(circles: Mapping[str, Sequence[str]], fabric: Fabric) -> Iterator[Fault]:
    for name, leaves in sorted(circles.items())[:MAX_HOPS]:
        shown = ", ".join(_name(fabric, leaf) for leaf in leaves[:_MAX_SHOWN])
        evidence = f"packets from {len(leaves)} leaves run in a circle: {shown}"
        yield Fault(kind="routing_loop", where=name, evidence=evidence, cost="jobs there hang", switches=tuple(leaves))


def _name(fabric: Fabric, guid: str) -> str:
    description = fabric.switches[guid].description if guid in fabric.switches else ""
    return f"{description} ({guid})" if description else guid

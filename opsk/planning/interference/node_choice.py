"""Which free nodes should a job ask for, and which should it avoid, with all that runs already?

Sets of nodes are judged by the predicted step beside the running jobs: the quietest nodes of each scalable unit that
has room for the whole job; where none has, sets grown from each of several units to those near and quiet; and for
contrast nodes spread over the busiest units. A set within one unit uses no link between switches, unless a rail is
cabled otherwise, so units differ mostly where the job does not fit into one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from opsk.planning.interference.contention import step_beside
from opsk.planning.interference.load import JobShape, Seated, seated_by_default
from opsk.planning.interference.running import Rows, RunningLoads
from opsk.planning.interference.wires import Wires
from opsk.planning.placement.node_order import UNKNOWN_UNIT, slurm_order, unit_of_nodes

_RANKS_JUDGED, _LEAVES_JUDGED = 1 << 16, 1 << 11
"""Ranks and leaves of all sets together that are judged at most: seconds at worst. Two sets are judged in any case."""
_LEAST_SETS, _MOST_SETS = 2, 32
_MOST_SEEDS = 8
_APART = 1 << 20
_SAME = 1.0 + 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSet:
    """Nodes to ask for: the step that is predicted on them beside the running jobs, and with links for itself [s].

    ``units`` are the scalable units that they lie in; the ranks sit in Slurm's order on them.
    """

    nodes: tuple[str, ...]
    units: tuple[int, ...]
    step_s: float
    alone_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChoice:
    """Sets by predicted step, fastest first; ``considered`` of them were judged."""

    best: tuple[NodeSet, ...]
    worst: tuple[NodeSet, ...]
    considered: int


def choose_nodes(
    wires: Wires,
    shape: JobShape,
    free: Sequence[str],
    running: RunningLoads,
    *,
    most: int = 3,
    at_most: int = _MOST_SETS,
    around: Mapping[str, float] | None = None,
    seated: dict[tuple[str, ...], Seated] | None = None,
) -> NodeChoice:
    """Return the best and worst sets of nodes for a job among free ones; empty where there are too few.

    Parameters
    ----------
    free
        Nodes without a job.
    most
        So many of each are returned.
    at_most
        No more sets than this are judged, for an answer that cannot wait.
    around
        What `busy_leaves` says of the running jobs, where it is known already.
    seated
        Takes up how the job sits on each set that was judged, for whoever goes on with one of them.
    """
    limit = int(np.clip(_RANKS_JUDGED // max(shape.plan.gpus, 1), _LEAST_SETS, max(at_most, _LEAST_SETS)))
    rows = running.recent_rows.get(
        (tuple(free), shape.nodes, limit), lambda: _rows(wires, shape.nodes, free, running, limit, around)
    )
    kept = {} if seated is None else seated
    judged = sorted((_judged(wires, shape, row, running, kept) for row in rows), key=_speed)
    if not judged:
        return NodeChoice(best=(), worst=(), considered=0)
    slower = [one for one in judged if one.step_s > judged[0].step_s * _SAME][-min(most, len(judged) // 2 or 1) :]
    fastest = [one for one in judged if not slower or one.step_s * _SAME < slower[0].step_s][:most]
    return NodeChoice(best=tuple(fastest), worst=tuple(slower[::-1]), considered=len(judged))


def _rows(
    wires: Wires,
    needed: int,
    free: Sequence[str],
    running: RunningLoads,
    limit: int,
    around: Mapping[str, float] | None,
) -> Rows:
    """Return the sets that are worth judging, not more than ``limit``; none where there are too few nodes."""
    known = [node for node in slurm_order(free) if wires.rails.attachments.get(node)]
    if len(known) < needed:
        return ()
    sets = _Sets(wires, known, running, busy_leaves(wires, running) if around is None else around)
    chosen: dict[frozenset[str], tuple[str, ...]] = {}
    leaves = 0
    for good, bad in zip(
        _padded(sets.good(needed), limit), _padded(sets.bad(needed), max(limit // 4, 1)), strict=False
    ):
        for row in (good, bad):
            if row and frozenset(row) not in chosen and len(chosen) < limit:
                leaves += len({hca.leaf for node in row for hca in wires.rails.attachments[node]})
                if leaves <= _LEAVES_JUDGED or len(chosen) < _LEAST_SETS:
                    chosen[frozenset(row)] = row
    return tuple(chosen.values())


def _speed(one: NodeSet) -> tuple[float, int, tuple[str, ...]]:
    """Return what sets are ordered by."""
    return one.step_s, len(one.units), one.nodes


def _judged(
    wires: Wires,
    shape: JobShape,
    nodes: tuple[str, ...],
    running: RunningLoads,
    seated: dict[tuple[str, ...], Seated],
) -> NodeSet:
    """Return a set with its predicted step."""
    seated[nodes] = seated_by_default("", wires, shape, nodes)
    load = seated[nodes].load
    return NodeSet(
        nodes=nodes,
        units=tuple(sorted(set(unit_of_nodes(wires.rails, nodes).values()))),
        step_s=step_beside(load, running),
        alone_s=load.step_s,
    )


def _padded(rows: Iterator[tuple[str, ...]], most: int) -> Iterator[tuple[str, ...]]:
    """Yield some rows, then as many empty ones as are asked for."""
    for _ in range(_MOST_SETS):
        row = next(rows, ()) if most > 0 else ()
        most -= 1
        yield row


class _Sets:
    """Sets of free nodes, by how busy their links are."""

    def __init__(self, wires: Wires, free: Sequence[str], running: RunningLoads, around: Mapping[str, float]) -> None:
        self._wires = wires
        self.unit = unit_of_nodes(wires.rails, free)
        of_node = _busy_hcas(wires, free, running)
        self._nodes: dict[int, list[str]] = {}
        for node in sorted(free, key=lambda name: of_node[name]):
            self._nodes.setdefault(self.unit[node], []).append(node)
        self._busy = {
            unit: sum(around.get(hca.leaf, 0.0) for hca in wires.rails.attachments[nodes[0]])
            for unit, nodes in self._nodes.items()
        }

    def good(self, needed: int) -> Iterator[tuple[str, ...]]:
        """Yield the quietest nodes of each unit that has room, else sets grown from one unit each."""
        quiet = sorted(self._nodes, key=lambda unit: (unit == UNKNOWN_UNIT, self._busy[unit], unit))
        whole = [unit for unit in quiet if len(self._nodes[unit]) >= needed and unit != UNKNOWN_UNIT]
        for unit in sorted(whole, key=lambda one: (self._busy[one], len(self._nodes[one]), one)):
            yield slurm_order(self._nodes[unit][:needed])
        roomy = sorted(quiet, key=lambda unit: -len(self._nodes[unit]))
        for seed in dict.fromkeys([*roomy[:2], *quiet[:_MOST_SEEDS], *roomy[:_MOST_SEEDS]]):
            near = sorted(quiet, key=lambda unit: (unit != seed, self._distance(seed, unit), self._busy[unit], unit))
            yield self._filled(near, needed)

    def bad(self, needed: int) -> Iterator[tuple[str, ...]]:
        """Yield nodes of the busiest units, one by one from many units, and unit by unit."""
        busy = sorted(self._nodes, key=lambda unit: (-self._busy[unit], unit))
        for wide in (len(busy), max(needed, 2), 8, 4, 2):
            yield self._dealt(busy[:wide], needed)
        yield self._filled(busy, needed)

    def _filled(self, units: Sequence[int], needed: int) -> tuple[str, ...]:
        """Return nodes of units in this order."""
        row = [node for unit in units for node in self._nodes[unit]]
        return slurm_order(row[:needed])

    def _dealt(self, units: Sequence[int], needed: int) -> tuple[str, ...]:
        """Return one node of each unit in turn; too few units have none."""
        rows = [self._nodes[unit][::-1] for unit in units]
        if sum(map(len, rows)) < needed:
            return ()
        deep = max(map(len, rows))
        return slurm_order([row[turn] for turn in range(deep) for row in rows if turn < len(row)][:needed])

    def _distance(self, one: int, other: int) -> int:
        """Return the cables between two units' first leaves."""
        hcas = self._wires.rails.attachments
        ends = hcas[self._nodes[one][0]][0].leaf, hcas[self._nodes[other][0]][0].leaf
        return self._wires.rails.leaf_distance.get(ends, _APART)


def busy_leaves(wires: Wires, running: RunningLoads) -> dict[str, float]:
    """Return how busy the links between each leaf and the switches above are in all [links]."""
    busy: dict[str, float] = {}
    for link in np.flatnonzero(running.total[: wires.switch_links] > 0).tolist():
        for guid in wires.ends(link):
            if guid in wires.rails.leaves:
                busy[guid] = busy.get(guid, 0.0) + float(running.total[link])
    return busy


def _busy_hcas(wires: Wires, nodes: Sequence[str], running: RunningLoads) -> dict[str, float]:
    """Return how busy each node's HCAs are, sending and receiving."""
    sending, receiving = np.split(running.total[wires.switch_links :], 2)
    alike: dict[int, list[str]] = {}
    for node in nodes:
        alike.setdefault(len(wires.rails.attachments[node]), []).append(node)
    found: dict[str, float] = {}
    for members in alike.values():
        at = np.array(
            [[wires.index[hca.guid, hca.device] for hca in wires.rails.attachments[node]] for node in members]
        )
        busy = sending[at].sum(axis=1) + receiving[at].sum(axis=1)
        found |= zip(members, np.where(np.isfinite(busy), busy, 0.0).tolist(), strict=True)
    return found

"""Chooses the free nodes that a job should request and those that it should avoid, given the running jobs.

Node sets are evaluated by the predicted step beside the running jobs: the quietest nodes of each scalable unit that has
room for the whole job; where none has, sets grown from several units into near and quiet ones; and for contrast, nodes
spread over the busiest units. A set within one unit uses no link between switches, unless a rail is cabled otherwise,
so units differ mostly where the job does not fit into one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from opsk.planning.interference.contention import predict_shared_step_s
from opsk.planning.interference.links import FabricLinks
from opsk.planning.interference.load import JobShape, PlacedJob, place_by_default
from opsk.planning.interference.running_loads import Rows, RunningLoads
from opsk.planning.placement.node_order import UNKNOWN_UNIT, slurm_order, unit_of_nodes

_RANKS_JUDGED, _LEAVES_JUDGED = 1 << 16, 1 << 11
"""Maximum ranks and leaves of all sets together: seconds at worst. Two sets are evaluated in any case."""
_MIN_SETS, _MAX_SETS = 2, 32
_MAX_SEEDS = 8
_APART = 1 << 20
_SAME = 1.0 + 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSet:
    """Nodes to request: the predicted step on them with the running jobs, and with exclusive links [s].

    ``units`` are the scalable units of the nodes; the ranks are placed in Slurm's order.
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
    fabric_links: FabricLinks,
    shape: JobShape,
    free: Sequence[str],
    running: RunningLoads,
    *,
    max_sets: int = 3,
    max_evaluated: int = _MAX_SETS,
    around: Mapping[str, float] | None = None,
    evaluated: dict[tuple[str, ...], PlacedJob] | None = None,
) -> NodeChoice:
    """Return the best and worst sets of nodes for a job among free ones; empty where there are too few.

    Parameters
    ----------
    free
        Nodes without a job.
    max_sets
        Maximum number of best, and of worst, sets to return.
    max_evaluated
        Maximum number of sets to evaluate, to bound the response time.
    around
        The result of `busy_leaves` for the running jobs, where it is known already.
    evaluated
        Receives the placed job of each evaluated set, for use by the caller.
    """
    limit = int(np.clip(_RANKS_JUDGED // max(shape.plan.gpus, 1), _MIN_SETS, max(max_evaluated, _MIN_SETS)))
    rows = running.cached_node_sets.get(
        (tuple(free), shape.nodes, limit),
        lambda: _list_node_sets(fabric_links, shape.nodes, free, running, limit, around),
    )
    placements = {} if evaluated is None else evaluated
    node_sets = sorted((_evaluate(fabric_links, shape, row, running, placements) for row in rows), key=_sort_key)
    if not node_sets:
        return NodeChoice(best=(), worst=(), considered=0)
    slower = [node_set for node_set in node_sets if node_set.step_s > node_sets[0].step_s * _SAME][
        -min(max_sets, len(node_sets) // 2 or 1) :
    ]
    fastest = [node_set for node_set in node_sets if not slower or node_set.step_s * _SAME < slower[0].step_s][
        :max_sets
    ]
    return NodeChoice(best=tuple(fastest), worst=tuple(slower[::-1]), considered=len(node_sets))


def _list_node_sets(
    fabric_links: FabricLinks,
    needed: int,
    free: Sequence[str],
    running: RunningLoads,
    limit: int,
    around: Mapping[str, float] | None,
) -> Rows:
    """Return the sets that are worth judging, not more than ``limit``; none where there are too few nodes."""
    known = [node for node in slurm_order(free) if fabric_links.rails.attachments.get(node)]
    if len(known) < needed:
        return ()
    sets = _NodeSets(fabric_links, known, running, busy_leaves(fabric_links, running) if around is None else around)
    chosen: dict[frozenset[str], tuple[str, ...]] = {}
    leaves = 0
    for good, bad in zip(_pad(sets.good(needed), limit), _pad(sets.bad(needed), max(limit // 4, 1)), strict=False):
        for row in (good, bad):
            if row and frozenset(row) not in chosen and len(chosen) < limit:
                leaves += len({hca.leaf for node in row for hca in fabric_links.rails.attachments[node]})
                if leaves <= _LEAVES_JUDGED or len(chosen) < _MIN_SETS:
                    chosen[frozenset(row)] = row
    return tuple(chosen.values())


def _sort_key(node_set: NodeSet) -> tuple[float, int, tuple[str, ...]]:
    """Return the sort key of a set."""
    return node_set.step_s, len(node_set.units), node_set.nodes


def _evaluate(
    fabric_links: FabricLinks,
    shape: JobShape,
    nodes: tuple[str, ...],
    running: RunningLoads,
    placements: dict[tuple[str, ...], PlacedJob],
) -> NodeSet:
    """Return a set with its predicted step."""
    placements[nodes] = place_by_default("", fabric_links, shape, nodes)
    load = placements[nodes].load
    return NodeSet(
        nodes=nodes,
        units=tuple(sorted(set(unit_of_nodes(fabric_links.rails, nodes).values()))),
        step_s=predict_shared_step_s(load, running),
        alone_s=load.step_s,
    )


def _pad(rows: Iterator[tuple[str, ...]], count: int) -> Iterator[tuple[str, ...]]:
    """Yield some rows, then empty ones up to the requested number."""
    for _ in range(_MAX_SETS):
        row = next(rows, ()) if count > 0 else ()
        count -= 1
        yield row


class _NodeSets:
    """Sets of free nodes, by how busy their links are."""

    def __init__(
        self, fabric_links: FabricLinks, free: Sequence[str], running: RunningLoads, around: Mapping[str, float]
    ) -> None:
        self._fabric_links = fabric_links
        self.unit = unit_of_nodes(fabric_links.rails, free)
        of_node = _busy_hcas(fabric_links, free, running)
        self._nodes: dict[int, list[str]] = {}
        for node in sorted(free, key=lambda name: of_node[name]):
            self._nodes.setdefault(self.unit[node], []).append(node)
        self._busy = {
            unit: sum(around.get(hca.leaf, 0.0) for hca in fabric_links.rails.attachments[nodes[0]])
            for unit, nodes in self._nodes.items()
        }

    def good(self, needed: int) -> Iterator[tuple[str, ...]]:
        """Yield the quietest nodes of each unit that has room, else sets grown from one unit each."""
        quiet = sorted(self._nodes, key=lambda unit: (unit == UNKNOWN_UNIT, self._busy[unit], unit))
        whole = [unit for unit in quiet if len(self._nodes[unit]) >= needed and unit != UNKNOWN_UNIT]
        for unit in sorted(
            whole, key=lambda whole_unit: (self._busy[whole_unit], len(self._nodes[whole_unit]), whole_unit)
        ):
            yield slurm_order(self._nodes[unit][:needed])
        roomy = sorted(quiet, key=lambda unit: -len(self._nodes[unit]))
        for seed in dict.fromkeys([*roomy[:2], *quiet[:_MAX_SEEDS], *roomy[:_MAX_SEEDS]]):
            near = sorted(quiet, key=lambda unit: (unit != seed, self._distance(seed, unit), self._busy[unit], unit))
            yield self._fill(near, needed)

    def bad(self, needed: int) -> Iterator[tuple[str, ...]]:
        """Yield nodes of the busiest units, one by one from many units, and unit by unit."""
        busy = sorted(self._nodes, key=lambda unit: (-self._busy[unit], unit))
        for wide in (len(busy), max(needed, 2), 8, 4, 2):
            yield self._deal(busy[:wide], needed)
        yield self._fill(busy, needed)

    def _fill(self, units: Sequence[int], needed: int) -> tuple[str, ...]:
        """Return nodes of units in this order."""
        row = [node for unit in units for node in self._nodes[unit]]
        return slurm_order(row[:needed])

    def _deal(self, units: Sequence[int], needed: int) -> tuple[str, ...]:
        """Return one node of each unit in turn; too few units have none."""
        rows = [self._nodes[unit][::-1] for unit in units]
        if sum(map(len, rows)) < needed:
            return ()
        deep = max(map(len, rows))
        return slurm_order([row[turn] for turn in range(deep) for row in rows if turn < len(row)][:needed])

    def _distance(self, unit: int, other_unit: int) -> int:
        """Return the cables between two units' first leaves."""
        hcas = self._fabric_links.rails.attachments
        ends = hcas[self._nodes[unit][0]][0].leaf, hcas[self._nodes[other_unit][0]][0].leaf
        return self._fabric_links.rails.leaf_distance.get(ends, _APART)


def busy_leaves(fabric_links: FabricLinks, running: RunningLoads) -> dict[str, float]:
    """Return the total utilisation of the links between each leaf and the switches above [links]."""
    busy: dict[str, float] = {}
    for link in np.flatnonzero(running.total[: fabric_links.switch_links] > 0).tolist():
        for guid in fabric_links.ends(link):
            if guid in fabric_links.rails.leaves:
                busy[guid] = busy.get(guid, 0.0) + float(running.total[link])
    return busy


def _busy_hcas(fabric_links: FabricLinks, nodes: Sequence[str], running: RunningLoads) -> dict[str, float]:
    """Return how busy each node's HCAs are, sending and receiving."""
    sending, receiving = np.split(running.total[fabric_links.switch_links :], 2)
    by_count: dict[int, list[str]] = {}
    for node in nodes:
        by_count.setdefault(len(fabric_links.rails.attachments[node]), []).append(node)
    busy_by_node: dict[str, float] = {}
    for members in by_count.values():
        hca_numbers = np.array(
            [
                [fabric_links.index[hca.guid, hca.device] for hca in fabric_links.rails.attachments[node]]
                for node in members
            ]
        )
        busy = sending[hca_numbers].sum(axis=1) + receiving[hca_numbers].sum(axis=1)
        busy_by_node |= zip(members, np.where(np.isfinite(busy), busy, 0.0).tolist(), strict=True)
    return busy_by_node

"""Finds a placement that is nearly as good and keeps rank 0 on the node where Slurm puts it.

Unmodified scripts take the master address from the first node that Slurm lists. With rank 0 on another node they would
wait forever, so anything that reorders ranks without changing the script keeps rank 0 there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from opsk.fabric.rails import Rails
from opsk.planning.placement.evaluation import SAME
from opsk.planning.placement.initial_placements import Prepared
from opsk.planning.placement.node_order import unit_of_nodes
from opsk.planning.placement.placement import Placement, build_placement
from opsk.planning.placement.search import PlacementResult


def anchor_rank_0(
    placement: Placement, first: str, rails: Rails, prepare: Callable[[Sequence[str]], Prepared]
) -> Placement | None:
    """Return the placement, or one like it that begins on ``first``; ``None`` where that is no better than Slurm's.

    Parameters
    ----------
    prepared
        Judges the job on nodes in just this order.
    """
    if placement.ranks[0].node == first:
        return placement
    if first not in placement.nodes:
        return None
    best: Placement | None = None
    limit_s = placement.default_traffic.step_s * (1.0 - SAME)
    for order in _orders(placement.nodes, first, unit_of_nodes(rails, placement.nodes)):
        ready = prepare(order)
        result = PlacementResult(arrangement=ready.default, least_s=placement.least_step_s, is_optimal=False)
        candidate = build_placement(ready, result, rails)
        if candidate.ranks[0].node == first and candidate.traffic.step_s < limit_s:
            best, limit_s = candidate, candidate.traffic.step_s
    return best


def _orders(nodes: Sequence[str], first: str, units: dict[str, int]) -> Iterator[tuple[str, ...]]:
    """Yield the order turned until ``first`` leads, with it exchanged, and with its unit in front."""
    place = nodes.index(first)
    yield (*nodes[place:], *nodes[:place])
    yield tuple(nodes[0] if node == first else first if number == 0 else node for number, node in enumerate(nodes))
    same_unit = [node for node in nodes if units[node] == units[first] and node != first]
    yield (first, *same_unit, *(node for node in nodes if units[node] != units[first]))

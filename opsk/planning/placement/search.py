"""Searches the order of nodes and local ranks with the shortest predicted step.

For at most eight nodes all orders are evaluated, so that the result is optimal; for more nodes the best of a few good
orders is improved by exchanging nodes while that helps. Either way the result has a lower bound for the step of any
order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from opsk.planning.placement.arrangements import MAX_NODES, Batch, Packing, all_orders, classify_nodes, compute_slots
from opsk.planning.placement.evaluation import (
    SAME,
    Job,
    Verdicts,
    compute_min_axis_s,
    estimate_messages,
    find_best_row,
    is_better,
    judge,
    judge_with_links,
)
from opsk.planning.placement.rank_placement import assign_gpus_by_rail, build_rank_placement
from opsk.planning.routing.hca_ports import Index
from opsk.planning.routing.hca_traffic import RankPlacement
from opsk.planning.routing.loads import LinkSeconds

MAX_IMPROVED_NODES = 64
MESSAGES_JUDGED = 12_000_000
"""Maximum messages of all placements that are evaluated to improve an order: about two seconds."""
_MESSAGES_AT_ONCE = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """One placement of the ranks: the nodes in order, the slots (one row), and the verdict.

    ``loads`` are the link seconds of the verdict, where they were stored.
    """

    order: tuple[int, ...]
    rank_placement: RankPlacement
    verdict: Verdicts
    loads: LinkSeconds | None = None

    def link_seconds(self, job: Job) -> LinkSeconds:
        """Return the seconds of links."""
        return self.loads or judge_with_links(job, self.rank_placement)[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementResult:
    """The best arrangement, a bound on the step that no other of these nodes can beat [s], and whether it is reached.

    ``is_optimal`` where the bound is reached, or every order was judged.
    """

    arrangement: Arrangement
    least_s: float
    is_optimal: bool


def judge_order(job: Job, order: Sequence[int], rank_placement: RankPlacement) -> Arrangement:
    """Return one placement with its verdict."""
    verdict, loads = judge_with_links(job, rank_placement)
    return Arrangement(order=tuple(order), rank_placement=rank_placement, verdict=verdict, loads=loads)


def search(job: Job, start: Arrangement, candidates: Sequence[int], packings: Sequence[Packing]) -> PlacementResult:
    """Return the best arrangement of ``candidates``, ``start`` where nothing is better, or where there are none."""
    least_s = max(float(job.step.step_s(compute_min_axis_s(job, start.link_seconds(job)))), job.step.least_s)
    best = start
    if _reaches_bound(best, least_s) or not candidates:
        return PlacementResult(arrangement=best, least_s=least_s, is_optimal=_reaches_bound(best, least_s))
    if len(candidates) <= MAX_NODES:
        for packing in packings:
            best = _judge_all_orders(job, best, candidates, packing)
        return PlacementResult(arrangement=best, least_s=least_s, is_optimal=True)
    if len(start.order) <= MAX_IMPROVED_NODES:
        best = _improve(job, best, candidates, packings[0], least_s)
    return PlacementResult(arrangement=best, least_s=least_s, is_optimal=_reaches_bound(best, least_s))


def _reaches_bound(arrangement: Arrangement, least_s: float) -> bool:
    """Return whether the bound is reached."""
    return bool(arrangement.verdict.step_s[0] <= least_s * (1.0 + SAME))


def _judge_all_orders(job: Job, best: Arrangement, candidates: Sequence[int], packing: Packing) -> Arrangement:
    """Evaluate every order."""
    for batch in all_orders(job, candidates, packing):
        best = _select_better(job, best, batch)
    return best


def _select_better(job: Job, best: Arrangement, batch: Batch) -> Arrangement:
    """Return the best of a batch, or ``best`` where that is as good."""
    verdicts = judge(job, batch.rank_placement)
    row = find_best_row(verdicts, job.step)
    if not is_better(verdicts.row(row), best.verdict, job.step):
        return best
    return Arrangement(
        order=tuple(batch.orders[row].tolist()), rank_placement=batch.rank_placement.row(row), verdict=verdicts.row(row)
    )


def _improve(job: Job, best: Arrangement, candidates: Sequence[int], packing: Packing, least_s: float) -> Arrangement:
    """Exchange nodes, with each other and with unused ones, while that shortens the step."""
    classes = classify_nodes(job)
    messages = estimate_messages(job)
    left = MESSAGES_JUDGED // messages
    while left > 0 and not _reaches_bound(best, least_s):
        before = best
        for orders in _chunks(_list_exchanges(best.order, candidates, classes), max(_MESSAGES_AT_ONCE // messages, 1)):
            left -= len(orders)
            best = _select_better(job, best, _place_orders(job, orders, packing))
            if left <= 0:
                break
        if best is before:
            break
    return best


def _place_orders(job: Job, orders: Sequence[tuple[int, ...]], packing: Packing) -> Batch:
    """Place the ranks for each order, with GPUs matched by rail."""
    nodes: list[Index] = []
    gpus: list[Index] = []
    for order in orders:
        node, slot = compute_slots(job, order, packing)
        nodes.append(node)
        gpus.append(assign_gpus_by_rail(node, job.ports, job.usable_gpus)[node, slot])
    rank_placement = build_rank_placement(np.stack(nodes), np.stack(gpus), job.ports, job.domains)
    return Batch(orders=np.array(orders, dtype=np.int64), rank_placement=rank_placement)


def _list_exchanges(order: tuple[int, ...], candidates: Sequence[int], classes: Index) -> Iterator[tuple[int, ...]]:
    """Yield the orders in which two nodes of different cabling change places, or a spare replaces one."""
    for first, second in combinations(range(len(order)), 2):
        if classes[order[first]] != classes[order[second]]:
            row = list(order)
            row[first], row[second] = row[second], row[first]
            yield tuple(row)
    used = set(order)
    spares = {int(classes[node]): node for node in reversed(candidates) if node not in used}
    for place, node in enumerate(order):
        for kind, spare in spares.items():
            if kind != classes[node]:
                yield (*order[:place], spare, *order[place + 1 :])


def _chunks(orders: Iterator[tuple[int, ...]], size: int) -> Iterator[list[tuple[int, ...]]]:
    """Yield the orders in lists of ``size``."""
    chunk: list[tuple[int, ...]] = []
    for order in orders:
        chunk.append(order)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk

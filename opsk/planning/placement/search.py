"""Which order of nodes and local ranks has the shortest predicted step?

All orders of at most eight nodes are judged, so that the answer is the best there is; for more nodes the best of a few
good orders is improved by exchanging nodes while that helps. Either way the answer comes with a bound that no order can
be faster than.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from opsk.planning.placement.arrangements import MOST_NODES, Batch, Packing, all_orders, node_classes, slots_of
from opsk.planning.placement.judging import (
    SAME,
    Job,
    Verdicts,
    best_row,
    is_better,
    judge,
    judge_with_links,
    least_axis_s,
    messages_of,
)
from opsk.planning.placement.seating import on_rails, seating_of
from opsk.planning.routing.hca_seats import Index
from opsk.planning.routing.hca_traffic import Seating
from opsk.planning.routing.loads import LinkSeconds

MOST_IMPROVED_NODES = 64
MESSAGES_JUDGED = 12_000_000
"""Messages of all seatings that improving an order may judge: about two seconds."""
_MESSAGES_AT_ONCE = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """One way to seat the ranks: the nodes in order, the seats (one row), and the verdict on them.

    ``loads`` are the seconds of links that it was judged by, where they were kept.
    """

    order: tuple[int, ...]
    seating: Seating
    verdict: Verdicts
    loads: LinkSeconds | None = None

    def link_seconds(self, job: Job) -> LinkSeconds:
        """Return the seconds of links."""
        return self.loads or judge_with_links(job, self.seating)[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The best arrangement, a bound on the step that no other of these nodes can beat [s], and whether it is reached.

    ``is_optimal`` where the bound is reached, or every order was judged.
    """

    arrangement: Arrangement
    least_s: float
    is_optimal: bool


def judged(job: Job, order: Sequence[int], seating: Seating) -> Arrangement:
    """Return one seating with its verdict."""
    verdict, loads = judge_with_links(job, seating)
    return Arrangement(order=tuple(order), seating=seating, verdict=verdict, loads=loads)


def search(job: Job, start: Arrangement, candidates: Sequence[int], ways: Sequence[Packing]) -> Found:
    """Return the best arrangement of ``candidates``, ``start`` where nothing is better, or where there are none."""
    least_s = max(float(job.step.step_s(least_axis_s(job, start.link_seconds(job)))), job.step.least_s)
    best = start
    if _reaches(best, least_s) or not candidates:
        return Found(arrangement=best, least_s=least_s, is_optimal=_reaches(best, least_s))
    if len(candidates) <= MOST_NODES:
        for packing in ways:
            best = _best_of_all(job, best, candidates, packing)
        return Found(arrangement=best, least_s=least_s, is_optimal=True)
    if len(start.order) <= MOST_IMPROVED_NODES:
        best = _improved(job, best, candidates, ways[0], least_s)
    return Found(arrangement=best, least_s=least_s, is_optimal=_reaches(best, least_s))


def _reaches(arrangement: Arrangement, least_s: float) -> bool:
    """Tell whether the bound is reached."""
    return bool(arrangement.verdict.step_s[0] <= least_s * (1.0 + SAME))


def _best_of_all(job: Job, best: Arrangement, candidates: Sequence[int], packing: Packing) -> Arrangement:
    """Judge every order."""
    for batch in all_orders(job, candidates, packing):
        best = _better_of(job, best, batch)
    return best


def _better_of(job: Job, best: Arrangement, batch: Batch) -> Arrangement:
    """Return the best of a batch, or ``best`` where that is as good."""
    found = judge(job, batch.seating)
    row = best_row(found, job.step)
    if not is_better(found.row(row), best.verdict, job.step):
        return best
    return Arrangement(order=tuple(batch.orders[row].tolist()), seating=batch.seating.row(row), verdict=found.row(row))


def _improved(job: Job, best: Arrangement, candidates: Sequence[int], packing: Packing, least_s: float) -> Arrangement:
    """Exchange nodes, with each other and with unused ones, while that shortens the step."""
    classes = node_classes(job)
    messages = messages_of(job)
    left = MESSAGES_JUDGED // messages
    while left > 0 and not _reaches(best, least_s):
        before = best
        for orders in _chunks(_exchanges(best.order, candidates, classes), max(_MESSAGES_AT_ONCE // messages, 1)):
            left -= len(orders)
            best = _better_of(job, best, _seated(job, orders, packing))
            if left <= 0:
                break
        if best is before:
            break
    return best


def _seated(job: Job, orders: Sequence[tuple[int, ...]], packing: Packing) -> Batch:
    """Seat the ranks for each order, on the rails of the others."""
    nodes: list[Index] = []
    gpus: list[Index] = []
    for order in orders:
        node, slot = slots_of(job, order, packing)
        nodes.append(node)
        gpus.append(on_rails(node, job.ports, job.usable_gpus)[node, slot])
    seating = seating_of(np.stack(nodes), np.stack(gpus), job.ports, job.domains)
    return Batch(orders=np.array(orders, dtype=np.int64), seating=seating)


def _exchanges(order: tuple[int, ...], candidates: Sequence[int], classes: Index) -> Iterator[tuple[int, ...]]:
    """Yield the orders in which two nodes that are cabled differently change places, or one gives way to a spare."""
    for one, other in combinations(range(len(order)), 2):
        if classes[order[one]] != classes[order[other]]:
            row = list(order)
            row[one], row[other] = row[other], row[one]
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

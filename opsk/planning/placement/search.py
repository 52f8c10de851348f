"""Searches the order of nodes and local ranks with the shortest predicted step.

For at most eight nodes all orders are evaluated, so that the result is optimal; for more nodes the best of a few good
orders is improved by exchanging nodes while that helps. Either way the result has a lower bound for the step of any
order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, islice, permutations, product

import numpy as np

from opsk.planning.placement.rank_placement import (
    SAME,
    Job,
    Verdicts,
    assign_gpus_by_rail,
    build_rank_placement,
    compute_min_axis_s,
    compute_packed_slots,
    count_domain_runs,
    estimate_messages,
    find_best_row,
    is_better,
    judge,
    judge_with_links,
)
from opsk.planning.routing.hca_ports import Index
from opsk.planning.routing.loads import LinkSeconds
from opsk.planning.routing.traffic import RankPlacement

MAX_NODES = 8
"""Maximum candidates of which all orders are tried."""
MAX_LOCAL_NODES, MAX_LOCAL_GPUS = 3, 4
"""Maximum nodes, and GPUs of each, of which all orders of local ranks are tried too."""
_MESSAGES_OF_ALL_ORDERS = 1 << 19
"""Messages of one batch of placements: bounds memory to some hundred MiB."""
MAX_IMPROVED_NODES = 64
MESSAGES_JUDGED = 12_000_000
"""Maximum messages of all placements that are evaluated to improve an order: about two seconds."""
_MESSAGES_AT_ONCE = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Placements to evaluate together, one per row; ``orders`` are their nodes in order, shape (rows, nodes)."""

    orders: Index
    rank_placement: RankPlacement


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """How ranks fill nodes: ``inner`` consecutive ranks share an HB domain; 1 fills node after node."""

    inner: int
    nodes: int


def list_packings(
    gpus: int, inner: int, gpus_per_node: int, largest_domain: int, candidates: int
) -> tuple[Packing, ...]:
    """Return the packings: whole groups, and where those need more nodes, also node after node."""
    plain = Packing(inner=1, nodes=math.ceil(gpus / gpus_per_node))
    if inner <= gpus_per_node == largest_domain:
        needed = math.ceil(gpus / inner / (gpus_per_node // inner))
    else:
        needed = plain.nodes
    whole = Packing(inner=inner, nodes=min(needed, candidates))
    return (whole,) if gpus_per_node % inner == 0 and whole.nodes == plain.nodes else (whole, plain)


def compute_slots(job: Job, order: Sequence[int], packing: Packing) -> tuple[Index, Index]:
    """Return node (as `Job` numbers them) and slot of every rank for nodes in this order."""
    nodes = np.asarray(order, dtype=np.int64)
    sizes = count_domain_runs(job.domains[nodes].tolist())
    place, slot = compute_packed_slots(int(job.grid.ranks.size), packing.inner, sizes, job.usable_gpus)
    return nodes[place], slot


def place_order(job: Job, order: Sequence[int], packing: Packing) -> Iterator[RankPlacement]:
    """Yield placements on nodes in this order: GPUs matched by rail, and GPUs in their own order."""
    node, slot = compute_slots(job, order, packing)
    gpu = assign_gpus_by_rail(node, job.ports, job.usable_gpus)[node, slot]
    yield build_rank_placement(node, gpu, job.ports, job.domains)
    if (gpu != slot).any():
        yield build_rank_placement(node, slot, job.ports, job.domains)


def classify_nodes(job: Job) -> Index:
    """Return the class of each node; nodes of one class have the same cabling and are interchangeable."""
    ports = job.ports
    shares_domain = np.bincount(job.domains)[job.domains] > 1
    seen: dict[tuple[object, ...], int] = {}
    classes = []
    for number, row in enumerate(ports.port[:, : job.usable_gpus]):
        hcas = np.unique(row, return_inverse=True)[1]
        key: tuple[object, ...] = (
            *zip(ports.leaf[row].tolist(), ports.rail[row].tolist(), ports.bytes_per_s[row].tolist(), strict=True),
            tuple(hcas.tolist()),
            int(job.domains[number]) if shares_domain[number] else -1,
        )
        if job.routes.by_port:
            key = (number,)
        classes.append(seen.setdefault(key, len(seen)))
    return np.array(classes, dtype=np.int64)


def all_orders(job: Job, candidates: Sequence[int], packing: Packing) -> Iterator[Batch]:
    """Yield all orders of the nodes that differ in more than names, in batches.

    For few nodes of few GPUs, all orders of the local ranks are included too.
    """
    classes = classify_nodes(job)[list(candidates)]
    orders = _list_distinct(classes.tolist(), packing.nodes)
    few = len(candidates) <= MAX_LOCAL_NODES and job.usable_gpus <= MAX_LOCAL_GPUS
    local = _list_local_orders(job) if few else None
    rows_of_order = 1 if local is None else len(local) ** packing.nodes
    at_once = max(_MESSAGES_OF_ALL_ORDERS // estimate_messages(job) // rows_of_order, 1)
    where = np.asarray(candidates, dtype=np.int64)
    while chunk := list(islice(orders, at_once)):
        yield _build_batch(job, where[np.array(chunk, dtype=np.int64)], packing, local)


def _build_batch(job: Job, orders: Index, packing: Packing, local: Index | None) -> Batch:
    """Place the ranks for each order."""
    nodes: list[Index] = []
    gpus: list[Index] = []
    row_order: list[int] = []
    filled: dict[tuple[int, ...], tuple[Index, Index]] = {}
    exchanged: dict[tuple[int, ...], Index] = {}
    for number, order in enumerate(orders):
        runs = tuple(count_domain_runs(job.domains[order].tolist()))
        if runs not in filled:
            filled[runs] = compute_packed_slots(int(job.grid.ranks.size), packing.inner, runs, job.usable_gpus)
        place, slot = filled[runs]
        if local is not None:
            choices = [np.stack(choice)[place, slot] for choice in product(local, repeat=packing.nodes)]
        else:
            used = tuple(np.sort(order).tolist())
            if used not in exchanged:
                exchanged[used] = assign_gpus_by_rail(order, job.ports, job.usable_gpus)
            placed = exchanged[used][order[place], slot]
            choices = [placed, slot] if (placed != slot).any() else [placed]
        nodes += [order[place]] * len(choices)
        gpus += choices
        row_order += [number] * len(choices)
    return Batch(
        orders=orders[row_order],
        rank_placement=build_rank_placement(np.stack(nodes), np.stack(gpus), job.ports, job.domains),
    )


def _list_local_orders(job: Job) -> Index:
    """Return all orders of the GPUs of a node; those that exchange GPUs of one HCA on every node count once."""
    shared = [tuple(row) for row in job.ports.port[:, : job.usable_gpus].T.tolist()]
    seen: dict[tuple[tuple[int, ...], ...], tuple[int, ...]] = {}
    for order in permutations(range(job.usable_gpus)):
        seen.setdefault(tuple(shared[gpu] for gpu in order), order)
    return np.array(list(seen.values()), dtype=np.int64)


def _list_distinct(classes: Sequence[int], length: int) -> Iterator[tuple[int, ...]]:
    """Yield the sequences of ``length`` places that differ in the classes of what stands there."""
    members: dict[int, list[int]] = {}
    for place, kind in enumerate(classes):
        members.setdefault(kind, []).append(place)
    used = dict.fromkeys(members, 0)
    chosen: list[int] = []

    def extend() -> Iterator[tuple[int, ...]]:
        if len(chosen) == length:
            yield tuple(chosen)
            return
        for kind, places in members.items():
            if used[kind] < len(places):
                chosen.append(places[used[kind]])
                used[kind] += 1
                yield from extend()
                used[kind] -= 1
                chosen.pop()

    return extend()


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

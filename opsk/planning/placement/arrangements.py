"""Enumerates the rank placements that are worth evaluating: units in a row, and all orders of a few nodes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, permutations, product

import numpy as np

from opsk.planning.placement.evaluation import Job, estimate_messages
from opsk.planning.placement.rank_placement import (
    assign_gpus_by_rail,
    build_rank_placement,
    compute_packed_slots,
    count_domain_runs,
)
from opsk.planning.routing.hca_ports import Index
from opsk.planning.routing.hca_traffic import RankPlacement

MAX_NODES = 8
"""Maximum candidates of which all orders are tried."""
MAX_LOCAL_NODES, MAX_LOCAL_GPUS = 3, 4
"""Maximum nodes, and GPUs of each, of which all orders of local ranks are tried too."""
_MESSAGES_AT_ONCE = 1 << 19
"""Messages of one batch of placements: bounds memory to some hundred MiB."""


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
    at_once = max(_MESSAGES_AT_ONCE // estimate_messages(job) // rows_of_order, 1)
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

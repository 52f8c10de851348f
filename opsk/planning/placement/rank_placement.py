"""Computes the node and GPU of each rank, as placed by opsk or by Slurm's default distribution."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from opsk.planning.routing.hca_ports import Index, Ports
from opsk.planning.routing.hca_traffic import RankPlacement
from opsk.workload.plan import Plan


def inner_group(plan: Plan, domain_gpus: int) -> int:
    """Return the ranks that should share an HB domain: tp with cp or ep around it, as much as one domain holds."""
    sizes = [plan.tp, plan.tp * plan.cp]
    if plan.ep > 1 and plan.ep % plan.cp == 0:
        sizes.append(plan.tp * plan.ep)
    return max((size for size in sizes if size <= domain_gpus), default=plan.tp)


def compute_default_slots(gpus: int, node_count: int, gpus_per_node: int, distribution: str) -> tuple[Index, Index]:
    """Return node index and GPU of every rank by Slurm's ``block`` or ``cyclic`` distribution of tasks over nodes."""
    ranks = np.arange(gpus, dtype=np.int64)
    if distribution == "cyclic":
        return ranks % node_count, ranks // node_count
    return ranks // gpus_per_node, ranks % gpus_per_node


def compute_packed_slots(gpus: int, inner: int, domain_nodes: Sequence[int], gpus_per_node: int) -> tuple[Index, Index]:
    """Return node index and slot of every rank, with groups of ``inner`` consecutive ranks inside HB domains.

    Parameters
    ----------
    domain_nodes
        Nodes of each HB domain, in node order.

    Where ``inner`` does not divide a domain, whole groups go in first; groups that must straddle take the rest of
    neighbouring domains, unless there are domains enough to leave it idle.
    """
    capacity = np.array(domain_nodes, dtype=np.int64) * gpus_per_node
    begin = np.concatenate([[0], np.cumsum(capacity)[:-1]])
    if inner > capacity.max() or not (capacity % inner).any():
        slots = np.arange(gpus, dtype=np.int64)
    else:
        slots = _pack(gpus, inner, begin, capacity)
    return slots // gpus_per_node, slots % gpus_per_node


def _pack(gpus: int, inner: int, begin: Index, capacity: Index) -> Index:
    """Return the place of each rank in the row of all GPUs."""
    whole = capacity // inner * inner
    if whole.sum() >= gpus:
        return np.concatenate([np.arange(first, first + size) for first, size in zip(begin, whole, strict=True)])[:gpus]
    parts: list[Index] = []
    idle = np.empty(0, dtype=np.int64)
    for first, size, full in zip(begin, whole, capacity, strict=True):
        parts.append(np.arange(first, first + size))
        idle = np.concatenate([idle, np.arange(first + size, first + full)])
        if idle.size >= inner:
            parts.append(idle[:inner])
            idle = idle[inner:]
    return np.concatenate(parts)[:gpus]


def assign_gpus_by_rail(nodes: Index, ports: Ports, usable_gpus: int) -> Index:
    """Return the GPU for each slot of each node so that one slot is on one rail on every node, shape (nodes, slots).

    A slot's rail is the one that most of ``nodes``, those that the job uses, have for that GPU. A node that is cabled
    otherwise exchanges its GPUs: they are equal to each other inside the HB domain, their HCAs are not. A rail that a
    node lacks cannot be made up for.
    """
    rail = ports.rail[ports.port[:, :usable_gpus]]
    used = np.unique(nodes)
    usual = [int(Counter(rail[used, gpu].tolist()).most_common(1)[0][0]) for gpu in range(usable_gpus)]
    gpu_of_slot = np.tile(np.arange(usable_gpus, dtype=np.int64), (rail.shape[0], 1))
    for odd in np.flatnonzero((rail != np.array(usual)).any(axis=1)):
        gpu_of_slot[odd] = _exchange(rail[odd].tolist(), usual)
    return gpu_of_slot


def _exchange(rail: Sequence[int], usual: Sequence[int]) -> list[int]:
    """Return a GPU for each slot of one node: its own where the rail is right, else a free one that has the rail."""
    chosen = [gpu if rail[gpu] == required_rail else -1 for gpu, required_rail in enumerate(usual)]
    free = [gpu for gpu, gpu_or_none in enumerate(chosen) if gpu_or_none < 0]
    for slot, required_rail in enumerate(usual):
        if chosen[slot] < 0:
            chosen[slot] = next((gpu for gpu in free if rail[gpu] == required_rail), -1)
            if chosen[slot] >= 0:
                free.remove(chosen[slot])
    for slot, gpu_or_none in enumerate(chosen):
        if gpu_or_none < 0:
            chosen[slot] = slot if slot in free else free[0]
            free.remove(chosen[slot])
    return chosen


def build_rank_placement(node: Index, gpu: Index, ports: Ports, domains: Index) -> RankPlacement:
    """Return the slots of all ranks, one row a placement.

    Parameters
    ----------
    node, gpu
        Node (as `Ports` numbers them) and GPU of every rank, shape (rows, ranks) or (ranks,).
    domains
        Number of the HB domain of each node; here a domain goes by the first rank in it, which is the order in which
        rings run through them.
    """
    node, gpu = np.atleast_2d(node), np.atleast_2d(gpu)
    rows, ranks = node.shape
    domain = domains[node]
    first = np.full((rows, int(domains.max()) + 1), ranks, dtype=np.int64)
    np.minimum.at(first, (np.arange(rows)[:, None], domain), np.arange(ranks))
    return RankPlacement(
        node=node, gpu=gpu, domain=np.take_along_axis(first, domain, axis=1), port=ports.port[node, gpu]
    )


def domain_numbers(nodes: Sequence[str], domain_of: Mapping[str, str]) -> Index:
    """Return a number for the HB domain of each node."""
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(domain_of.get(name, name), len(numbers)) for name in nodes], dtype=np.int64)


def local_ranks(node: Index) -> Index:
    """Return the number of each rank among those of its node, in rank order: what Slurm calls SLURM_LOCALID."""
    order = np.argsort(node, kind="stable")
    first = np.searchsorted(node[order], node[order], side="left")
    local = np.empty_like(node)
    local[order] = np.arange(node.size) - first
    return local


def count_domain_runs(domains: Sequence[int]) -> list[int]:
    """Return how many nodes follow each other in one HB domain."""
    sizes: list[int] = []
    previous: int | None = None
    for name in domains:
        if name == previous:
            sizes[-1] += 1
        else:
            sizes.append(1)
        previous = name
    return sizes


def domain_names(nodes: Sequence[str], hb_domains: Mapping[str, str] | None) -> dict[str, str]:
    """Return the HB domain of each node; one that is in no map is a domain of its own."""
    return {node: (hb_domains or {}).get(node, node) for node in nodes}

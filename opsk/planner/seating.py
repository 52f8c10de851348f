"""On which node and GPU does each rank sit: as opsk places it, or as Slurm does by default?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from opsk.planner.flows import Seating
from opsk.planner.seats import Index, Ports
from opsk.workload.plan import Plan


def inner_group(plan: Plan, domain_gpus: int) -> int:
    """Return the ranks that should share an HB domain: tp with cp or ep around it, as much as one domain holds."""
    sizes = [plan.tp, plan.tp * plan.cp]
    if plan.ep > 1 and plan.ep % plan.cp == 0:
        sizes.append(plan.tp * plan.ep)
    return max((size for size in sizes if size <= domain_gpus), default=plan.tp)


def default_slots(gpus: int, node_count: int, gpus_per_node: int, distribution: str) -> tuple[Index, Index]:
    """Return node index and GPU of every rank by Slurm's ``block`` or ``cyclic`` distribution of tasks over nodes."""
    ranks = np.arange(gpus, dtype=np.int64)
    if distribution == "cyclic":
        return ranks % node_count, ranks // node_count
    return ranks // gpus_per_node, ranks % gpus_per_node


def packed_slots(gpus: int, inner: int, domain_nodes: Sequence[int], gpus_per_node: int) -> tuple[Index, Index]:
    """Return node index and slot of every rank, groups of ``inner`` consecutive ranks kept within HB domains.

    Parameters
    ----------
    domain_nodes
        Nodes of each HB domain, in node order.

    Where ``inner`` does not divide a domain, whole groups go in first; groups that must straddle take what is left in
    neighbouring domains, unless there are domains enough to leave it idle.
    """
    capacity = np.array(domain_nodes, dtype=np.int64) * gpus_per_node
    begin = np.concatenate([[0], np.cumsum(capacity)[:-1]])
    if inner > capacity.max() or not (capacity % inner).any():
        slots = np.arange(gpus, dtype=np.int64)
    else:
        slots = _packed(gpus, inner, begin, capacity)
    return slots // gpus_per_node, slots % gpus_per_node


def _packed(gpus: int, inner: int, begin: Index, capacity: Index) -> Index:
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


def on_rails(node: Index, slot: Index, ports: Ports, usable_gpus: int) -> Index:
    """Return the GPU for each rank's slot so that one slot is on one rail on every node.

    A slot's rail is the one that most nodes have for that GPU. A node that is cabled otherwise exchanges its GPUs: they
    are equal to each other inside the HB domain, their HCAs are not. A rail that a node lacks cannot be made up for.
    """
    rail = ports.rail[ports.port[:, :usable_gpus]]
    usual = [int(Counter(rail[np.unique(node), gpu].tolist()).most_common(1)[0][0]) for gpu in range(usable_gpus)]
    gpu_of_slot = np.tile(np.arange(usable_gpus, dtype=np.int64), (rail.shape[0], 1))
    for odd in np.flatnonzero((rail != np.array(usual)).any(axis=1)):
        gpu_of_slot[odd] = _exchanged(rail[odd].tolist(), usual)
    exchanged: Index = gpu_of_slot[node, slot]
    return exchanged


def _exchanged(rail: Sequence[int], usual: Sequence[int]) -> list[int]:
    """Return a GPU for each slot of one node: its own where the rail is right, else a free one that has the rail."""
    chosen = [gpu if rail[gpu] == want else -1 for gpu, want in enumerate(usual)]
    free = [gpu for gpu, at in enumerate(chosen) if at < 0]
    for slot, want in enumerate(usual):
        if chosen[slot] < 0:
            chosen[slot] = next((gpu for gpu in free if rail[gpu] == want), -1)
            if chosen[slot] >= 0:
                free.remove(chosen[slot])
    for slot, at in enumerate(chosen):
        if at < 0:
            chosen[slot] = slot if slot in free else free[0]
            free.remove(chosen[slot])
    return chosen


def seating_of(node: Index, gpu: Index, ports: Ports, domains: Sequence[str]) -> Seating:
    """Return the seats of all ranks; ``domains`` names the HB domain of each node."""
    first = {name: index for index, name in reversed([*enumerate(domains)])}
    domain = np.array([first[name] for name in domains], dtype=np.int64)
    return Seating(node=node, gpu=gpu, domain=domain[node], port=ports.port[node, gpu])


def local_ranks(node: Index) -> Index:
    """Return the number of each rank among those of its node, in rank order: what Slurm calls SLURM_LOCALID."""
    order = np.argsort(node, kind="stable")
    first = np.searchsorted(node[order], node[order], side="left")
    local = np.empty_like(node)
    local[order] = np.arange(node.size) - first
    return local


def domain_sizes(domains: Sequence[str]) -> list[int]:
    """Return how many nodes follow each other in one HB domain."""
    sizes: list[int] = []
    previous: str | None = None
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

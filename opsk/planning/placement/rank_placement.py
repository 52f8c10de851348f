"""Computes the node and GPU of each rank, and evaluates the step time and the local traffic of such placements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from opsk.costmodel.table import FloatColumn
from opsk.planning.placement.step_model import StepModel
from opsk.planning.ranks import RankGrid
from opsk.planning.routing.hca_ports import Index, Ports
from opsk.planning.routing.loads import LinkSeconds, link_seconds, port_rates
from opsk.planning.routing.routes import Routes
from opsk.planning.routing.traffic import AXES, Flows, RankPlacement, StepBytes, step_flows
from opsk.workload.plan import Plan

CLEARLY, HARDLY, SAME = 0.1, 0.01, 1e-6
"""Differences below these shares do not separate two orders: the one that needs no rank file is preferred."""
_MESSAGES_A_RANK = 4
"""Of a rank without experts: rings of two axes, and a stage before and after."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The inputs for evaluating placements; ``nodes`` are all usable nodes, as ``ports`` and ``domains`` number them.

    ``domains`` has a number for the HB domain of each node, ``usable_gpus`` are those that the job takes of a node.
    """

    grid: RankGrid
    sent: StepBytes
    nodes: tuple[str, ...]
    ports: Ports
    domains: Index
    usable_gpus: int
    routes: Routes
    step: StepModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """The evaluation of each placement, one entry a row; bytes are those of one step between HB domains.

    ``axis_s`` is how long the busiest link of each axis is busy, shape (rows, axes); ``max_link_load`` [s] and ``link``
    are of the busiest link between switches by all axes together.
    """

    step_s: FloatColumn
    axis_s: FloatColumn
    tp_bytes: FloatColumn
    all_bytes: FloatColumn
    off_rail_bytes: FloatColumn
    off_leaf_bytes: FloatColumn
    max_link_load: FloatColumn
    link: Index

    def row(self, number: int) -> Verdicts:
        """Return one of them."""
        index = slice(number, number + 1)
        return Verdicts(**{name: getattr(self, name)[index] for name in self.__dataclass_fields__})


def estimate_messages(job: Job) -> int:
    """Return an estimate of the messages of one placement; time and memory of its evaluation are proportional to it."""
    tokens = job.grid.ep - 1 if job.sent.ep.any() else 0
    return int(job.grid.ranks.size) * (_MESSAGES_A_RANK + tokens)


def judge(job: Job, rank_placement: RankPlacement) -> Verdicts:
    """Return the verdict on every row of ``rank_placement``."""
    return judge_with_links(job, rank_placement)[0]


def judge_with_links(job: Job, rank_placement: RankPlacement) -> tuple[Verdicts, LinkSeconds]:
    """Return the verdicts, and the link seconds that they are based on."""
    flows, loads = route_placement(job, rank_placement)
    return compute_verdicts(job, flows, loads), loads


def route_placement(job: Job, rank_placement: RankPlacement) -> tuple[dict[str, Flows], LinkSeconds]:
    """Return the messages of every placement, and the seconds that links are busy with them."""
    flows = step_flows(job.grid, job.sent, rank_placement, job.ports)
    return flows, link_seconds(flows, rank_placement.rows, job.ports, job.routes)


def compute_verdicts(job: Job, flows: Mapping[str, Flows], loads: LinkSeconds) -> Verdicts:
    """Return the verdict on every placement from its messages and link seconds."""
    axis_s = loads.axis_s()
    rows = axis_s.shape[0]
    load_s, link = loads.busiest_switch_link()
    by_axis = {axis: _sum_bytes(flow, rows) for axis, flow in flows.items()}
    all_flows = Flows.concatenate(iter(flows.values()))
    same_leaf = _same(job.ports.leaf, all_flows)
    same_rail = same_leaf | _same(job.ports.rail, all_flows)
    return Verdicts(
        step_s=job.step.step_s(axis_s),
        axis_s=axis_s,
        tp_bytes=by_axis["tp"],
        all_bytes=np.sum([by_axis[axis] for axis in AXES], axis=0),
        off_rail_bytes=_sum_bytes(all_flows, rows, ~same_rail),
        off_leaf_bytes=_sum_bytes(all_flows, rows, ~same_leaf),
        max_link_load=load_s,
        link=link,
    )


def _same(keys: Index, flow: Flows) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which messages have the same known key at both ends."""
    is_same: np.ndarray[tuple[int], np.dtype[np.bool_]] = (keys[flow.source] == keys[flow.target]) & (
        keys[flow.source] >= 0
    )
    return is_same


def _sum_bytes(
    flow: Flows, rows: int, is_counted: np.ndarray[tuple[int], np.dtype[np.bool_]] | None = None
) -> FloatColumn:
    """Return the bytes of each row, of all messages or of some."""
    sizes = flow.size_bytes if is_counted is None else flow.size_bytes * is_counted
    return np.bincount(flow.row, weights=sizes, minlength=rows).astype(np.float64)


def find_best_row(verdicts: Verdicts, step: StepModel) -> int:
    """Return the best row by the criteria of `is_better`; the first of equals."""
    left = np.arange(verdicts.step_s.size)
    for column, tolerance in _criteria(verdicts, step):
        values = column[left]
        least = values.min()
        if np.isinf(least):
            continue
        left = left[values <= least + tolerance]
    return int(left[0])


def is_better(ours: Verdicts, default: Verdicts, step: StepModel) -> bool:
    """Return whether the one row of ``ours`` is better than that of ``default``.

    The predicted step decides first. Among equals tensor-parallel bytes between HB domains do, since every layer waits
    for them; then a tenth fewer bytes in all, then bytes across rails, then the busiest cable, then bytes across
    leaves. Where the step is communication alone, the part that computation hides is unknown, and tensor-parallel
    bytes come first.
    """
    both = Verdicts(
        **{name: np.concatenate([getattr(ours, name), getattr(default, name)]) for name in ours.__dataclass_fields__}
    )
    for column, tolerance in _criteria(both, step):
        our_value, theirs = column
        if our_value != theirs and not abs(our_value - theirs) <= tolerance:
            return bool(our_value < theirs)
    return False


def _criteria(verdicts: Verdicts, step: StepModel) -> Sequence[tuple[FloatColumn, float]]:
    """Return the criteria, the most important first, each with the difference below which two values are equal."""
    scale = float(verdicts.all_bytes.max())
    finite = verdicts.max_link_load[np.isfinite(verdicts.max_link_load)]
    steps = verdicts.step_s[np.isfinite(verdicts.step_s)]
    by_step = (verdicts.step_s, SAME * float(steps.min()) if steps.size else 0.0)
    by_tensor = (verdicts.tp_bytes, SAME * scale)
    return (
        *((by_step, by_tensor) if step.is_whole else (by_tensor, by_step)),
        (verdicts.all_bytes, CLEARLY * scale),
        (verdicts.off_rail_bytes, SAME * scale),
        (verdicts.max_link_load, HARDLY * float(finite.max(initial=0.0))),
        (verdicts.off_leaf_bytes, SAME * scale),
    )


def compute_min_axis_s(job: Job, loads: LinkSeconds) -> FloatColumn:
    """Return a bound below which no order of the nodes can bring the busiest link of each axis [s].

    What leaves a node, or comes in, is the same in every order of nodes and local ranks; it cannot leave faster than by
    all HCAs of the best connected node at once. Zero where HB domains join several nodes: there it does depend.
    ``loads`` are those of any one placement.
    """
    ports = job.ports
    nodes, gpus = ports.port.shape
    rates = port_rates(ports)
    rates[ports.nowhere] = 0.0
    home = np.zeros(rates.size, dtype=np.int64)
    home[ports.port.ravel()] = np.repeat(np.arange(nodes), gpus)
    best_rate = np.bincount(home, weights=rates, minlength=nodes).max()
    if np.unique(job.domains).size < job.domains.size or not best_rate:
        return np.zeros(len(AXES))
    bounds = []
    for axis in AXES:
        sizes = loads.ports[axis][0].reshape(2, -1) * rates
        bounds.append(
            max(np.bincount(home, weights=direction, minlength=nodes).max() for direction in sizes) / best_rate
        )
    return np.array(bounds)

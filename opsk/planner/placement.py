"""Which rank runs on which GPU, and how much of the traffic then stays on its rail?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from opsk.errors import InputError, PlanInfeasibleError
from opsk.planner.flows import Flows, Seating, port_flows
from opsk.planner.order import node_order, slurm_order
from opsk.planner.ranks import RankGrid, RankOrder, rank_grid
from opsk.planner.routes import Busiest, SwitchGraph, busiest_cable, busiest_uplinks
from opsk.planner.seating import (
    default_slots,
    domain_names,
    domain_sizes,
    inner_group,
    local_ranks,
    on_rails,
    packed_slots,
    seating_of,
)
from opsk.planner.seats import Index, Ports, ports_of
from opsk.planner.traffic import StepBytes, step_bytes
from opsk.topology.rails import Rails
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

DISTRIBUTIONS = ("block", "cyclic")
_CLEARLY, _HARDLY, _SAME = 0.1, 0.01, 1e-6
"""Differences below these shares do not decide between two orders: the one that needs no rank file is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlace:
    """One rank: where it runs, which HCA and rail serve it (``None`` when the node has none).

    ``local_rank`` numbers the ranks of a node; ``gpu`` differs from it on a node whose HCAs are cabled otherwise.
    """

    rank: int
    node: str
    local_rank: int
    gpu: int
    device: str | None
    rail: int | None
    leaf: str | None
    tp_rank: int
    pp_rank: int
    cp_rank: int
    dp_rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficShare:
    """How the inter-node bytes of one step travel under a placement.

    ``rail_local_fraction``: share whose two ends are on one rail; ``leaf_local_fraction``: on the same leaf;
    ``max_link_load``: bytes of one step on the busiest switch-to-switch cable, one direction, over its bytes/s [s].
    Both shares are 1 when nothing leaves a node. ``inter_node_bytes`` leaves out what stays inside an HB domain, and
    ``tp_inter_node_bytes`` is the tensor-parallel part of it, which computation waits for;
    ``busiest_cable`` are the guids that the busiest cable goes from and to, where the fabric above the leaves is known.
    """

    rail_local_fraction: float
    leaf_local_fraction: float
    max_link_load: float
    inter_node_bytes: float
    tp_inter_node_bytes: float = 0.0
    busiest_cable: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Ranks in rank order, what that does to the traffic, and what Slurm's default order would have done.

    Parameters
    ----------
    nodes
        Nodes that the job uses, in the order in which ranks fill them.
    spare_nodes
        Candidates that it leaves free.
    gpu_order
        For nodes whose GPUs do not take local ranks in their own order: the GPU of each local rank.
    is_default
        True when Slurm's own order is as good, and is kept.
    needs_rank_file
        True when a rank is on another node than Slurm's own order would put it.
    unknown_nodes
        Nodes of the job that the fabric does not show; their traffic counts as not local.
    """

    ranks: tuple[RankPlace, ...]
    traffic: TrafficShare
    default_traffic: TrafficShare
    nodes: tuple[str, ...]
    spare_nodes: tuple[str, ...] = ()
    gpu_order: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    is_default: bool = False
    needs_rank_file: bool = False
    order: RankOrder = RankOrder.TP_CP_EP_DP_PP
    unknown_nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """What both orders are judged by."""

    grid: RankGrid
    sent: StepBytes
    rails: Rails
    graph: SwitchGraph | None
    node_gpus: int
    affinity: Mapping[int, int] | None
    domain_of: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arrangement:
    """One way to seat the ranks, and its traffic."""

    nodes: tuple[str, ...]
    ports: Ports
    seating: Seating
    traffic: TrafficShare


def place(
    model: ModelShape,
    plan: Plan,
    rails: Rails,
    nodes: Sequence[str],
    gpus_per_node: int,
    hb_domains: Mapping[str, str] | None = None,
    *,
    graph: SwitchGraph | None = None,
    order: RankOrder = RankOrder.TP_CP_EP_DP_PP,
    distribution: str = "block",
    slurm_nodes: Sequence[str] | None = None,
    node_gpus: int | None = None,
    affinity: Mapping[int, int] | None = None,
) -> Placement:
    """Choose nodes, their order, and the GPU of every rank.

    Tensor-parallel groups (with cp or ep around them, as far as there is room) stay inside an HB domain; ranks that
    talk across nodes get the same slot on each, and a slot is on one rail everywhere; nodes of one scalable unit follow
    each other, and outermost groups lie inside one where they fit. Where Slurm's own order is as good, it is kept.

    Parameters
    ----------
    nodes
        Candidates; the job takes as many as it needs, from as few scalable units as possible.
    gpus_per_node
        Ranks on one node.
    hb_domains
        Node to HB domain, for NVLink that joins several nodes; without it each node is a domain.
    graph
        Switches and cables of the fabric, for `TrafficShare.max_link_load` along real routes; without it the uplinks
        of the leaves are taken to share their traffic evenly.
    distribution
        Slurm's default to compare with: ``block`` or ``cyclic``.
    slurm_nodes
        The nodes as Slurm numbers them; by name when not given.
    node_gpus
        GPUs that a node has, when the job does not use all.
    affinity
        GPU index to HCA position, where a node's own topology tells it; see `opsk.planner.seats`.

    Raises
    ------
    PlanInfeasibleError
        The plan needs more nodes than there are, or its groups do not divide.
    InputError
        No node is on the fabric, or a number makes no sense.
    """
    node_gpus = node_gpus or gpus_per_node
    _check(plan, rails, nodes, gpus_per_node, node_gpus, distribution)
    job = _Job(
        grid=rank_grid(plan, order),
        sent=step_bytes(model, plan),
        rails=rails,
        graph=graph,
        node_gpus=node_gpus,
        affinity=affinity,
        domain_of=domain_names(nodes, hb_domains),
    )
    default = _default(job, slurm_order(nodes) if slurm_nodes is None else slurm_nodes, gpus_per_node, distribution)
    chosen = default
    for candidate in _arrangements(job, plan, nodes, gpus_per_node, default):
        if _is_better(candidate.traffic, chosen.traffic):
            chosen = candidate
    return _placement(job, chosen, default, nodes)


def _check(
    plan: Plan, rails: Rails, nodes: Sequence[str], gpus_per_node: int, node_gpus: int, distribution: str
) -> None:
    """Refuse what cannot be placed, with all reasons."""
    if not 1 <= gpus_per_node <= node_gpus:
        raise InputError(f"gpus_per_node is {gpus_per_node}, must be between 1 and the node's {node_gpus} GPUs")
    if distribution not in DISTRIBUTIONS:
        raise InputError(f"distribution {distribution!r} is none of {', '.join(DISTRIBUTIONS)}")
    known = set(nodes)
    capacity = len(known) * gpus_per_node
    if capacity < plan.gpus:
        raise PlanInfeasibleError(
            (f"the plan needs {plan.gpus} GPUs, {len(known)} nodes of {gpus_per_node} have {capacity}",),
            hint="name more nodes, or check tp x pp x cp x dp",
        )
    if not any(node in rails.attachments for node in known):
        some = ", ".join(sorted(known)[:3])
        raise InputError(
            f"none of the {len(known)} nodes ({some}, ...) is a compute node of the fabric",
            hint="see `opsk fabric` for the node names that it shows",
        )


def _default(job: _Job, nodes: Sequence[str], gpus_per_node: int, distribution: str) -> _Arrangement:
    """Seat the ranks as Slurm does when nobody says otherwise."""
    gpus = job.grid.ranks.size
    used = tuple(nodes[: math.ceil(gpus / gpus_per_node)])
    node, gpu = default_slots(gpus, len(used), gpus_per_node, distribution)
    ports = ports_of(job.rails, used, job.node_gpus, job.affinity)
    return _judged(job, used, ports, node, gpu)


def _arrangements(
    job: _Job, plan: Plan, nodes: Sequence[str], gpus_per_node: int, default: _Arrangement
) -> Iterator[_Arrangement]:
    """Seat the ranks with an eye on HB domains, units and rails: outermost groups within units, or units in a row."""
    largest = max(domain_sizes(sorted(job.domain_of.values()))) * gpus_per_node
    inner = inner_group(plan, largest)
    needed = min(_needed(plan.gpus, inner, gpus_per_node, largest), len(set(nodes)))
    block = plan.gpus // job.grid.outermost()
    tried: list[tuple[str, ...]] = []
    for block_nodes in (block // gpus_per_node if block % gpus_per_node == 0 else 1, 1):
        ordered = node_order(job.rails, nodes, needed=needed, block_nodes=block_nodes, domain_of=job.domain_of)
        if ordered in tried:
            continue
        tried.append(ordered)
        sizes = domain_sizes([job.domain_of[node] for node in ordered])
        node, slot = packed_slots(plan.gpus, inner, sizes, gpus_per_node)
        ports = ports_of(job.rails, ordered, job.node_gpus, job.affinity)
        gpu = on_rails(node, slot, ports, gpus_per_node)
        seating = default.seating
        if ordered != default.nodes or (node != seating.node).any() or (gpu != seating.gpu).any():
            yield _judged(job, ordered, ports, node, gpu)


def _needed(gpus: int, inner: int, gpus_per_node: int, domain_gpus: int) -> int:
    """Return how many nodes hold the groups of ``inner`` ranks without splitting one, or all ranks if they must split.

    Only single-node domains may stay partly empty: leaving GPUs of a larger domain idle costs whole nodes.
    """
    if inner <= gpus_per_node == domain_gpus:
        return math.ceil(gpus / inner / (gpus_per_node // inner))
    return math.ceil(gpus / gpus_per_node)


def _judged(job: _Job, nodes: tuple[str, ...], ports: Ports, node: Index, gpu: Index) -> _Arrangement:
    """Return the arrangement with its traffic."""
    seating = seating_of(node, gpu, ports, [job.domain_of.get(name, name) for name in nodes])
    flows, tensor_bytes = port_flows(job.grid, job.sent, seating, ports)
    total = float(flows.sum())
    leaf, rail = ports.leaf, ports.rail
    same_leaf = (leaf[:, None] == leaf) & (leaf >= 0)
    same_rail = same_leaf | ((rail[:, None] == rail) & (rail >= 0))
    busiest = _busiest(job, ports, flows)
    traffic = TrafficShare(
        rail_local_fraction=float(flows[same_rail].sum()) / total if total else 1.0,
        leaf_local_fraction=float(flows[same_leaf].sum()) / total if total else 1.0,
        max_link_load=busiest.load_s,
        inter_node_bytes=total,
        tp_inter_node_bytes=tensor_bytes,
        busiest_cable=busiest.cable,
    )
    return _Arrangement(nodes=nodes, ports=ports, seating=seating, traffic=traffic)


def _busiest(job: _Job, ports: Ports, flows: Flows) -> Busiest:
    """Return the busiest cable between switches, for what runs between known leaves."""
    count = len(ports.leaves)
    source, target = np.nonzero(flows)
    known = (ports.leaf[source] >= 0) & (ports.leaf[target] >= 0)
    source, target = source[known], target[known]
    pair = ports.leaf[source] * count + ports.leaf[target]
    between = np.zeros((count, count))
    between.ravel()[:] = np.bincount(pair, weights=flows[source, target], minlength=count * count)
    if job.graph is None:
        return busiest_uplinks(job.rails, ports.leaves, between, ports.bytes_per_s)
    on_tier = [guid for guid, leaf in job.rails.leaves.items() if not leaf.off_tier]
    return busiest_cable(job.graph, ports.leaves, between, on_tier)


def _is_better(ours: TrafficShare, default: TrafficShare) -> bool:
    """Tell whether a change of order pays.

    Tensor-parallel bytes between HB domains decide first, since every layer waits for them; then a tenth fewer bytes in
    all, then bytes across rails, then the busiest cable, then bytes across leaves.
    """
    scale = max(default.inter_node_bytes, ours.inter_node_bytes)
    longest = max(load for load in (ours.max_link_load, default.max_link_load, 0.0) if math.isfinite(load))
    for mine, its, least in (
        (ours.tp_inter_node_bytes, default.tp_inter_node_bytes, _SAME * scale),
        (ours.inter_node_bytes, default.inter_node_bytes, _CLEARLY * scale),
        (_not_local(ours, "rail"), _not_local(default, "rail"), _SAME * scale),
        (ours.max_link_load, default.max_link_load, _HARDLY * longest),
        (_not_local(ours, "leaf"), _not_local(default, "leaf"), _SAME * scale),
    ):
        if mine != its and abs(mine - its) > least:
            return mine < its
    return False


def _not_local(traffic: TrafficShare, what: str) -> float:
    """Return the bytes that leave their rail or leaf."""
    share = traffic.rail_local_fraction if what == "rail" else traffic.leaf_local_fraction
    return (1.0 - share) * traffic.inter_node_bytes


def _hosts(arrangement: _Arrangement) -> list[str]:
    """Return the node of each rank."""
    return [arrangement.nodes[node] for node in arrangement.seating.node.tolist()]


def _placement(job: _Job, chosen: _Arrangement, default: _Arrangement, nodes: Sequence[str]) -> Placement:
    """Write the arrangement out, rank by rank."""
    at = {name: values.tolist() for name, values in job.grid.coordinates().items()}
    local = local_ranks(chosen.seating.node).tolist()
    node, gpu = chosen.seating.node.tolist(), chosen.seating.gpu.tolist()
    ranks = []
    order: dict[int, list[int]] = {}
    for rank in range(len(node)):
        hca = chosen.ports.attached[node[rank]][gpu[rank]]
        order.setdefault(node[rank], []).append(gpu[rank])
        ranks.append(
            RankPlace(
                rank=rank,
                node=chosen.nodes[node[rank]],
                local_rank=local[rank],
                gpu=gpu[rank],
                device=hca.device if hca else None,
                rail=hca.rail if hca else None,
                leaf=hca.leaf if hca else None,
                tp_rank=at["tp"][rank],
                pp_rank=at["pp"][rank],
                cp_rank=at["cp"][rank],
                dp_rank=at["dp"][rank],
            )
        )
    used = set(chosen.nodes)
    return Placement(
        ranks=tuple(ranks),
        traffic=chosen.traffic,
        default_traffic=default.traffic,
        nodes=chosen.nodes,
        spare_nodes=tuple(name for name in slurm_order(nodes) if name not in used),
        gpu_order={chosen.nodes[index]: tuple(gpus) for index, gpus in order.items() if gpus != list(range(len(gpus)))},
        is_default=chosen is default,
        needs_rank_file=_hosts(chosen) != _hosts(default),
        order=job.grid.order,
        unknown_nodes=tuple(name for name in chosen.nodes if name not in job.rails.attachments),
    )

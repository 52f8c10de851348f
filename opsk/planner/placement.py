"""Which rank runs on which GPU, how much of the traffic then stays on its rail, and how long is a step?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from opsk.errors import InputError, PlanInfeasibleError
from opsk.planner.arrangements import MOST_NODES, packings, seat
from opsk.planner.flows import Seating
from opsk.planner.judging import Job, is_better
from opsk.planner.loads import busiest_of_axis
from opsk.planner.order import node_order, slurm_order
from opsk.planner.ranks import RankOrder, rank_grid
from opsk.planner.routes import Routes, UplinkRoutes
from opsk.planner.search import Arrangement, Found, judged, search
from opsk.planner.seating import (
    default_slots,
    domain_names,
    domain_numbers,
    inner_group,
    local_ranks,
    seating_of,
)
from opsk.planner.seats import ports_of
from opsk.planner.step_model import COMMUNICATION_ONLY, StepModel
from opsk.planner.traffic import AXES, step_bytes
from opsk.topology.rails import Rails
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

DISTRIBUTIONS = ("block", "cyclic")


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
class AxisLoad:
    """One axis of communication: ``busy_s`` is how long its busiest link is busy in a step at its full rate [s].

    ``link`` are the guids that this link goes from and to: two switches, or an HCA and its leaf.
    """

    busy_s: float
    link: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficShare:
    """How the inter-node bytes of one step travel under a placement.

    ``rail_local_fraction``: share whose two ends are on one rail; ``leaf_local_fraction``: on the same leaf;
    ``max_link_load``: bytes of one step on the busiest switch-to-switch cable, one direction, over its bytes/s [s].
    Both shares are 1 when nothing leaves a node. ``inter_node_bytes`` leaves out what stays inside an HB domain, and
    ``tp_inter_node_bytes`` is the tensor-parallel part of it, which computation waits for;
    ``busiest_cable`` are the guids that the busiest cable goes from and to, where the fabric above the leaves is known.
    ``step_s`` is the predicted time of a step, or of its communication alone where no cost model was given; ``axes``
    has what decides it, for the axes that leave a node.
    """

    rail_local_fraction: float
    leaf_local_fraction: float
    max_link_load: float
    inter_node_bytes: float
    tp_inter_node_bytes: float = 0.0
    busiest_cable: tuple[str, str] | None = None
    step_s: float = 0.0
    axes: Mapping[str, AxisLoad] = field(default_factory=dict)


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
    least_step_s
        No order of the candidates can have a shorter step [s]: the cost model's step with links as it assumes them, or
        what each node's bytes need over all its HCAs.
    is_optimal
        True when every order was judged, or the bound is reached.
    is_whole_step
        False when the steps are their communication alone, since the cluster's GPUs are not known.
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
    least_step_s: float = 0.0
    is_optimal: bool = False
    is_whole_step: bool = False

    @property
    def gap(self) -> float:
        """How much longer than the bound the step is, as a share of the bound."""
        return self.traffic.step_s / self.least_step_s - 1.0 if self.least_step_s > 0 else 0.0


_MOST_SPARES = 128
"""So many candidates beyond those needed are looked at when an order is improved."""


def place(
    model: ModelShape,
    plan: Plan,
    rails: Rails,
    nodes: Sequence[str],
    gpus_per_node: int,
    hb_domains: Mapping[str, str] | None = None,
    *,
    routes: Routes | None = None,
    step: StepModel = COMMUNICATION_ONLY,
    order: RankOrder = RankOrder.TP_CP_EP_DP_PP,
    distribution: str = "block",
    slurm_nodes: Sequence[str] | None = None,
    node_gpus: int | None = None,
    affinity: Mapping[str, Mapping[int, str]] | None = None,
) -> Placement:
    """Choose nodes, their order, and the GPU of every rank, for the shortest predicted step.

    Tensor-parallel groups (with cp or ep around them, as far as there is room) stay inside an HB domain; ranks that
    talk across nodes get the same slot on each, and a slot is on one rail everywhere; nodes of one scalable unit follow
    each other, and outermost groups lie inside one where they fit. All orders of up to eight candidates are compared,
    and those near a good one of more. Where Slurm's own order is as good, it is kept.

    Parameters
    ----------
    nodes
        Candidates; the job takes as many as it needs, from as few scalable units as possible.
    gpus_per_node
        Ranks on one node.
    hb_domains
        Node to HB domain, for NVLink that joins several nodes; without it each node is a domain.
    routes
        How traffic runs between leaves; without it the uplinks of the leaves are taken to share their traffic evenly.
    step
        What the cost model says of the plan (`opsk.planner.step_model`); without it only links' times are compared.
    distribution
        Slurm's default to compare with: ``block`` or ``cyclic``.
    slurm_nodes
        The nodes as Slurm numbers them; by name when not given.
    node_gpus
        GPUs that a node has, when the job does not use all.
    affinity
        Node to GPU index to HCA guid, where the node's own topology tells it.

    Raises
    ------
    PlanInfeasibleError
        The plan needs more nodes than there are, or its groups do not divide.
    InputError
        No node is on the fabric, or a number makes no sense.
    """
    node_gpus = node_gpus or gpus_per_node
    _check(plan, rails, nodes, gpus_per_node, node_gpus, distribution)
    domain_of = domain_names(nodes, hb_domains)
    candidates = slurm_order(nodes)
    default_nodes = tuple(slurm_order(nodes) if slurm_nodes is None else slurm_nodes)
    default_nodes = default_nodes[: math.ceil(plan.gpus / gpus_per_node)]
    largest = _largest_domain(candidates, domain_of) * gpus_per_node
    ways = packings(plan.gpus, inner_group(plan, largest), gpus_per_node, largest, len(candidates))
    orders = _good_orders(plan, rails, nodes, gpus_per_node, domain_of, order, needed=ways[0].nodes)
    spares = candidates if len(candidates) <= max(MOST_NODES, ways[0].nodes + _MOST_SPARES) else ()
    universe = tuple(dict.fromkeys([*default_nodes, *(name for row in orders for name in row), *spares]))
    job = Job(
        grid=rank_grid(plan, order),
        sent=step_bytes(model, plan),
        nodes=universe,
        ports=ports_of(rails, universe, node_gpus, affinity),
        domains=domain_numbers(universe, domain_of),
        usable_gpus=gpus_per_node,
        routes=routes or UplinkRoutes(rails),
        step=step,
    )
    number = {name: index for index, name in enumerate(universe)}
    default = _default(job, [number[name] for name in default_nodes], distribution)
    best = default
    for row in orders:
        at = [number[name] for name in row]
        for seating in seat(job, at, ways[0]):
            if not _same_seats(seating, default):
                candidate = judged(job, at, seating)
                best = candidate if is_better(candidate.verdict, best.verdict, job.step) else best
    found = search(job, best, [number[name] for name in (spares or best_names(job, best))], ways)
    return _placement(job, found, default, rails, candidates, order)


def best_names(job: Job, arrangement: Arrangement) -> tuple[str, ...]:
    """Return the nodes of an arrangement in order."""
    return tuple(job.nodes[node] for node in arrangement.order)


def _largest_domain(nodes: Sequence[str], domain_of: Mapping[str, str]) -> int:
    """Return how many nodes the largest HB domain joins."""
    sizes: dict[str, int] = {}
    for node in nodes:
        sizes[domain_of[node]] = sizes.get(domain_of[node], 0) + 1
    return max(sizes.values())


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


def _default(job: Job, order: Sequence[int], distribution: str) -> Arrangement:
    """Seat the ranks as Slurm does when nobody says otherwise."""
    place, gpu = default_slots(int(job.grid.ranks.size), len(order), job.usable_gpus, distribution)
    return judged(job, order, seating_of(np.array(order)[place], gpu, job.ports, job.domains))


def _good_orders(
    plan: Plan,
    rails: Rails,
    nodes: Sequence[str],
    gpus_per_node: int,
    domain_of: Mapping[str, str],
    order: RankOrder,
    *,
    needed: int,
) -> list[tuple[str, ...]]:
    """Return orders with units in a row: outermost groups of the plan within units, and not."""
    block = plan.gpus // rank_grid(plan, order).outermost()
    found: list[tuple[str, ...]] = []
    for block_nodes in (block // gpus_per_node if block % gpus_per_node == 0 else 1, 1):
        row = node_order(rails, nodes, needed=needed, block_nodes=block_nodes, domain_of=domain_of)
        if row not in found:
            found.append(row)
    return found


def _same_seats(seating: Seating, default: Arrangement) -> bool:
    """Tell whether every rank sits where Slurm puts it."""
    known = default.seating
    return bool((seating.node == known.node).all() and (seating.gpu == known.gpu).all())


def _traffic(job: Job, arrangement: Arrangement) -> TrafficShare:
    """Return how the bytes of one arrangement travel."""
    verdict, loads = arrangement.verdict, arrangement.link_seconds(job)
    total, link = float(verdict.all_bytes[0]), int(verdict.link[0])
    cable = job.routes.ends(link) if link >= 0 else ("", "")
    return TrafficShare(
        rail_local_fraction=1.0 - float(verdict.off_rail_bytes[0]) / total if total else 1.0,
        leaf_local_fraction=1.0 - float(verdict.off_leaf_bytes[0]) / total if total else 1.0,
        max_link_load=float(verdict.max_link_load[0]),
        inter_node_bytes=total,
        tp_inter_node_bytes=float(verdict.tp_bytes[0]),
        busiest_cable=cable if all(cable) else None,
        step_s=float(verdict.step_s[0]),
        axes={
            axis: AxisLoad(busy_s=float(busy), link=tuple(busiest_of_axis(loads, axis, 0, job.ports, job.routes)))
            for axis, busy in zip(AXES, verdict.axis_s[0], strict=True)
            if busy > 0
        },
    )


def _placement(
    job: Job, found: Found, default: Arrangement, rails: Rails, candidates: Sequence[str], rank_order: RankOrder
) -> Placement:
    """Write the arrangement out, rank by rank."""
    chosen = found.arrangement
    at = {name: values.tolist() for name, values in job.grid.coordinates().items()}
    local = local_ranks(chosen.seating.node[0]).tolist()
    node, gpu = chosen.seating.node[0].tolist(), chosen.seating.gpu[0].tolist()
    ranks = []
    gpus_of: dict[int, list[int]] = {}
    for rank in range(len(node)):
        hca = job.ports.attached(node[rank], gpu[rank])
        gpus_of.setdefault(node[rank], []).append(gpu[rank])
        ranks.append(
            RankPlace(
                rank=rank,
                node=job.nodes[node[rank]],
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
    names = best_names(job, chosen)
    default_traffic = _traffic(job, default)
    return Placement(
        ranks=tuple(ranks),
        traffic=default_traffic if chosen is default else _traffic(job, chosen),
        default_traffic=default_traffic,
        nodes=names,
        spare_nodes=tuple(name for name in candidates if name not in set(names)),
        gpu_order={job.nodes[at]: tuple(gpus) for at, gpus in gpus_of.items() if gpus != list(range(len(gpus)))},
        is_default=chosen is default,
        needs_rank_file=bool((chosen.seating.node != default.seating.node).any()),
        order=rank_order,
        unknown_nodes=tuple(name for name in names if name not in rails.attachments),
        least_step_s=found.least_s,
        is_optimal=found.is_optimal,
        is_whole_step=job.step.is_whole,
    )

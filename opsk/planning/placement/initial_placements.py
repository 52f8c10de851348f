"""Builds the initial placements of a job: Slurm's own, and a few that keep units and rails together."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from opsk.errors import InputError, PlanInfeasibleError
from opsk.fabric.rails import Rails
from opsk.planning.placement.node_order import node_order, slurm_order
from opsk.planning.placement.rank_placement import (
    Job,
    build_rank_placement,
    compute_default_slots,
    domain_names,
    domain_numbers,
    inner_group,
    is_better,
)
from opsk.planning.placement.search import MAX_NODES, Arrangement, Packing, judge_order, list_packings, place_order
from opsk.planning.placement.step_model import COMMUNICATION_ONLY, StepModel
from opsk.planning.ranks import RankOrder, rank_grid
from opsk.planning.routing.hca_ports import Ports, build_ports
from opsk.planning.routing.routes import Routes, UplinkRoutes
from opsk.planning.routing.traffic import RankPlacement, StepBytes, step_bytes
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

DISTRIBUTIONS = ("block", "cyclic")


_MAX_SPARES = 128
"""Candidates beyond the required ones that are tried when an order is improved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementProblem:
    """A job whose ranks are to be placed on some nodes of a fabric.

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
        The step model of the plan (`opsk.planning.placement.step_model`); without it only the times of links are
        compared.
    distribution
        Slurm's default to compare with: ``block`` or ``cyclic``.
    slurm_nodes
        The nodes as Slurm numbers them; by name when not given.
    node_gpus
        GPUs that a node has, when the job does not use all.
    affinity
        Node to GPU index to HCA guid, where it is known from the node's own topology.
    """

    model: ModelShape
    plan: Plan
    rails: Rails
    nodes: Sequence[str]
    gpus_per_node: int
    hb_domains: Mapping[str, str] | None = None
    routes: Routes | None = None
    step: StepModel = COMMUNICATION_ONLY
    order: RankOrder = RankOrder.TP_CP_EP_DP_PP
    distribution: str = "block"
    slurm_nodes: Sequence[str] | None = None
    node_gpus: int | None = None
    affinity: Mapping[str, Mapping[int, str]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A job ready to be placed: Slurm's own arrangement, the best of a few good ones, and the search space.

    ``spares`` are the nodes, as ``job`` numbers them, that a search may use; empty for those of ``best``.
    """

    job: Job
    default: Arrangement
    best: Arrangement
    packings: tuple[Packing, ...]
    candidates: tuple[str, ...]
    spares: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialPlacements:
    """A job and its initial placements; ``default_order`` are Slurm's nodes as ``job`` numbers them.

    ``orders`` are the good orders of nodes, ``distribution`` is Slurm's; the rest is explained at `Prepared`.
    """

    job: Job
    default_order: tuple[int, ...]
    orders: tuple[tuple[int, ...], ...]
    distribution: str
    packings: tuple[Packing, ...]
    candidates: tuple[str, ...]
    spares: tuple[int, ...]

    def build_default_placement(self) -> RankPlacement:
        """Place the ranks by Slurm's default."""
        job, order = self.job, self.default_order
        place, gpu = compute_default_slots(int(job.grid.ranks.size), len(order), job.usable_gpus, self.distribution)
        return build_rank_placement(np.array(order)[place], gpu, job.ports, job.domains)

    def build_other_placements(self, default: RankPlacement) -> Iterator[tuple[tuple[int, ...], RankPlacement]]:
        """Yield the good orders with their placements, except those equal to Slurm's."""
        for order in self.orders:
            for rank_placement in place_order(self.job, order, self.packings[0]):
                if not _is_same_placement(rank_placement, default):
                    yield order, rank_placement


def prepare(problem: PlacementProblem) -> Prepared:
    """Evaluate Slurm's order and a few good ones; errors as for `place`."""
    return judge_initial_placements(build_initial_placements(problem))


def judge_initial_placements(initial: InitialPlacements, default: Arrangement | None = None) -> Prepared:
    """Evaluate the initial placements of a job; ``default`` is Slurm's own, where it was evaluated before."""
    job = initial.job
    if default is None:
        default = judge_order(job, initial.default_order, initial.build_default_placement())
    best = default
    for nodes_in_order, rank_placement in initial.build_other_placements(default.rank_placement):
        candidate = judge_order(job, nodes_in_order, rank_placement)
        best = candidate if is_better(candidate.verdict, best.verdict, job.step) else best
    return Prepared(
        job=job,
        default=default,
        best=best,
        packings=initial.packings,
        candidates=initial.candidates,
        spares=initial.spares,
    )


def build_initial_placements(
    problem: PlacementProblem,
    *,
    known_ports: dict[tuple[str, ...], Ports] | None = None,
    sent: StepBytes | None = None,
) -> InitialPlacements:
    """Build the initial placements of a job; errors as for `place`.

    ``known_ports`` caches the HCAs of node lists across jobs on these nodes; ``sent`` are the bytes that the ranks
    send, where they are known already.
    """
    plan, rails, nodes, gpus_per_node = problem.plan, problem.rails, problem.nodes, problem.gpus_per_node
    node_gpus = problem.node_gpus or gpus_per_node
    _check(plan, rails, nodes, gpus_per_node, node_gpus, problem.distribution)
    domain_of = domain_names(nodes, problem.hb_domains)
    candidates = slurm_order(nodes)
    default_nodes = tuple(candidates if problem.slurm_nodes is None else problem.slurm_nodes)
    default_nodes = default_nodes[: math.ceil(plan.gpus / gpus_per_node)]
    largest = _count_largest_domain(candidates, domain_of) * gpus_per_node
    packings = list_packings(plan.gpus, inner_group(plan, largest), gpus_per_node, largest, len(candidates))
    orders = _list_good_orders(plan, rails, nodes, gpus_per_node, domain_of, problem.order, packings[0])
    spares = candidates if len(candidates) <= max(MAX_NODES, packings[0].nodes + _MAX_SPARES) else ()
    universe = tuple(dict.fromkeys([*default_nodes, *(name for row in orders for name in row), *spares]))
    ports = {} if known_ports is None else known_ports
    if universe not in ports:
        ports[universe] = build_ports(rails, universe, node_gpus, problem.affinity)
    job = Job(
        grid=rank_grid(plan, problem.order),
        sent=sent or step_bytes(problem.model, plan),
        nodes=universe,
        ports=ports[universe],
        domains=domain_numbers(universe, domain_of),
        usable_gpus=gpus_per_node,
        routes=problem.routes or UplinkRoutes(rails),
        step=problem.step,
    )
    number = {name: index for index, name in enumerate(universe)}
    return InitialPlacements(
        job=job,
        default_order=tuple(number[name] for name in default_nodes),
        orders=tuple(tuple(number[name] for name in row) for row in orders),
        distribution=problem.distribution,
        packings=packings,
        candidates=candidates,
        spares=tuple(number[name] for name in spares),
    )


def _count_largest_domain(nodes: Sequence[str], domain_of: Mapping[str, str]) -> int:
    """Return the number of nodes of the largest HB domain."""
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


def _list_good_orders(
    plan: Plan,
    rails: Rails,
    nodes: Sequence[str],
    gpus_per_node: int,
    domain_of: Mapping[str, str],
    order: RankOrder,
    packing: Packing,
) -> list[tuple[str, ...]]:
    """Return orders with units in a row, and with each kind of group that spans nodes inside units.

    These are the outermost groups of the plan (stages, or replicas), expert-parallel and context-parallel groups.
    """
    sizes = (plan.gpus // rank_grid(plan, order).outermost(), plan.tp * plan.ep, plan.tp * plan.cp)
    blocks = dict.fromkeys(max(size // gpus_per_node, 1) for size in sizes if size % gpus_per_node == 0)
    inner = packing.inner // gpus_per_node if packing.inner % gpus_per_node == 0 else 1
    pairs = [(block, inner) for block in (*blocks, 1)]
    if len(set(domain_of.values())) < len(domain_of):
        pairs = [*((block, block) for block in blocks), *pairs]
    orders: list[tuple[str, ...]] = []
    for block, group in pairs:
        row = node_order(rails, nodes, needed=packing.nodes, block_nodes=block, domain_of=domain_of, group_nodes=group)
        if row not in orders:
            orders.append(row)
    return orders


def _is_same_placement(rank_placement: RankPlacement, default: RankPlacement) -> bool:
    """Return whether every rank is where Slurm puts it."""
    return bool((rank_placement.node == default.node).all() and (rank_placement.gpu == default.gpu).all())

"""Which ways to seat a job are there to begin with: Slurm's own, and a few that keep units and rails together?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from opsk.errors import InputError, PlanInfeasibleError
from opsk.fabric.rails import Rails
from opsk.planning.placement.arrangements import MOST_NODES, Packing, packings, seat
from opsk.planning.placement.judging import Job, is_better
from opsk.planning.placement.node_order import node_order, slurm_order
from opsk.planning.placement.search import Arrangement, judged
from opsk.planning.placement.seating import default_slots, domain_names, domain_numbers, inner_group, seating_of
from opsk.planning.placement.step_model import COMMUNICATION_ONLY, StepModel
from opsk.planning.ranks import RankOrder, rank_grid
from opsk.planning.routing.hca_seats import Ports, ports_of
from opsk.planning.routing.hca_traffic import Seating
from opsk.planning.routing.rank_traffic import StepBytes, step_bytes
from opsk.planning.routing.routes import Routes, UplinkRoutes
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

DISTRIBUTIONS = ("block", "cyclic")


_MOST_SPARES = 128
"""So many candidates beyond those needed are looked at when an order is improved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A job ready to be placed: Slurm's own arrangement, the best of a few good ones, and what else may be tried.

    ``spares`` are the nodes, as ``job`` numbers them, that a search may use; empty for those of ``best``.
    """

    job: Job
    default: Arrangement
    best: Arrangement
    ways: tuple[Packing, ...]
    candidates: tuple[str, ...]
    spares: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A job and the ways to seat it that are judged first; ``default_order`` are Slurm's nodes as ``job`` numbers them.

    ``orders`` are the good orders of nodes, ``distribution`` is Slurm's; the rest is explained at `Prepared`.
    """

    job: Job
    default_order: tuple[int, ...]
    orders: tuple[tuple[int, ...], ...]
    distribution: str
    ways: tuple[Packing, ...]
    candidates: tuple[str, ...]
    spares: tuple[int, ...]

    def default_seating(self) -> Seating:
        """Seat the ranks as Slurm does when nobody says otherwise."""
        job, order = self.job, self.default_order
        place, gpu = default_slots(int(job.grid.ranks.size), len(order), job.usable_gpus, self.distribution)
        return seating_of(np.array(order)[place], gpu, job.ports, job.domains)

    def other_seatings(self, default: Seating) -> Iterator[tuple[tuple[int, ...], Seating]]:
        """Yield the good orders with their seats, those of Slurm left out."""
        for order in self.orders:
            for seating in seat(self.job, order, self.ways[0]):
                if not _same_seats(seating, default):
                    yield order, seating


def prepare(
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
) -> Prepared:
    """Judge Slurm's order and a few good ones; parameters and errors as for `place`."""
    begun = begin(
        model,
        plan,
        rails,
        nodes,
        gpus_per_node,
        hb_domains,
        routes=routes,
        step=step,
        order=order,
        distribution=distribution,
        slurm_nodes=slurm_nodes,
        node_gpus=node_gpus,
        affinity=affinity,
    )
    return compared(begun)


def compared(begun: Begun, default: Arrangement | None = None) -> Prepared:
    """Judge the ways to seat a job; ``default`` is Slurm's own, where it was judged before."""
    job = begun.job
    if default is None:
        default = judged(job, begun.default_order, begun.default_seating())
    best = default
    for nodes_in_order, seating in begun.other_seatings(default.seating):
        candidate = judged(job, nodes_in_order, seating)
        best = candidate if is_better(candidate.verdict, best.verdict, job.step) else best
    return Prepared(
        job=job, default=default, best=best, ways=begun.ways, candidates=begun.candidates, spares=begun.spares
    )


def begin(
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
    known_ports: dict[tuple[str, ...], Ports] | None = None,
    sent: StepBytes | None = None,
) -> Begun:
    """Find the ways to seat a job that are judged first; parameters and errors as for `place`.

    ``known_ports`` keeps the HCAs of rows of nodes from one job of these nodes to the next; ``sent`` is what the ranks
    send, where that was worked out before.
    """
    node_gpus = node_gpus or gpus_per_node
    _check(plan, rails, nodes, gpus_per_node, node_gpus, distribution)
    domain_of = domain_names(nodes, hb_domains)
    candidates = slurm_order(nodes)
    default_nodes = tuple(candidates if slurm_nodes is None else slurm_nodes)
    default_nodes = default_nodes[: math.ceil(plan.gpus / gpus_per_node)]
    largest = _largest_domain(candidates, domain_of) * gpus_per_node
    ways = packings(plan.gpus, inner_group(plan, largest), gpus_per_node, largest, len(candidates))
    orders = _good_orders(plan, rails, nodes, gpus_per_node, domain_of, order, ways[0])
    spares = candidates if len(candidates) <= max(MOST_NODES, ways[0].nodes + _MOST_SPARES) else ()
    universe = tuple(dict.fromkeys([*default_nodes, *(name for row in orders for name in row), *spares]))
    ports = {} if known_ports is None else known_ports
    if universe not in ports:
        ports[universe] = ports_of(rails, universe, node_gpus, affinity)
    job = Job(
        grid=rank_grid(plan, order),
        sent=sent or step_bytes(model, plan),
        nodes=universe,
        ports=ports[universe],
        domains=domain_numbers(universe, domain_of),
        usable_gpus=gpus_per_node,
        routes=routes or UplinkRoutes(rails),
        step=step,
    )
    number = {name: index for index, name in enumerate(universe)}
    return Begun(
        job=job,
        default_order=tuple(number[name] for name in default_nodes),
        orders=tuple(tuple(number[name] for name in row) for row in orders),
        distribution=distribution,
        ways=ways,
        candidates=candidates,
        spares=tuple(number[name] for name in spares),
    )


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


def _good_orders(
    plan: Plan,
    rails: Rails,
    nodes: Sequence[str],
    gpus_per_node: int,
    domain_of: Mapping[str, str],
    order: RankOrder,
    packing: Packing,
) -> list[tuple[str, ...]]:
    """Return orders with units in a row, and with each kind of group that spans nodes kept within units.

    These are the outermost groups of the plan (stages, or replicas), expert-parallel and context-parallel groups.
    """
    sizes = (plan.gpus // rank_grid(plan, order).outermost(), plan.tp * plan.ep, plan.tp * plan.cp)
    blocks = dict.fromkeys(max(size // gpus_per_node, 1) for size in sizes if size % gpus_per_node == 0)
    inner = packing.inner // gpus_per_node if packing.inner % gpus_per_node == 0 else 1
    pairs = [(block, inner) for block in (*blocks, 1)]
    if len(set(domain_of.values())) < len(domain_of):
        pairs = [*((block, block) for block in blocks), *pairs]
    found: list[tuple[str, ...]] = []
    for block, group in pairs:
        row = node_order(rails, nodes, needed=packing.nodes, block_nodes=block, domain_of=domain_of, group_nodes=group)
        if row not in found:
            found.append(row)
    return found


def _same_seats(seating: Seating, default: Seating) -> bool:
    """Tell whether every rank sits where Slurm puts it."""
    return bool((seating.node == default.node).all() and (seating.gpu == default.gpu).all())

"""Places ranks on GPUs, and reports the rail-local share of their traffic and the predicted step time.

Unmodified scripts take the master address from the first node that Slurm lists. With rank 0 on another node they would
wait forever, so anything that reorders ranks without changing the script keeps rank 0 there (`anchor_rank_0`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from opsk.fabric.rails import Rails
from opsk.planning.placement.initial_placements import DISTRIBUTIONS, PlacementProblem, Prepared, prepare
from opsk.planning.placement.node_order import unit_of_nodes
from opsk.planning.placement.rank_placement import SAME, Job, local_ranks
from opsk.planning.placement.search import Arrangement, PlacementResult, search
from opsk.planning.ranks import RankOrder
from opsk.planning.routing.loads import busiest_of_axis
from opsk.planning.routing.traffic import AXES

__all__ = ["DISTRIBUTIONS", "AxisLoad", "Placement", "RankPlace", "TrafficShare", "build_placement", "place"]


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
    """Ranks in rank order, their traffic, and the traffic of Slurm's default order.

    Parameters
    ----------
    nodes
        Nodes that the job uses, in the order in which ranks fill them.
    spare_nodes
        Candidates that it leaves free.
    gpu_order
        For nodes whose GPUs do not take local ranks in their own order: the GPU of each local rank.
    is_default
        True when Slurm's own order is as good, and is used.
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
    busy
        Share of a step that each used link is busy, by the guids of its ends: two switches, or an HCA and its leaf;
        empty unless it was requested.
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
    busy: Mapping[tuple[str, str], float] = field(default_factory=dict)

    @property
    def gap(self) -> float:
        """How much longer than the bound the step is, as a share of the bound."""
        return self.traffic.step_s / self.least_step_s - 1.0 if self.least_step_s > 0 else 0.0


def place(problem: PlacementProblem, *, with_links: bool = False, searching: bool = True) -> Placement:
    """Choose nodes, their order, and the GPU of every rank, for the shortest predicted step.

    Tensor-parallel groups (with cp or ep around them, as far as there is room) stay inside an HB domain; ranks that
    communicate across nodes get the same slot on each, and a slot is on one rail everywhere; nodes of one unit follow
    each other, and outermost groups lie inside one where they fit. All orders of up to eight candidates are compared,
    and those near a good one of more. Where Slurm's own order is as good, it is used.

    Parameters
    ----------
    with_links
        Report how busy each link is, for rendering.
    searching
        False to take the best of a few good orders, which bounds the response time.

    Raises
    ------
    PlanInfeasibleError
        The plan needs more nodes than there are, or its groups do not divide.
    InputError
        No node is on the fabric, or a number makes no sense.
    """
    ready = prepare(problem)
    within = (ready.spares or ready.best.order) if searching else ()
    result = search(ready.job, ready.best, within, ready.packings)
    placement = build_placement(ready, result, problem.rails)
    return replace(placement, busy=link_shares(ready.job, result.arrangement)) if with_links else placement


def list_nodes(job: Job, arrangement: Arrangement) -> tuple[str, ...]:
    """Return the nodes of an arrangement in order."""
    return tuple(job.nodes[node] for node in arrangement.order)


def _compute_traffic(job: Job, arrangement: Arrangement) -> TrafficShare:
    """Return the traffic shares of one arrangement."""
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


def link_shares(job: Job, arrangement: Arrangement) -> dict[tuple[str, str], float]:
    """Return the share of a step that each used link is busy, by the guids of its ends."""
    loads, ports = arrangement.link_seconds(job), job.ports
    step_s = float(arrangement.verdict.step_s[0])
    busy: dict[tuple[str, str], float] = {}
    for link, seconds in zip(loads.links.tolist(), sum(loads.switches[axis][0] for axis in AXES), strict=True):
        ends = job.routes.ends(link)
        busy[ends] = max(busy.get(ends, 0.0), float(seconds) / step_s)
    sent, received = np.split(np.sum([loads.ports[axis][0] for axis in AXES], axis=0), 2)
    for number, hca in enumerate(ports.hcas):
        if hca is not None:
            busy[hca.guid, hca.leaf] = float(sent[number]) / step_s
            busy[hca.leaf, hca.guid] = float(received[number]) / step_s
    return {ends: share for ends, share in busy.items() if share > 0}


def build_placement(ready: Prepared, result: PlacementResult, rails: Rails) -> Placement:
    """Return the placement of an arrangement, rank by rank."""
    job, default, chosen = ready.job, ready.default, result.arrangement
    coordinates = {name: values.tolist() for name, values in job.grid.coordinates().items()}
    local = local_ranks(chosen.rank_placement.node[0]).tolist()
    node, gpu, port = (
        column[0].tolist()
        for column in (chosen.rank_placement.node, chosen.rank_placement.gpu, chosen.rank_placement.port)
    )
    hcas = [(hca.device, hca.rail, hca.leaf) if hca else (None, None, None) for hca in job.ports.hcas]
    ranks = []
    gpus_of: dict[int, list[int]] = {}
    for rank, node_number in enumerate(node):
        device, rail, leaf = hcas[port[rank]]
        gpus_of.setdefault(node_number, []).append(gpu[rank])
        ranks.append(
            RankPlace(
                rank=rank,
                node=job.nodes[node_number],
                local_rank=local[rank],
                gpu=gpu[rank],
                device=device,
                rail=rail,
                leaf=leaf,
                tp_rank=coordinates["tp"][rank],
                pp_rank=coordinates["pp"][rank],
                cp_rank=coordinates["cp"][rank],
                dp_rank=coordinates["dp"][rank],
            )
        )
    names = list_nodes(job, chosen)
    default_traffic = _compute_traffic(job, default)
    return Placement(
        ranks=tuple(ranks),
        traffic=default_traffic if chosen is default else _compute_traffic(job, chosen),
        default_traffic=default_traffic,
        nodes=names,
        spare_nodes=tuple(name for name in ready.candidates if name not in set(names)),
        gpu_order={job.nodes[node]: tuple(gpus) for node, gpus in gpus_of.items() if gpus != list(range(len(gpus)))},
        is_default=chosen is default,
        needs_rank_file=bool((chosen.rank_placement.node != default.rank_placement.node).any()),
        order=job.grid.order,
        unknown_nodes=tuple(name for name in names if name not in rails.attachments),
        least_step_s=result.least_s,
        is_optimal=result.is_optimal,
        is_whole_step=job.step.is_whole,
    )


def anchor_rank_0(
    placement: Placement, first: str, rails: Rails, prepare: Callable[[Sequence[str]], Prepared]
) -> Placement | None:
    """Return the placement, or one like it that begins on ``first``; ``None`` where that is no better than Slurm's.

    Parameters
    ----------
    prepared
        Judges the job on nodes in just this order.
    """
    if placement.ranks[0].node == first:
        return placement
    if first not in placement.nodes:
        return None
    best: Placement | None = None
    limit_s = placement.default_traffic.step_s * (1.0 - SAME)
    for order in _orders(placement.nodes, first, unit_of_nodes(rails, placement.nodes)):
        ready = prepare(order)
        result = PlacementResult(arrangement=ready.default, least_s=placement.least_step_s, is_optimal=False)
        candidate = build_placement(ready, result, rails)
        if candidate.ranks[0].node == first and candidate.traffic.step_s < limit_s:
            best, limit_s = candidate, candidate.traffic.step_s
    return best


def _orders(nodes: Sequence[str], first: str, units: dict[str, int]) -> Iterator[tuple[str, ...]]:
    """Yield the order turned until ``first`` leads, with it exchanged, and with its unit in front."""
    place = nodes.index(first)
    yield (*nodes[place:], *nodes[:place])
    yield tuple(nodes[0] if node == first else first if number == 0 else node for number, node in enumerate(nodes))
    same_unit = [node for node in nodes if units[node] == units[first] and node != first]
    yield (first, *same_unit, *(node for node in nodes if units[node] != units[first]))

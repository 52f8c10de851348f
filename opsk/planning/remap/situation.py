"""Prepares the state of a running job, its idle GPUs and its link loads once, for use after every failure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from opsk.costmodel.efficiency.default import DEFAULT
from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.errors import InputError
from opsk.fabric.rails import Rails
from opsk.hardware.spec import ClusterSpec
from opsk.planning.placement.node_order import slurm_order, unit_of_nodes
from opsk.planning.placement.rank_placement import (
    Job,
    Verdicts,
    build_rank_placement,
    domain_names,
    domain_numbers,
    judge,
)
from opsk.planning.placement.step_model import COMMUNICATION_ONLY, StepModel
from opsk.planning.ranks import RankOrder, rank_grid
from opsk.planning.remap.baseline_loads import BaselineLoads, compute_baseline, evaluate_change
from opsk.planning.routing.hca_ports import Index, build_ports
from opsk.planning.routing.routes import Routes, UplinkRoutes
from opsk.planning.routing.traffic import RankPlacement, step_bytes
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

Mask = npt.NDArray[np.bool_]
Slots = Sequence[tuple[str, int]]
"""Node and GPU of every rank, in rank order."""

_MAX_FREE = 512
_MAX_FREE_PER_UNIT = 64
"""Maximum free nodes that are considered: further ones of a unit have the same cabling."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """The nodes that matter to a job.

    Parameters
    ----------
    spares
        Nodes that the job holds beyond those that its ranks use.
    free
        Nodes that no job holds and that this one could get.
    batch_host
        Where the batch script runs; ``None`` when that is not known.
    hb_domains
        Node to HB domain, where several nodes share one.
    node_gpus
        GPUs that a node has.
    held_gpus
        GPU indices that the job holds of a node; all of a node that is not in it.
    affinity
        As `opsk.planning.routing.hca_ports.build_ports` takes it.
    """

    node_gpus: int
    spares: Sequence[str] = ()
    free: Sequence[str] = ()
    batch_host: str | None = None
    hb_domains: Mapping[str, str] | None = None
    held_gpus: Mapping[str, Sequence[int]] | None = None
    affinity: Mapping[str, Mapping[int, str]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """A running job, prepared for remapping after a failure.

    ``job.nodes`` are the nodes in use, then spares that the job holds, then free nodes; ``used``, ``held`` and ``free``
    mark them. ``idle`` marks GPUs without a rank, on nodes that the job holds (only those that it holds) and on
    free ones; ``not_held`` those of its nodes that it does not hold. ``unit`` is the scalable unit of each node, and
    ``slurm_place`` its place in Slurm's order of names.
    """

    model: ModelShape
    plan: Plan
    order: RankOrder
    job: Job
    rank_placement: RankPlacement
    verdict: Verdicts
    baseline: BaselineLoads
    used: Mask
    held: Mask
    idle: Mask
    not_held: Mask
    unit: Index
    slurm_place: Index
    domain_of: Mapping[str, str]
    rails: Rails
    batch_host: str | None
    cluster: ClusterSpec | None
    efficiency: Efficiency

    @property
    def free(self) -> Mask:
        """Return the nodes that no job holds."""
        return ~self.held

    @property
    def node_gpus(self) -> int:
        """Return the GPUs of a node."""
        return int(self.job.ports.port.shape[1])

    @property
    def ranks_per_node(self) -> int:
        """Return the most ranks that a node has."""
        return int(np.bincount(self.rank_placement.node[0]).max())

    def number(self, node: str) -> int | None:
        """Return the number of a node in ``job.nodes``."""
        try:
            return self.job.nodes.index(node)
        except ValueError:
            return None


def prepare(
    model: ModelShape,
    plan: Plan,
    rails: Rails,
    slots: Slots,
    hosts: Hosts,
    *,
    routes: Routes | None = None,
    step: StepModel = COMMUNICATION_ONLY,
    order: RankOrder = RankOrder.TP_CP_EP_DP_PP,
    cluster: ClusterSpec | None = None,
    efficiency: Efficiency = DEFAULT,
) -> Situation:
    """Prepare a job as it runs today.

    Parameters
    ----------
    slots
        Node and GPU of every rank, in rank order.
    cluster, efficiency
        The inputs of ``step``: plans of another size are predicted with them; the cluster as it is cabled
        (`opsk.planning.placement.step_model.as_cabled`).

    Raises
    ------
    InputError
        The slots do not match the plan, two ranks share one, or one is on a GPU that no node has.
    """
    _check(plan, slots, hosts)
    used = list(dict.fromkeys(node for node, _ in slots))
    spares = [node for node in slurm_order(hosts.spares) if node not in set(used)]
    domain_of = domain_names([*used, *spares, *hosts.free], hosts.hb_domains)
    free = _select_free_nodes(rails, [*used, *spares], hosts.free, domain_of)
    universe = (*used, *spares, *free)
    number = {node: position for position, node in enumerate(universe)}
    ports = build_ports(rails, universe, hosts.node_gpus, hosts.affinity)
    domains = domain_numbers(universe, domain_of)
    job = Job(
        grid=rank_grid(plan, order),
        sent=step_bytes(model, plan),
        nodes=universe,
        ports=ports,
        domains=domains,
        usable_gpus=hosts.node_gpus,
        routes=routes or UplinkRoutes(rails),
        step=step,
    )
    node = np.array([number[name] for name, _ in slots], dtype=np.int64)
    gpu = np.array([index for _, index in slots], dtype=np.int64)
    rank_placement = build_rank_placement(node, gpu, ports, domains)
    taken = np.zeros(ports.port.shape, dtype=np.bool_)
    taken[node, gpu] = True
    not_held = _find_not_held(universe, len(used) + len(spares), hosts)
    units = unit_of_nodes(rails, universe)
    baseline = compute_baseline(job, rank_placement)
    places = np.arange(len(universe))
    return Situation(
        model=model,
        plan=plan,
        order=order,
        job=job,
        rank_placement=rank_placement,
        verdict=evaluate_change(job, baseline, rank_placement) or judge(job, rank_placement),
        baseline=baseline,
        used=places < len(used),
        held=places < len(used) + len(spares),
        idle=~taken & ~not_held,
        not_held=not_held & ~taken,
        slurm_place=_rank_by_slurm_order(universe),
        unit=np.array([units[name] for name in universe], dtype=np.int64),
        domain_of={name: domain_of[name] for name in universe},
        rails=rails,
        batch_host=hosts.batch_host,
        cluster=cluster,
        efficiency=efficiency,
    )


def _rank_by_slurm_order(nodes: Sequence[str]) -> Index:
    """Return the place of each node in Slurm's order."""
    place = {node: index for index, node in enumerate(slurm_order(nodes))}
    return np.array([place[node] for node in nodes], dtype=np.int64)


def _check(plan: Plan, slots: Slots, hosts: Hosts) -> None:
    """Raise for impossible slots, with all reasons."""
    wrong = []
    if len(slots) != plan.gpus:
        wrong.append(f"the plan has {plan.gpus} ranks, {len(slots)} have a place")
    twice = [slot for slot, count in Counter(slots).items() if count > 1]
    if twice:
        wrong.append(f"two ranks sit on GPU {twice[0][1]} of {twice[0][0]}")
    beyond = [slot for slot in slots if not 0 <= slot[1] < hosts.node_gpus]
    if beyond:
        wrong.append(f"a rank sits on GPU {beyond[0][1]} of {beyond[0][0]}, a node has {hosts.node_gpus}")
    if wrong:
        raise InputError("; ".join(wrong), hint="check plan, nodes and --gpus-per-node, or the placement file")


def _find_not_held(nodes: Sequence[str], held_nodes: int, hosts: Hosts) -> Mask:
    """Return the GPUs of the job's own nodes that it does not hold."""
    missing = np.zeros((len(nodes), hosts.node_gpus), dtype=np.bool_)
    for index, node in enumerate(nodes[:held_nodes]):
        held = (hosts.held_gpus or {}).get(node)
        if held is not None:
            missing[index] = True
            missing[index, [gpu for gpu in held if 0 <= gpu < hosts.node_gpus]] = False
    return missing


def _select_free_nodes(
    rails: Rails, job_nodes: Sequence[str], free: Sequence[str], domain_of: Mapping[str, str]
) -> list[str]:
    """Return the free nodes to consider: those of the job's units and domains first, a limited number per unit."""
    job_node_set, domains = set(job_nodes), {domain_of[node] for node in job_nodes}
    others = [node for node in slurm_order(free) if node not in job_node_set]
    units = unit_of_nodes(rails, [*job_nodes, *others])
    home = {units[node] for node in job_nodes}
    others.sort(key=lambda node: (domain_of[node] not in domains, units[node] not in home, units[node]))
    sizes = Counter(domain_of[node] for node in others)
    most = max(_MAX_FREE_PER_UNIT, 2 * max(sizes.values(), default=1))
    of_unit: Counter[int] = Counter()
    chosen = []
    for node in others:
        of_unit[units[node]] += 1
        if of_unit[units[node]] <= most:
            chosen.append(node)
    return chosen[:_MAX_FREE]

"""Who sits where today, which GPUs are idle, and what do the links carry? Prepared once, asked after every failure."""

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
from opsk.planning.placement.judging import Job, Verdicts, judge
from opsk.planning.placement.node_order import slurm_order, unit_of_nodes
from opsk.planning.placement.seating import domain_names, domain_numbers, seating_of
from opsk.planning.placement.step_model import COMMUNICATION_ONLY, StepModel
from opsk.planning.ranks import RankOrder, rank_grid
from opsk.planning.remap.kept_loads import KeptLoads, changed, keep
from opsk.planning.routing.hca_seats import Index, ports_of
from opsk.planning.routing.hca_traffic import Seating
from opsk.planning.routing.rank_traffic import step_bytes
from opsk.planning.routing.routes import Routes, UplinkRoutes
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

Mask = npt.NDArray[np.bool_]
Seats = Sequence[tuple[str, int]]
"""Node and GPU of every rank, in rank order."""

_MOST_FREE = 512
_MOST_FREE_OF_UNIT = 64
"""Free nodes that are looked at: beyond these, more of a unit are cabled like those before them."""


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
        As `opsk.planning.routing.hca_seats.ports_of` takes it.
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
    """A job as it runs, ready for the question what to do when something fails.

    ``job.nodes`` are the nodes in use, then spares that the job holds, then free nodes; ``used``, ``held`` and ``free``
    tell them apart. ``idle`` marks GPUs without a rank, on nodes that the job holds (only those that it holds) and on
    free ones; ``not_held`` those of its nodes that it does not hold. ``unit`` is the scalable unit of each node, and
    ``slurm_place`` its place in Slurm's order of names.
    """

    model: ModelShape
    plan: Plan
    order: RankOrder
    job: Job
    seating: Seating
    verdict: Verdicts
    kept: KeptLoads
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
        return int(np.bincount(self.seating.node[0]).max())

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
    seats: Seats,
    hosts: Hosts,
    *,
    routes: Routes | None = None,
    step: StepModel = COMMUNICATION_ONLY,
    order: RankOrder = RankOrder.TP_CP_EP_DP_PP,
    cluster: ClusterSpec | None = None,
    efficiency: Efficiency = DEFAULT,
) -> Situation:
    """Look at a job as it runs today.

    Parameters
    ----------
    seats
        Node and GPU of every rank, in rank order.
    cluster, efficiency
        What ``step`` was made of: plans of another size are predicted with them; the cluster as it is cabled
        (`opsk.planning.placement.step_model.as_cabled`).

    Raises
    ------
    InputError
        The seats are not those of the plan, two ranks share one, or one is on a GPU that no node has.
    """
    _check(plan, seats, hosts)
    used = list(dict.fromkeys(node for node, _ in seats))
    spares = [node for node in slurm_order(hosts.spares) if node not in set(used)]
    domain_of = domain_names([*used, *spares, *hosts.free], hosts.hb_domains)
    free = _free_nodes(rails, [*used, *spares], hosts.free, domain_of)
    universe = (*used, *spares, *free)
    number = {node: at for at, node in enumerate(universe)}
    ports = ports_of(rails, universe, hosts.node_gpus, hosts.affinity)
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
    node = np.array([number[name] for name, _ in seats], dtype=np.int64)
    gpu = np.array([index for _, index in seats], dtype=np.int64)
    seating = seating_of(node, gpu, ports, domains)
    taken = np.zeros(ports.port.shape, dtype=np.bool_)
    taken[node, gpu] = True
    not_held = _not_held(universe, len(used) + len(spares), hosts)
    units = unit_of_nodes(rails, universe)
    kept = keep(job, seating)
    places = np.arange(len(universe))
    return Situation(
        model=model,
        plan=plan,
        order=order,
        job=job,
        seating=seating,
        verdict=changed(job, kept, seating) or judge(job, seating),
        kept=kept,
        used=places < len(used),
        held=places < len(used) + len(spares),
        idle=~taken & ~not_held,
        not_held=not_held & ~taken,
        slurm_place=_places(universe),
        unit=np.array([units[name] for name in universe], dtype=np.int64),
        domain_of={name: domain_of[name] for name in universe},
        rails=rails,
        batch_host=hosts.batch_host,
        cluster=cluster,
        efficiency=efficiency,
    )


def _places(nodes: Sequence[str]) -> Index:
    """Return the place of each node in Slurm's order."""
    place = {node: at for at, node in enumerate(slurm_order(nodes))}
    return np.array([place[node] for node in nodes], dtype=np.int64)


def _check(plan: Plan, seats: Seats, hosts: Hosts) -> None:
    """Refuse seats that cannot be, with all reasons."""
    wrong = []
    if len(seats) != plan.gpus:
        wrong.append(f"the plan has {plan.gpus} ranks, {len(seats)} have a place")
    twice = [seat for seat, count in Counter(seats).items() if count > 1]
    if twice:
        wrong.append(f"two ranks sit on GPU {twice[0][1]} of {twice[0][0]}")
    beyond = [seat for seat in seats if not 0 <= seat[1] < hosts.node_gpus]
    if beyond:
        wrong.append(f"a rank sits on GPU {beyond[0][1]} of {beyond[0][0]}, a node has {hosts.node_gpus}")
    if wrong:
        raise InputError("; ".join(wrong), hint="check plan, nodes and --gpus-per-node, or the placement file")


def _not_held(nodes: Sequence[str], own: int, hosts: Hosts) -> Mask:
    """Return the GPUs of the job's own nodes that it does not hold."""
    missing = np.zeros((len(nodes), hosts.node_gpus), dtype=np.bool_)
    for at, node in enumerate(nodes[:own]):
        held = (hosts.held_gpus or {}).get(node)
        if held is not None:
            missing[at] = True
            missing[at, [gpu for gpu in held if 0 <= gpu < hosts.node_gpus]] = False
    return missing


def _free_nodes(rails: Rails, own: Sequence[str], free: Sequence[str], domain_of: Mapping[str, str]) -> list[str]:
    """Return the free nodes worth a look: those of the job's units and domains first, so many of each unit."""
    mine, domains = set(own), {domain_of[node] for node in own}
    others = [node for node in slurm_order(free) if node not in mine]
    units = unit_of_nodes(rails, [*own, *others])
    home = {units[node] for node in own}
    others.sort(key=lambda node: (domain_of[node] not in domains, units[node] not in home, units[node]))
    sizes = Counter(domain_of[node] for node in others)
    most = max(_MOST_FREE_OF_UNIT, 2 * max(sizes.values(), default=1))
    of_unit: Counter[int] = Counter()
    found = []
    for node in others:
        of_unit[units[node]] += 1
        if of_unit[units[node]] <= most:
            found.append(node)
    return found[:_MOST_FREE]

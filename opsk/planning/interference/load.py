"""What does one job, or storage traffic, ask of the links of a fabric?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from opsk.costmodel.table import FloatColumn
from opsk.planning.interference.wires import Wires
from opsk.planning.placement.judging import Job, laid, verdicts_of
from opsk.planning.placement.placement import Placement, placement_of
from opsk.planning.placement.preparing import begin, compared
from opsk.planning.placement.search import Arrangement, search
from opsk.planning.placement.seating import default_slots, domain_names, domain_numbers, seating_of
from opsk.planning.placement.step_model import COMMUNICATION_ONLY, StepModel
from opsk.planning.ranks import RankOrder, rank_grid
from opsk.planning.routing.hca_seats import Index, ports_of
from opsk.planning.routing.hca_traffic import Flows, Seating
from opsk.planning.routing.loads import LinkSeconds
from opsk.planning.routing.rank_traffic import AXES, StepBytes, step_bytes
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan


class LoadKind(StrEnum):
    """Where a load is known from."""

    PLAN = "plan"
    """A job's plan, laid on the fabric."""
    MEASURED = "measured"
    """Counters of a job's HCAs."""
    STORAGE = "storage"
    """Reads and writes of storage servers, declared or measured."""
    BACKGROUND = "background"
    """What counters of switches show beyond all that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one job asks of the links, in the numbering of `Wires`.

    Parameters
    ----------
    links
        The links that it uses.
    burst
        What each axis takes of each link while it communicates, if it has the link alone, shape (axes, links) [ratio];
        1 on the link that decides the axis.
    axis_s
        How long each axis keeps the link that decides it busy in a step [s].
    utilisation
        Mean part of each link's rate over a whole step [ratio].
    step_s
        Time of a step with all links for itself [s]; of communication alone where no cost model stands behind it.

    Traffic that has no steps is one burst of its mean rate without end: its "step" is 1.
    """

    name: str
    kind: LoadKind
    links: Index
    burst: FloatColumn
    axis_s: FloatColumn
    utilisation: FloatColumn
    step: StepModel
    step_s: float
    nodes: tuple[str, ...] = ()

    @property
    def has_steps(self) -> bool:
        """False for traffic that comes all the time."""
        return self.kind is LoadKind.PLAN


def step_load(name: str, wires: Wires, job: Job, seconds: LinkSeconds, nodes: Sequence[str] = ()) -> Load:
    """Return the load of a job whose ranks are seated, from the seconds of one seating."""
    links, busy = wires.of_seconds(seconds, AXES, job.ports)
    axis_s = busy.max(axis=1, initial=0.0)
    step_s = float(job.step.step_s(axis_s))
    return Load(
        name=name,
        kind=LoadKind.PLAN,
        links=links,
        burst=busy / np.where(axis_s > 0, axis_s, 1.0)[:, None],
        axis_s=axis_s,
        utilisation=busy.sum(axis=0) / (step_s or 1.0),
        step=job.step,
        step_s=step_s,
        nodes=tuple(nodes) or job.nodes,
    )


def traffic_load(name: str, kind: LoadKind, links: Index, utilisation: FloatColumn, nodes: Sequence[str] = ()) -> Load:
    """Return the load of traffic that has no steps: it comes at its mean rate all the time."""
    burst = np.zeros((len(AXES), links.size))
    burst[0] = np.minimum(utilisation, 1.0)
    axis_s = np.zeros(len(AXES))
    axis_s[0] = 1.0
    return Load(
        name=name,
        kind=kind,
        links=links,
        burst=burst,
        axis_s=axis_s,
        utilisation=burst[0],
        step=COMMUNICATION_ONLY,
        step_s=1.0,
        nodes=tuple(nodes),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobShape:
    """A job without its nodes: what its ranks send, and what that means for a step.

    ``node_gpus`` are the GPUs that a node has, ``gpus_per_node`` those that the job uses; ``affinity`` as in
    `opsk.planning.routing.hca_seats.ports_of`.
    """

    plan: Plan
    sent: StepBytes
    step: StepModel
    gpus_per_node: int
    node_gpus: int
    order: RankOrder = RankOrder.TP_CP_EP_DP_PP
    hb_domains: Mapping[str, str] | None = None
    affinity: Mapping[str, Mapping[int, str]] | None = None

    @property
    def nodes(self) -> int:
        """Return how many nodes it needs."""
        return -(-self.plan.gpus // self.gpus_per_node)

    def on(self, wires: Wires, nodes: Sequence[str]) -> Job:
        """Return the job with these nodes to sit on."""
        return Job(
            grid=rank_grid(self.plan, self.order),
            sent=self.sent,
            nodes=tuple(nodes),
            ports=ports_of(wires.rails, nodes, self.node_gpus, self.affinity)
            if self.affinity
            else wires.ports(nodes, self.node_gpus),
            domains=domain_numbers(nodes, domain_names(nodes, self.hb_domains)),
            usable_gpus=self.gpus_per_node,
            routes=wires.routes,
            step=self.step,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Seated:
    """A job whose ranks sit on the nodes of ``job``, in this order: its messages, and what it asks of links."""

    job: Job
    seating: Seating
    flows: Mapping[str, Flows]
    seconds: LinkSeconds
    load: Load

    def arrangement(self) -> Arrangement:
        """Return it as a way to seat the job, with the verdict on that."""
        return Arrangement(
            order=tuple(range(len(self.job.nodes))),
            seating=self.seating,
            verdict=verdicts_of(self.job, self.flows, self.seconds),
            loads=self.seconds,
        )


def job_shape(
    model: ModelShape,
    plan: Plan,
    gpus_per_node: int,
    *,
    step: StepModel = COMMUNICATION_ONLY,
    node_gpus: int | None = None,
    order: RankOrder = RankOrder.TP_CP_EP_DP_PP,
) -> JobShape:
    """Return a job without its nodes."""
    return JobShape(
        plan=plan,
        sent=step_bytes(model, plan),
        step=step,
        gpus_per_node=gpus_per_node,
        node_gpus=max(node_gpus or gpus_per_node, gpus_per_node),
        order=order,
    )


def default_load(
    name: str,
    wires: Wires,
    shape: JobShape,
    nodes: Sequence[str],
    *,
    distribution: str = "block",
    gpus: Mapping[str, Sequence[int]] | None = None,
) -> Load:
    """Return the load of a job whose ranks sit as Slurm puts them on these nodes, in this order.

    Parameters
    ----------
    gpus
        Node to the GPUs that the job holds there, where it holds some only.
    """
    return seated_by_default(name, wires, shape, nodes, distribution=distribution, gpus=gpus).load


def seated_by_default(
    name: str,
    wires: Wires,
    shape: JobShape,
    nodes: Sequence[str],
    *,
    distribution: str = "block",
    gpus: Mapping[str, Sequence[int]] | None = None,
) -> Seated:
    """Return a job whose ranks sit as Slurm puts them; parameters as for `default_load`."""
    held = [tuple((gpus or {}).get(node, ())) for node in nodes]
    most = max((index + 1 for row in held for index in row), default=0)
    job = replace(shape, node_gpus=max(shape.node_gpus, most)).on(wires, nodes)
    place, slot = default_slots(shape.plan.gpus, len(nodes), shape.gpus_per_node, distribution)
    own = np.tile(np.arange(shape.gpus_per_node, dtype=np.int64), (len(nodes), 1))
    for number, row in enumerate(held):
        if len(row) >= shape.gpus_per_node:
            own[number] = row[: shape.gpus_per_node]
    return _seated(name, wires, job, seating_of(place, own[place, slot], job.ports, job.domains))


def placement_of_seated(model: ModelShape, wires: Wires, shape: JobShape, seated: Seated) -> Placement:
    """Return the best of a few good orders of the nodes that a job sits on by default, those in Slurm's order.

    The same as `opsk.planning.placement.placement.place` without searching; what was judged before is not judged again.

    Raises
    ------
    PlanInfeasibleError
        The plan's groups do not divide.
    InputError
        No node is on the fabric.
    """
    job = seated.job
    begun = begin(
        model,
        shape.plan,
        wires.rails,
        job.nodes,
        shape.gpus_per_node,
        shape.hb_domains,
        routes=wires.routes,
        step=shape.step,
        order=shape.order,
        node_gpus=shape.node_gpus,
        affinity=shape.affinity,
        known_ports={job.nodes: job.ports},
        sent=shape.sent,
    )
    ready = compared(begun, seated.arrangement() if begun.job.nodes == job.nodes else None)
    return placement_of(ready, search(ready.job, ready.best, (), ready.ways), wires.rails)


def placed_load(name: str, wires: Wires, shape: JobShape, placement: Placement) -> Load:
    """Return the load of a job whose ranks were placed."""
    job = shape.on(wires, placement.nodes)
    number = {node: index for index, node in enumerate(placement.nodes)}
    node = np.array([number[rank.node] for rank in placement.ranks], dtype=np.int64)
    gpu = np.array([rank.gpu for rank in placement.ranks], dtype=np.int64)
    return _seated(name, wires, job, seating_of(node, gpu, job.ports, job.domains)).load


def _seated(name: str, wires: Wires, job: Job, seating: Seating) -> Seated:
    """Lay what the ranks send on the links."""
    flows, seconds = laid(job, seating)
    return Seated(job=job, seating=seating, flows=flows, seconds=seconds, load=step_load(name, wires, job, seconds))

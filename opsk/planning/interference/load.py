"""Computes the load that one job puts on the links of a fabric, from its plan or from the advice in its Slurm record.

The record has the plan and what was predicted for it, not the model. Speed in FLOP/s over speed in tokens/s is 6 FLOP a
parameter (forward and backward pass), which gives the size of the model; the tokens of a step give the batch. A dense
model of that size is substituted. Anyone who may write the Slurm comment can forge a record: its numbers are bounded,
and are used for advice only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from opsk.costmodel.efficiency.efficiency import Efficiency
from opsk.costmodel.table import FloatColumn
from opsk.errors import OpskError
from opsk.hardware.spec import ClusterSpec
from opsk.planning.interference.links import FabricLinks
from opsk.planning.placement.initial_placements import (
    PlacementProblem,
    build_initial_placements,
    judge_initial_placements,
)
from opsk.planning.placement.placement import Placement, build_placement
from opsk.planning.placement.rank_placement import (
    Job,
    build_rank_placement,
    compute_default_slots,
    compute_verdicts,
    domain_names,
    domain_numbers,
    route_placement,
)
from opsk.planning.placement.search import Arrangement, search
from opsk.planning.placement.step_model import COMMUNICATION_ONLY, StepModel, step_model
from opsk.planning.ranks import RankOrder, rank_grid
from opsk.planning.routing.hca_ports import Index, build_ports
from opsk.planning.routing.loads import LinkSeconds
from opsk.planning.routing.traffic import AXES, Flows, RankPlacement, StepBytes, step_bytes
from opsk.units import TERA
from opsk.workload.advice_record import AdviceRecord
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

_FLOP_A_PARAMETER = 6.0
_HEAD_DIM, _FFN, _GROUPS = 128, 3.5, 8
_WEIGHTS_A_LAYER = 2.0 + 2.0 / _GROUPS + 3.0 * _FFN
"""Times hidden squared: attention with one key-value head for eight query heads, gated MLP of 3.5 times the width."""
_WIDE = 102.4
"""Width over layers of a usual dense model: 8192 over 80."""
_USUAL_PARAMETERS = 70e9
_MIN_PARAMETERS, _MAX_PARAMETERS = 1e8, 1e14
_SEQ, _VOCAB = 8192, 128256
_MICRO_BATCHES, _MAX_MICRO_BATCHES = 4, 4096


class LoadKind(StrEnum):
    """The source of a load."""

    PLAN = "plan"
    """A job's plan, routed on the fabric."""
    MEASURED = "measured"
    """Counters of a job's HCAs."""
    STORAGE = "storage"
    """Reads and writes of storage servers, declared or measured."""
    BACKGROUND = "background"
    """Switch counters beyond the traffic of all known sources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The demand of one job on the links, in the numbering of `FabricLinks`.

    Parameters
    ----------
    links
        The links that it uses.
    burst
        Part of each link that each axis uses while it communicates alone, shape (axes, links) [ratio];
        1 on the link that decides the axis.
    axis_s
        How long each axis keeps the link that decides it busy in a step [s].
    utilisation
        Mean part of each link's rate over a whole step [ratio].
    step_s
        Time of a step with exclusive links [s]; of its communication alone where there is no cost model.

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


def step_load(name: str, fabric_links: FabricLinks, job: Job, seconds: LinkSeconds, nodes: Sequence[str] = ()) -> Load:
    """Return the load of a job whose ranks are placed, from the link seconds of one placement."""
    links, busy = fabric_links.select_links(seconds, AXES, job.ports)
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
    """A job without its nodes: the bytes that its ranks send, and its step model.

    ``node_gpus`` are the GPUs that a node has, ``gpus_per_node`` those that the job uses; ``affinity`` as in
    `opsk.planning.routing.hca_ports.build_ports`.
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

    def on(self, fabric_links: FabricLinks, nodes: Sequence[str]) -> Job:
        """Return the job on these nodes."""
        return Job(
            grid=rank_grid(self.plan, self.order),
            sent=self.sent,
            nodes=tuple(nodes),
            ports=build_ports(fabric_links.rails, nodes, self.node_gpus, self.affinity)
            if self.affinity
            else fabric_links.ports(nodes, self.node_gpus),
            domains=domain_numbers(nodes, domain_names(nodes, self.hb_domains)),
            usable_gpus=self.gpus_per_node,
            routes=fabric_links.routes,
            step=self.step,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedJob:
    """A job whose ranks are placed on the nodes of ``job``, in this order: its messages and its load."""

    job: Job
    rank_placement: RankPlacement
    flows: Mapping[str, Flows]
    seconds: LinkSeconds
    load: Load

    def arrangement(self) -> Arrangement:
        """Return it as an arrangement, with its verdict."""
        return Arrangement(
            order=tuple(range(len(self.job.nodes))),
            rank_placement=self.rank_placement,
            verdict=compute_verdicts(self.job, self.flows, self.seconds),
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
    fabric_links: FabricLinks,
    shape: JobShape,
    nodes: Sequence[str],
    *,
    distribution: str = "block",
    gpus: Mapping[str, Sequence[int]] | None = None,
) -> Load:
    """Return the load of a job whose ranks are placed by Slurm's default on these nodes, in this order.

    Parameters
    ----------
    gpus
        Node to the GPUs that the job holds there, where it does not hold all.
    """
    return place_by_default(name, fabric_links, shape, nodes, distribution=distribution, gpus=gpus).load


def place_by_default(
    name: str,
    fabric_links: FabricLinks,
    shape: JobShape,
    nodes: Sequence[str],
    *,
    distribution: str = "block",
    gpus: Mapping[str, Sequence[int]] | None = None,
) -> PlacedJob:
    """Return a job whose ranks are placed by Slurm's default; parameters as for `default_load`."""
    held = [tuple((gpus or {}).get(node, ())) for node in nodes]
    max_gpus = max((index + 1 for row in held for index in row), default=0)
    job = replace(shape, node_gpus=max(shape.node_gpus, max_gpus)).on(fabric_links, nodes)
    place, slot = compute_default_slots(shape.plan.gpus, len(nodes), shape.gpus_per_node, distribution)
    gpu_of_slot = np.tile(np.arange(shape.gpus_per_node, dtype=np.int64), (len(nodes), 1))
    for number, row in enumerate(held):
        if len(row) >= shape.gpus_per_node:
            gpu_of_slot[number] = row[: shape.gpus_per_node]
    return _place(
        name, fabric_links, job, build_rank_placement(place, gpu_of_slot[place, slot], job.ports, job.domains)
    )


def place_on_default_nodes(
    model: ModelShape, fabric_links: FabricLinks, shape: JobShape, placed: PlacedJob
) -> Placement:
    """Return the best of a few good orders of the nodes that a job uses by default, given in Slurm's order.

    Equal to `opsk.planning.placement.placement.place` without search; the default placement is not evaluated again.

    Raises
    ------
    PlanInfeasibleError
        The plan's groups do not divide.
    InputError
        No node is on the fabric.
    """
    job = placed.job
    initial = build_initial_placements(
        PlacementProblem(
            model=model,
            plan=shape.plan,
            rails=fabric_links.rails,
            nodes=job.nodes,
            gpus_per_node=shape.gpus_per_node,
            hb_domains=shape.hb_domains,
            routes=fabric_links.routes,
            step=shape.step,
            order=shape.order,
            node_gpus=shape.node_gpus,
            affinity=shape.affinity,
        ),
        known_ports={job.nodes: job.ports},
        sent=shape.sent,
    )
    ready = judge_initial_placements(initial, placed.arrangement() if initial.job.nodes == job.nodes else None)
    return build_placement(ready, search(ready.job, ready.best, (), ready.packings), fabric_links.rails)


def placed_load(name: str, fabric_links: FabricLinks, shape: JobShape, placement: Placement) -> Load:
    """Return the load of a job whose ranks were placed."""
    job = shape.on(fabric_links, placement.nodes)
    number = {node: index for index, node in enumerate(placement.nodes)}
    node = np.array([number[rank.node] for rank in placement.ranks], dtype=np.int64)
    gpu = np.array([rank.gpu for rank in placement.ranks], dtype=np.int64)
    return _place(name, fabric_links, job, build_rank_placement(node, gpu, job.ports, job.domains)).load


def _place(name: str, fabric_links: FabricLinks, job: Job, rank_placement: RankPlacement) -> PlacedJob:
    """Route the messages of the ranks on the links."""
    flows, seconds = route_placement(job, rank_placement)
    return PlacedJob(
        job=job,
        rank_placement=rank_placement,
        flows=flows,
        seconds=seconds,
        load=step_load(name, fabric_links, job, seconds),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedJob:
    """A job reconstructed from its record; ``guessed`` describes what the record does not contain."""

    shape: JobShape
    guessed: tuple[str, ...]


def reconstruct_job(
    record: AdviceRecord,
    gpus: int,
    gpus_per_node: int,
    cluster: ClusterSpec | None,
    efficiency: Efficiency,
    node_gpus: int | None = None,
) -> RecordedJob | None:
    """Return the job that a record describes; ``None`` where it names no plan, or one of another size than the job.

    Parameters
    ----------
    cluster
        For the communication that computation hides; where it is not known, none is assumed to be hidden.
    """
    if None in (record.tp, record.pp, record.dp):
        return None
    tp, pp, cp, dp = record.tp or 1, record.pp or 1, record.cp or 1, record.dp or 1
    if tp * pp * cp * dp != gpus:
        return None
    guessed: list[str] = []
    try:
        model = _stand_in(record, tp, pp, guessed)
        plan = Plan(
            tp=tp, pp=pp, cp=cp, ep=record.ep or 1, dp=dp, sequence_parallel=tp > 1,
            global_batch=dp * _micro_batches(record, gpus, dp, pp, guessed),
        )  # fmt: skip
        rank_grid(plan, RankOrder.TP_CP_EP_DP_PP)  # refuses groups that do not divide
        step = step_model(model, plan, cluster, efficiency) if cluster is not None else COMMUNICATION_ONLY
        shape = job_shape(model, plan, gpus_per_node, step=_as_recorded(step, record), node_gpus=node_gpus)
    except OpskError:
        return None
    if plan.ep > 1:
        guessed.append("its experts: their all-to-all traffic is left out")
    if cluster is None:
        guessed.append("how much communication its computation hides")
    return RecordedJob(shape=shape, guessed=tuple(guessed))


def _stand_in(record: AdviceRecord, tp: int, pp: int, guessed: list[str]) -> ModelShape:
    """Return a dense model of the size that the record implies."""
    if record.tflops and record.tokens_per_s_per_gpu:
        parameters = record.tflops * TERA / (_FLOP_A_PARAMETER * record.tokens_per_s_per_gpu)
        parameters = min(max(parameters, _MIN_PARAMETERS), _MAX_PARAMETERS)
    else:
        parameters = _USUAL_PARAMETERS
        guessed.append("its model: a dense one of 70 billion parameters stands in")
    wide = (parameters * _WIDE / _WEIGHTS_A_LAYER) ** (1.0 / 3.0)
    heads = max(round(wide / (_HEAD_DIM * tp)), 1) * tp
    hidden = heads * _HEAD_DIM
    return ModelShape(
        name="stand-in", layers=max(round(parameters / (_WEIGHTS_A_LAYER * hidden**2) / pp), 1) * pp, hidden=hidden,
        ffn=round(_FFN * hidden / tp) * tp, heads=heads, kv_heads=tp if heads >= _GROUPS * tp else heads,
        head_dim=_HEAD_DIM, vocab=_VOCAB, seq=_SEQ, gated_mlp=True, tied_embeddings=False,
    )  # fmt: skip


def _micro_batches(record: AdviceRecord, gpus: int, dp: int, pp: int, guessed: list[str]) -> int:
    """Return the sequences of a step for each replica."""
    if record.tokens_per_s_per_gpu and record.step_s:
        sequences = record.tokens_per_s_per_gpu * gpus * record.step_s / _SEQ
        return round(min(max(sequences / dp, 1.0), _MAX_MICRO_BATCHES))
    guessed.append("its batch: four micro-batches a stage")
    return _MICRO_BATCHES * pp


def _as_recorded(step: StepModel, record: AdviceRecord) -> StepModel:
    """Return the step model with the time that was predicted at submission, for links as assumed then.

    Without a cluster the time of the links is added to it.
    """
    if not record.step_s:
        return step
    other_s = step.other_s + (record.step_s - step.least_s) / step.straggler
    return replace(step, other_s=max(other_s, 0.0), is_whole=True)

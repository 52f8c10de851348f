"""Collects the inputs of ``opsk place``: plan, nodes, GPUs and fabric, from flags, the plan file, Slurm or the site."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from opsk.app.inputs.fabric_files import read_dumps, read_routes
from opsk.app.inputs.job_work import JobWork, read_script_plan
from opsk.app.inputs.named_inputs import load_cluster, load_efficiency
from opsk.app.inputs.node_files import match_fabric_names, read_node_files
from opsk.app.inputs.plan_file import PlanFile, read_plan_file
from opsk.config import load_site
from opsk.errors import InputError, OpskError
from opsk.fabric.design import MAX_PORTS, rail_optimized_fabric
from opsk.fabric.fabric import Fabric
from opsk.fabric.forwarding import ForwardingTables
from opsk.fabric.hb_domains import find_hb_domains
from opsk.fabric.link_speed import LANE_GBIT_PER_S, link_bytes_per_s
from opsk.fabric.node.affinity import compute_nic_affinity
from opsk.fabric.node.node_topology import NodeTopology
from opsk.fabric.rails import Rails, find_rails
from opsk.hardware.spec import ClusterSpec
from opsk.hostlist import expand, fold
from opsk.planning.placement.step_model import COMMUNICATION_ONLY, DENSE, StepModel, as_cabled, step_model
from opsk.slurm.client import SlurmClient
from opsk.slurm.commands.current_job import resolve_label
from opsk.slurm.records import JobRecord
from opsk.text import escape
from opsk.workload.advice_record import AdviceRecord
from opsk.workload.completion import Assumption
from opsk.workload.model import ModelShape
from opsk.workload.plan import Plan

_WIDTH = 4
_USUAL_UNIT = {"HDR": 20, "NDR": 32, "XDR": 72}
"""Nodes per unit where the catalogue has none: half the ports of the usual leaf (QM8700, QM9700, Q3400)."""

STAND_IN = replace(DENSE, name="stand-in")
"""Weighs the axes where only the plan is known: a dense model of 70 billion parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementInputs:
    """Inputs of a placement: ``nodes`` are candidates, ``slurm_nodes`` those of a job in Slurm's own order.

    ``is_designed`` means that the fabric is the catalogue's design, without the site's names and cables. ``step`` is
    the cost model's step of the plan, where the cluster is known; ``tables`` are static routes. ``hb_domains`` maps
    nodes to multi-node HB domains, ``affinity`` to the HCA guid of each GPU, from the nodes' files. ``release`` is the
    installed Slurm's, ``None`` without Slurm; ``adaptive`` whether its switches route adaptively.
    """

    model: ModelShape
    plan: Plan
    nodes: tuple[str, ...]
    gpus_per_node: int
    fabric: Fabric
    rails: Rails
    cluster: ClusterSpec | None = None
    job: JobRecord | None = None
    slurm_nodes: tuple[str, ...] | None = None
    assumed: tuple[Assumption, ...] = ()
    is_designed: bool = False
    step: StepModel = COMMUNICATION_ONLY
    tables: ForwardingTables | None = None
    hb_domains: Mapping[str, str] | None = None
    affinity: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    release: tuple[int, int] | None = None
    adaptive: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The options of ``opsk place`` that describe the job, its nodes and the cabling."""

    plan: str | None = None
    nodes: str | None = None
    job: str | None = None
    fabric: Sequence[Path] = ()
    cluster: str | None = None
    gpus_per_node: int | None = None
    routes: Sequence[Path] = ()
    node_files: Sequence[Path] = ()
    adaptive: bool = False
    work: JobWork | None = None
    """Model and plan of the job, where a better source than its record has them."""


def gather_inputs(request: Request, slurm: SlurmClient) -> PlacementInputs:
    """Return all inputs of a placement.

    Raises
    ------
    InputError
        Something is missing or contradictory; the message says what to give.
    SlurmError
        A job was named and Slurm did not answer.
    """
    job = slurm.job(resolve_label(request.job, os.environ)) if request.job else None
    file = read_plan_file(request.plan) if request.plan else None
    site = load_site()
    cluster_name = request.cluster or (file.cluster if file else None) or site.cluster
    cluster = load_cluster(cluster_name) if cluster_name else None
    model, plan, assumed = _resolve_work(file, job, request.work)
    nodes = _resolve_nodes(request, job)
    inputs = read_fabric_inputs(request, cluster, nodes)
    gpus_per_node, more = _resolve_gpus_per_node(request, job, file, cluster, plan, inputs.nodes)
    if file is None and request.work is None and job is not None and request.nodes is None:
        plan, fitted = _fit_to_gpus(plan, len(inputs.nodes) * gpus_per_node)
        more = [*more, *fitted]
    step = COMMUNICATION_ONLY
    if cluster and (file or request.work):  # no step can be predicted for a stand-in model
        step = step_model(model, plan, as_cabled(cluster, inputs.rails), load_efficiency(site.find_efficiency_file()))
    return PlacementInputs(
        model=model,
        plan=plan,
        nodes=inputs.nodes,
        gpus_per_node=gpus_per_node,
        fabric=inputs.fabric,
        rails=inputs.rails,
        cluster=cluster,
        job=job,
        slurm_nodes=job.nodes if job is not None and nodes == job.nodes else None,
        assumed=(*assumed, *inputs.assumed, *more),
        is_designed=inputs.is_designed,
        step=step,
        tables=inputs.tables,
        release=_find_release(slurm),
        adaptive=inputs.adaptive,
        hb_domains=inputs.hb_domains,
        affinity=inputs.affinity,
    )


class FabricFiles(Protocol):
    """The options that describe the cabling: dumps, forwarding tables, node files."""

    @property
    def fabric(self) -> Sequence[Path]:
        """Dumps of the fabric."""
        ...

    @property
    def routes(self) -> Sequence[Path]:
        """Forwarding tables."""
        ...

    @property
    def node_files(self) -> Sequence[Path]:
        """Files of nodes."""
        ...

    @property
    def adaptive(self) -> bool:
        """Whether switches route adaptively."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricInputs:
    """The candidate nodes and their cabling; see `PlacementInputs` for the fields."""

    nodes: tuple[str, ...]
    fabric: Fabric
    rails: Rails
    tables: ForwardingTables | None
    hb_domains: Mapping[str, str]
    affinity: Mapping[str, Mapping[int, str]]
    adaptive: bool
    is_designed: bool
    assumed: tuple[Assumption, ...]


def read_fabric_inputs(files: FabricFiles, cluster: ClusterSpec | None, nodes: Sequence[str]) -> FabricInputs:
    """Return the cabling: from dumps, else from the site's dumps, else from the catalogue's cluster.

    Raises
    ------
    InputError
        A file cannot be read, or there is neither a dump nor a cluster whose cables can be guessed.
    """
    site = load_site()
    dumps = tuple(files.fabric) or site.fabric
    fabric, guesses = (read_dumps(dumps), []) if dumps else _design_fabric(cluster, nodes)
    rails = _find_rails(fabric, nodes)
    topologies = match_fabric_names(read_node_files(files.node_files), rails) if files.node_files else {}
    domains = _find_hb_domains(rails, topologies) or (_design_domains(cluster, nodes) if cluster and not dumps else {})
    return FabricInputs(
        nodes=tuple(nodes) or tuple(rails.attachments),
        fabric=fabric,
        rails=rails,
        tables=read_routes(files.routes),
        hb_domains=domains,
        affinity=_compute_affinity(rails, topologies),
        adaptive=files.adaptive or site.adaptive_routing,
        is_designed=not dumps,
        assumed=tuple(guesses),
    )


def _resolve_work(
    file: PlanFile | None, job: JobRecord | None, work: JobWork | None
) -> tuple[ModelShape, Plan, list[Assumption]]:
    """Return model and plan of the file, else of ``work``, else of the job's record.

    Raises
    ------
    InputError
        There is neither.
    """
    if file is not None:
        return file.model, file.plan, []
    if work is not None:
        return work.model, work.plan, list(work.assumed)
    if job is None:
        raise InputError("nothing to place", hint="give a PLAN.toml, or --job ID")
    return STAND_IN, *_find_recorded_plan(job)


def _compute_affinity(rails: Rails, topologies: Mapping[str, NodeTopology]) -> dict[str, Mapping[int, str]]:
    """Return the HCA guid of each GPU, for nodes with a node file."""
    known = {node: topology for node, topology in topologies.items() if node in rails.attachments}
    return {node: compute_nic_affinity(topology, rails.attachments[node]).guids for node, topology in known.items()}


def _find_release(slurm: SlurmClient) -> tuple[int, int] | None:
    """Return the release of Slurm; ``None`` where it is not available."""
    try:
        return slurm.release()
    except OpskError:
        return None


def _find_hb_domains(rails: Rails, topologies: Mapping[str, NodeTopology]) -> dict[str, str]:
    """Return the HB domain of each node that is in one with others."""
    domains, _ = find_hb_domains(rails.attachments, topologies=topologies)
    return {node: domain.name for domain in domains if len(domain.nodes) > 1 for node in domain.nodes}


def _find_recorded_plan(job: JobRecord) -> tuple[Plan, list[Assumption]]:
    """Return the plan of the advice in the job's ``admin_comment``, else the plan of its script.

    Raises
    ------
    InputError
        There is no advice, or it names no plan.
    """
    record = AdviceRecord.parse(job.admin_comment or "")
    if record is not None and None not in (record.tp, record.pp, record.dp):
        tp, pp, dp = record.tp or 1, record.pp or 1, record.dp or 1
        plan = Plan(tp=tp, pp=pp, cp=record.cp or 1, ep=record.ep or 1, dp=dp, global_batch=dp * 4 * pp)
        why = "the job's record has no model: axes are weighted as for a dense model of 70B parameters"
        return plan, [
            Assumption(field="model", value=STAND_IN.name, why=why),
            Assumption(field="plan.global_batch", value=plan.global_batch, why="four micro-batches per stage"),
        ]
    stated = read_script_plan(job)
    if stated is not None:
        why = "the job's script has no model: axes are weighted as for a dense model of 70B parameters"
        return stated, [Assumption(field="model", value=STAND_IN.name, why=why)]
    raise InputError(f"job {job.label} has no plan in its record", hint="also give its PLAN.toml")


def _fit_to_gpus(plan: Plan, gpus: int) -> tuple[Plan, list[Assumption]]:
    """Return the plan with as many replicas as the allocated GPUs hold, as launchers count them."""
    replica = plan.gpus // plan.dp
    dp = gpus // replica
    if dp == plan.dp or gpus % replica or dp * plan.cp % plan.ep:
        return plan, []
    why = f"the job has {gpus} GPUs, {replica} per replica; its plan has dp {plan.dp}"
    return replace(plan, dp=dp, global_batch=dp * 4 * plan.pp), [Assumption(field="plan.dp", value=dp, why=why)]


def _resolve_nodes(request: Request, job: JobRecord | None) -> tuple[str, ...]:
    """Return the candidates: from the command line, else of the job; none means the whole fabric."""
    if request.nodes is not None:
        nodes = expand(request.nodes)
        if not nodes:
            raise InputError("--nodes is empty", hint="write it as n[0-7]")
        return nodes
    if job is None:
        return ()
    if not job.nodes:
        raise InputError(
            f"job {job.label} is {job.state} and has no nodes",
            hint="give candidates with --nodes, or wait until it starts",
        )
    return job.nodes


def _find_rails(fabric: Fabric, nodes: Sequence[str]) -> Rails:
    """Find rails; requested nodes count as compute nodes, whatever their name and cabling suggest."""
    rails = find_rails(fabric)
    other = [node for node in nodes if node not in rails.attachments and node in rails.host_roles]
    return find_rails(fabric, compute_nodes=[*rails.attachments, *other]) if other else rails


def _resolve_gpus_per_node(
    request: Request,
    job: JobRecord | None,
    file: PlanFile | None,
    cluster: ClusterSpec | None,
    plan: Plan,
    nodes: Sequence[str],
) -> tuple[int, list[Assumption]]:
    """Return the ranks per node, from the most reliable source, and the assumptions."""
    if request.gpus_per_node:
        return request.gpus_per_node, []
    if job is not None and job.nodes:
        if job.gpus_per_node is None and job.gpus:
            raise InputError(
                f"job {job.label} holds {job.gpus} GPUs unevenly on {len(job.nodes)} nodes",
                hint="a plan needs the same number on each node; give --gpus-per-node",
            )
        if job.gpus_per_node:
            return job.gpus_per_node, []
    if file is not None and file.gpus_per_node:
        return file.gpus_per_node, []
    if cluster is not None:
        return cluster.node.gpus, []
    if plan.gpus % len(nodes) == 0:
        per_node = plan.gpus // len(nodes)
        return per_node, [
            Assumption(field="gpus_per_node", value=per_node, why=f"{plan.gpus} GPUs on {len(nodes)} nodes")
        ]
    raise InputError("the number of GPUs per node is unknown", hint="give --gpus-per-node or --cluster")


def _design_fabric(cluster: ClusterSpec | None, nodes: Sequence[str]) -> tuple[Fabric, list[Assumption]]:
    """Return the fabric that the catalogue's cluster would have, with the nodes filling units one after the other.

    Raises
    ------
    InputError
        There is no cluster, the cables of its wiring are unknown, or no node is named.
    """
    hint = "give a dump with --fabric (ibnetdiscover > FILE), or set fabric in opsk.toml"
    if cluster is None:
        raise InputError("no fabric to place on", hint=hint)
    if cluster.fabric != "rail-optimized":
        raise InputError(
            f"cluster {cluster.name} is wired as {cluster.fabric}: opsk cannot derive its cables", hint=hint
        )
    if not nodes:
        raise InputError("no nodes are given, and there is no dump to take them from", hint="give them with --nodes")
    node = cluster.node
    speed = min(LANE_GBIT_PER_S, key=lambda word: abs(link_bytes_per_s(_WIDTH, word) - node.nic.bytes_per_s))
    unit_nodes = cluster.nodes_per_unit or _USUAL_UNIT.get(speed, 32)
    while unit_nodes * (1.0 + 1.0 / cluster.oversubscription) > MAX_PORTS:
        unit_nodes = -(-unit_nodes // 2)  # a unit so large has several leaves a rail
    spines = cluster.spines or 4
    cables = max(round(unit_nodes / cluster.oversubscription / spines), 1)
    units, pods = _compute_units_and_pods(-(-len(nodes) // unit_nodes), node.nics * cables)
    spare = [name for name in (f"opsk-filler-{number}" for number in range(units * unit_nodes)) if name not in nodes]
    fabric = rail_optimized_fabric(
        nodes=units * unit_nodes,
        hcas=node.nics,
        leaves=units * node.nics,
        spines=spines,
        cables_per_pair=cables,
        pods=pods,
        cores_per_spine=units // pods * node.nics * cables,
        names=[*nodes, *spare][: units * unit_nodes],
        speed=speed,
    )
    why = (
        f"no dump was given: cabled without fault as catalogue cluster {cluster.name}, "
        f"{unit_nodes} nodes a unit as listed"
    )
    guess = Assumption(field="fabric", value=f"design of {cluster.name}", why=why)
    return replace(fabric, source=f"design of {cluster.name}"), [guess]


def _design_domains(cluster: ClusterSpec, nodes: Sequence[str]) -> dict[str, str]:
    """Return the HB domains of several nodes that the catalogue's cluster would have, filled as listed."""
    domain_nodes = cluster.node.hb_domain_gpus // cluster.node.gpus
    return {node: f"hb{number // domain_nodes}" for number, node in enumerate(nodes)} if domain_nodes > 1 else {}


def _compute_units_and_pods(units: int, cables: int) -> tuple[int, int]:
    """Return the number of units, rounded up to whole pods, and of pods, as a spine's ports require.

    A spine has ``cables`` from each unit of its pod, and with several pods as many to the cores above.
    """
    if units * cables <= MAX_PORTS:
        return units, 1
    pod_units = max(MAX_PORTS // (2 * cables), 1)
    pods = -(-units // pod_units)
    return -(-units // pods) * pods, pods


def format_inputs(inputs: PlacementInputs) -> str:
    """Return one line with model, plan and nodes."""
    plan = inputs.plan
    axes = [f"{name.upper()}{size}" for name in ("tp", "cp", "ep", "pp", "dp") if (size := getattr(plan, name)) > 1]
    where = fold(inputs.nodes) if len(inputs.nodes) <= 512 else f"{len(inputs.nodes)} nodes"
    return escape(f"{inputs.model.name}: {plan.gpus} GPUs, {' '.join(axes) or 'one GPU'}; candidates {where}")

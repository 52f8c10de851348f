"""Collects the inputs of ``opsk remap``: the job, its GPUs and the spare nodes, from files, flags and Slurm."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from opsk.app.inputs.job_work import find_job_work
from opsk.app.inputs.named_inputs import load_efficiency
from opsk.app.inputs.node_files import match_fabric_names, read_node_files
from opsk.app.inputs.placement import PlacementInputs, Request, gather_inputs
from opsk.errors import InputError, OpskError, SlurmError
from opsk.fabric.hb_domains import find_hb_domains
from opsk.fabric.node.node_topology import NodeTopology
from opsk.hostlist import expand, fold
from opsk.planning.placement.node_order import slurm_order
from opsk.planning.placement.step_model import as_cabled
from opsk.planning.ranks import RankOrder
from opsk.planning.remap.failure import KnownParts
from opsk.planning.remap.situation import Hosts, Situation, prepare
from opsk.planning.routing.fabric_routes import build_routes
from opsk.remapping.preparation import find_launcher
from opsk.slurm.client import SlurmClient
from opsk.slurm.cluster_name import cluster_name
from opsk.slurm.commands.remap_commands import SlurmSite
from opsk.slurm.records import JobRecord, NodeRecord
from opsk.slurm.topology.release import NEWEST
from opsk.text import escape
from opsk.units import MIB
from opsk.workload.completion import Assumption

NO_JOB = "-"
_MAX_BYTES = 64 * MIB
_FREE_STATES = frozenset({"IDLE"})
_UNFREE_FLAGS = frozenset({"RESERVED", "PLANNED", "COMPLETING", "POWERING_DOWN", "REBOOT_ISSUED", "MAINTENANCE"})
_PLACEMENT_HINT = "give the answer of opsk place --json"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemapRequest(Request):
    """The options of ``opsk remap`` that describe the job, its nodes and its Slurm."""

    spares: str | None = None
    free: str | None = None
    placement: Path | None = None
    rank_order: str | None = None
    release: tuple[int, int] | None = None
    avoid: Collection[str] = ()
    """Unhealthy nodes, which do not count as free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemapInputs:
    """All inputs of a remap: the situation, the machine for name look-ups, and Slurm's data.

    ``records`` are Slurm's nodes from which the plan was made. ``cluster`` is the job's cluster, empty where it is
    unknown.
    """

    placement_inputs: PlacementInputs
    situation: Situation
    machine: KnownParts
    job: JobRecord | None
    records: Mapping[str, NodeRecord]
    site: SlurmSite
    release_is: str
    is_running: bool
    assumed: tuple[Assumption, ...]
    cluster: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _JobNodes:
    """The nodes of a remap: those that ranks use, spares, and free ones; ``records`` are all that Slurm has.

    ``rank_placement`` is node and GPU in rank order; ``None`` where only the plan tells it.
    """

    job: JobRecord | None
    records: Mapping[str, NodeRecord]
    rank_placement: list[tuple[str, int]] | None
    used: list[str]
    spares: list[str]
    free: list[str]


class _Slot(BaseModel):
    """One rank of a placement file."""

    model_config = ConfigDict(frozen=True)

    rank: int = Field(ge=0)
    node: str = Field(min_length=1, max_length=253)
    gpu: int = Field(ge=0, lt=1024)


class _PlacementFile(BaseModel):
    """The fields of ``opsk place --json`` that are read."""

    model_config = ConfigDict(frozen=True)

    ranks: tuple[_Slot, ...] = Field(min_length=1)
    rank_order: RankOrder = RankOrder.TP_CP_EP_DP_PP

    def rank_placement(self, path: Path) -> list[tuple[str, int]]:
        """Return node and GPU in rank order."""
        ranks = sorted(self.ranks, key=lambda slot: slot.rank)
        if [slot.rank for slot in ranks] != list(range(len(ranks))):
            raise InputError(escape(f"{path}: ranks are not 0 to {len(ranks) - 1}, each once"), hint=_PLACEMENT_HINT)
        return [(slot.node, slot.gpu) for slot in ranks]


def gather_remap(request: RemapRequest, slurm: SlurmClient) -> RemapInputs:
    """Return all inputs of the remap options.

    Raises
    ------
    InputError
        Something is missing or contradicts; the message says what to give.
    SlurmError
        Slurm is needed and does not answer.
    """
    assumed: list[Assumption] = []
    is_complete = request.plan is not None and (request.nodes is not None or request.placement is not None)
    job = _find_job(request, slurm, assumed, is_complete=is_complete)
    if not is_complete and job is None:
        raise InputError("the job is not described", hint="name a JOB, or give --plan with --nodes or --placement")
    cluster = cluster_name(slurm) if job is not None else ""
    nodes, order = _find_nodes(request, job, slurm, cluster, assumed)
    placement_inputs = gather_inputs(
        replace(
            request,
            nodes=fold([*nodes.used, *nodes.spares, *nodes.free]),
            job=None if request.plan else request.job,
            gpus_per_node=request.gpus_per_node or (job.gpus_per_node if job and job.nodes else None),
            work=find_job_work(job) if job is not None and request.plan is None else None,
        ),
        slurm,
    )
    nodes = _assign_block_placement(placement_inputs, nodes, assumed) if nodes.rank_placement is None else nodes
    topologies = (
        match_fabric_names(read_node_files(request.node_files), placement_inputs.rails) if request.node_files else {}
    )
    hosts = _build_hosts(placement_inputs, nodes, topologies, assumed)
    situation = _build_situation(placement_inputs, nodes.rank_placement or (), hosts, order)
    known = placement_inputs.hb_domains or {}
    members = {name: [node for node in known if known[node] == name] for name in dict.fromkeys(known.values())}
    domains, _ = find_hb_domains(placement_inputs.rails.attachments, members, topologies)
    machine = KnownParts(
        fabric=placement_inputs.fabric,
        rails=placement_inputs.rails,
        domains=domains,
        nodes=[*nodes.used, *nodes.spares, *nodes.free, *nodes.records],
        node_gpus=hosts.node_gpus,
        topologies=topologies,
    )
    release, release_source = _resolve_release(request, placement_inputs)
    return RemapInputs(
        placement_inputs=placement_inputs,
        situation=situation,
        machine=machine,
        job=job,
        records=nodes.records,
        site=SlurmSite(release=release, topology=_read_topology_plugin(slurm) if job is not None else None),
        release_is=release_source,
        is_running=job is None or job.is_active,
        assumed=(*placement_inputs.assumed, *assumed),
        cluster=cluster,
    )


def _find_nodes(
    request: RemapRequest, job: JobRecord | None, slurm: SlurmClient, cluster: str, assumed: list[Assumption]
) -> tuple[_JobNodes, RankOrder | None]:
    """Return the nodes of the job, and the rank order where one is given."""
    order = RankOrder(request.rank_order) if request.rank_order else None
    if request.placement is not None:
        placed = _read_placement(request.placement)
        rank_placement: list[tuple[str, int]] | None = placed.rank_placement(request.placement)
        order = order or placed.rank_order
    else:
        rank_placement = _read_launched_placement(request, job, cluster, assumed)
    used, spares = _split_nodes(request, job, rank_placement)
    records = _read_node_records(slurm) if job is not None else {}
    nodes = _JobNodes(
        job=job,
        records=records,
        rank_placement=rank_placement,
        used=used,
        spares=spares,
        free=_find_free_nodes(request, job, records, used + spares),
    )
    return nodes, order


def _find_job(
    request: RemapRequest, slurm: SlurmClient, assumed: list[Assumption], *, is_complete: bool
) -> JobRecord | None:
    """Return the job's record; ``None`` when no job is named, or Slurm is not needed and does not answer."""
    if request.job in {None, NO_JOB}:
        return None
    try:
        return slurm.job(request.job or "")
    except SlurmError as error:
        if not is_complete:
            raise
        why = f"Slurm does not answer: {error.message}"
        assumed.append(Assumption(field="job.state", value="RUNNING", why=why))
        return None


def _read_launched_placement(
    request: RemapRequest, job: JobRecord | None, cluster: str, assumed: list[Assumption]
) -> list[tuple[str, int]] | None:
    """Return the rank placement of the job's launcher (``opsk launch``); ``None`` without one."""
    launcher = find_launcher(job, cluster) if request.nodes is None else None
    if launcher is None or not launcher.status.ranks:
        return None
    ranks = sorted(launcher.status.ranks, key=lambda slot: slot.rank)
    if [slot.rank for slot in ranks] != list(range(len(ranks))):
        return None
    why = f"{launcher.files['launched']}: reported by the job's launcher"
    assumed.append(Assumption(field="placement", value="launcher", why=why))
    return [(slot.node, slot.gpu) for slot in ranks]


def _read_placement(path: Path) -> _PlacementFile:
    """Return a placement as ``opsk place --json`` prints it.

    Raises
    ------
    InputError
        It cannot be read, or is none.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise InputError(escape(f"{path}: larger than {_MAX_BYTES} bytes"), hint=_PLACEMENT_HINT)
        return _PlacementFile.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise InputError(escape(f"{path}: {error.strerror}"), hint=_PLACEMENT_HINT) from error
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()[:4])
        raise InputError(escape(f"{path}: {wrong}"), hint=_PLACEMENT_HINT) from error
    except (ValueError, RecursionError) as error:
        raise InputError(escape(f"{path}: not JSON ({error})"), hint=_PLACEMENT_HINT) from error


def _split_nodes(
    request: RemapRequest, job: JobRecord | None, rank_placement: Sequence[tuple[str, int]] | None
) -> tuple[list[str], list[str]]:
    """Return the nodes that the job's ranks may use, and its spares."""
    spares = list(expand(request.spares)) if request.spares else []
    if rank_placement is not None:
        job_nodes = list(dict.fromkeys(node for node, _ in rank_placement))
        held = [node for node in (job.nodes if job else ()) if node not in job_nodes]
        return job_nodes, list(dict.fromkeys([*spares, *held]))
    nodes = expand(request.nodes) if request.nodes else job.nodes if job is not None else ()
    job_nodes = [node for node in nodes if node not in set(spares)]
    if not job_nodes:
        state = f"job {job.label} is {job.state} and has no nodes" if job is not None else "--nodes names no node"
        raise InputError(state, hint="give the nodes that it ran on with --nodes")
    if request.nodes and job is not None:
        spares += [node for node in job.nodes if node not in set(job_nodes) | set(spares)]
    return job_nodes, spares


def _read_node_records(slurm: SlurmClient) -> dict[str, NodeRecord]:
    """Return Slurm's nodes; none when it no longer answers."""
    try:
        return {node.name: node for node in slurm.nodes()}
    except OpskError:
        return {}


def _find_free_nodes(
    request: RemapRequest, job: JobRecord | None, records: Mapping[str, NodeRecord], job_nodes: Sequence[str]
) -> list[str]:
    """Return the free nodes: the named ones, else the idle ones of the job's partition."""
    if request.free is not None:
        return [node for node in expand(request.free) if node not in set(job_nodes)]
    if job is None:
        return []
    excluded = {*job_nodes, *job.excluded_nodes, *request.avoid}
    return [
        node.name
        for node in records.values()
        if node.name not in excluded
        and node.state in _FREE_STATES
        and node.is_usable
        and not _UNFREE_FLAGS.intersection(node.state_flags)
        and (not job.partition or job.partition in node.partitions)
        and node.gpus - node.gpus_used >= (job.gpus_per_node or 1)
    ]


def _assign_block_placement(inputs: PlacementInputs, nodes: _JobNodes, assumed: list[Assumption]) -> _JobNodes:
    """Return the nodes with Slurm's default placement, node after node; unused nodes become spares."""
    job, job_nodes = nodes.job, nodes.used
    gpus_per_node = inputs.gpus_per_node
    needed = math.ceil(inputs.plan.gpus / gpus_per_node)
    if len(job_nodes) < needed:
        raise InputError(
            f"the plan has {inputs.plan.gpus} ranks, {len(job_nodes)} nodes of {gpus_per_node} GPUs "
            f"have {len(job_nodes) * gpus_per_node}",
            hint="give all nodes of the job, or check --gpus-per-node",
        )
    used = job_nodes[:needed]
    rank_placement = []
    for number in range(inputs.plan.gpus):
        node, local = used[number // gpus_per_node], number % gpus_per_node
        held = sorted(job.gpu_indices.get(node, ())) if job is not None else []
        rank_placement.append((node, held[local] if len(held) >= gpus_per_node else local))
    why = "no --placement is given: ranks fill node after node, as Slurm does by default"
    assumed.append(Assumption(field="placement", value="block", why=why))
    return replace(nodes, rank_placement=rank_placement, spares=[*nodes.spares, *job_nodes[needed:]])


def _build_hosts(
    inputs: PlacementInputs, nodes: _JobNodes, topologies: Mapping[str, NodeTopology], assumed: list[Assumption]
) -> Hosts:
    """Return the hosts of the job: its nodes, spares and free nodes."""
    job, records, rank_placement = nodes.job, nodes.records, nodes.rank_placement or []
    job_nodes = [*dict.fromkeys(node for node, _ in rank_placement), *nodes.spares]
    sizes = [inputs.gpus_per_node, 1 + max(gpu for _, gpu in rank_placement)]
    sizes += [inputs.cluster.node.gpus] if inputs.cluster else []
    sizes += [records[node].gpus for node in job_nodes if node in records]
    sizes += [len(topologies[node].gpus) for node in job_nodes if node in topologies]
    node_gpus = max(sizes)
    held = job.gpu_indices if job is not None and job.gpu_indices else None
    if held is None and node_gpus > inputs.gpus_per_node:
        why = "Slurm does not report which GPUs the job holds"
        assumed.append(Assumption(field="held_gpus", value="all", why=why))
    batch_host = job.nodes[0] if job is not None and job.nodes else slurm_order(job_nodes)[0]
    if job is None or not job.nodes:
        why = "the batch script runs on the first node of a job"
        assumed.append(Assumption(field="batch_host", value=batch_host, why=why))
    return Hosts(
        node_gpus=node_gpus,
        spares=nodes.spares,
        free=nodes.free,
        batch_host=batch_host,
        hb_domains=inputs.hb_domains,
        held_gpus={node: held[node] for node in job_nodes if node in held} if held is not None else None,
        affinity=inputs.affinity,
    )


def _build_situation(
    inputs: PlacementInputs, rank_placement: Sequence[tuple[str, int]], hosts: Hosts, order: RankOrder | None
) -> Situation:
    """Compute the situation of the running job."""
    return prepare(
        inputs.model,
        inputs.plan,
        inputs.rails,
        rank_placement,
        hosts,
        routes=build_routes(inputs.fabric, inputs.rails, inputs.tables, adaptive=inputs.adaptive),
        step=inputs.step,
        order=order or RankOrder.TP_CP_EP_DP_PP,
        cluster=as_cabled(inputs.cluster, inputs.rails) if inputs.cluster else None,
        efficiency=load_efficiency(None),
    )


def _resolve_release(request: RemapRequest, inputs: PlacementInputs) -> tuple[tuple[int, int], str]:
    """Return the release to write commands for, and its source."""
    if request.release is not None:
        return request.release, "asked"
    if inputs.release is not None:
        return inputs.release, "installed"
    return NEWEST, "newest"


def _read_topology_plugin(slurm: SlurmClient) -> str | None:
    """Return Slurm's topology plugin: ``tree``, ``block``, ...; ``None`` when unknown."""
    try:
        plugin = slurm.config().get("TopologyPlugin", "")
    except OpskError:
        return None
    return plugin.rpartition("/")[2] or None

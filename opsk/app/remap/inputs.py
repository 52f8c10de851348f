"""Which job, on which GPUs, with which spares does ``opsk remap`` talk about? From files, flags, and Slurm."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from opsk.app.inputs.efficiency import load_efficiency
from opsk.app.inputs.job_work import work_of_job
from opsk.app.inputs.node_files import on_fabric, read_node_files
from opsk.app.inputs.placement import Asked, Request, gather
from opsk.config import load_site
from opsk.errors import InputError, OpskError, SlurmError
from opsk.fabric.hb_domains import hb_domains
from opsk.fabric.node.node_topology import NodeTopology
from opsk.hostlist import expand, fold
from opsk.planning.placement.node_order import slurm_order
from opsk.planning.placement.step_model import as_cabled
from opsk.planning.ranks import RankOrder
from opsk.planning.remap.named import Machine
from opsk.planning.remap.situation import Hosts, Situation, prepare
from opsk.planning.routing.routes_of_fabric import routes_of
from opsk.remapping.preparation import launcher_of
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RemapRequest:
    """The command line of ``opsk remap``, as far as it says what there is."""

    job: str | None
    plan: str | None
    nodes: str | None
    spares: str | None
    free: str | None
    placement: Path | None
    fabric: Sequence[Path]
    routes: Sequence[Path]
    node_files: Sequence[Path]
    cluster: str | None
    gpus_per_node: int | None
    rank_order: str | None
    release: tuple[int, int] | None
    avoid: Collection[str] = ()
    """Nodes that are no free ones, for something is wrong with them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """Everything that is asked about: the situation, where names are looked up, and Slurm as far as it is known.

    ``records`` are Slurm's nodes as the plan was made from them. ``cluster`` is whose job it is, empty where Slurm was
    not asked for one or does not tell.
    """

    asked: Asked
    situation: Situation
    machine: Machine
    job: JobRecord | None
    records: Mapping[str, NodeRecord]
    site: SlurmSite
    release_is: str
    is_running: bool
    assumed: tuple[Assumption, ...]
    cluster: str = ""


class _Seat(BaseModel):
    """One rank of a placement file."""

    model_config = ConfigDict(frozen=True)

    rank: int = Field(ge=0)
    node: str = Field(min_length=1, max_length=253)
    gpu: int = Field(ge=0, lt=1024)


class _Placed(BaseModel):
    """What is read of the answer of ``opsk place --json``."""

    model_config = ConfigDict(frozen=True)

    ranks: tuple[_Seat, ...] = Field(min_length=1)
    rank_order: RankOrder = RankOrder.TP_CP_EP_DP_PP

    def seats(self, path: Path) -> list[tuple[str, int]]:
        """Return node and GPU in rank order."""
        ranks = sorted(self.ranks, key=lambda seat: seat.rank)
        if [seat.rank for seat in ranks] != list(range(len(ranks))):
            raise InputError(escape(f"{path}: ranks are not 0 to {len(ranks) - 1}, each once"), hint=_PLACEMENT_HINT)
        return [(seat.node, seat.gpu) for seat in ranks]


_PLACEMENT_HINT = "give the answer of opsk place --json"


def gather_remap(request: RemapRequest, slurm: SlurmClient) -> Gathered:
    """Return everything that the options need.

    Raises
    ------
    InputError
        Something is missing or contradicts; the message says what to give.
    SlurmError
        Slurm would have to be asked and does not answer.
    """
    assumed: list[Assumption] = []
    is_complete = request.plan is not None and (request.nodes is not None or request.placement is not None)
    job = _job(request, slurm, assumed, is_complete=is_complete)
    if not is_complete and job is None:
        raise InputError(
            "neither a job nor all about it is named", hint="name a JOB, or --plan with --nodes or --placement"
        )
    cluster = cluster_name(slurm) if job is not None else ""
    placed = _read_placement(request.placement) if request.placement is not None else None
    if placed is not None:
        seats: list[tuple[str, int]] | None = placed.seats(request.placement or Path())
    else:
        seats = _launched_seats(request, job, cluster, assumed)
    own, spares = _own_nodes(request, job, seats)
    records = _node_records(slurm) if job is not None else {}
    free = _free_nodes(request, job, records, own + spares)
    asked = gather(
        Request(
            plan=request.plan,
            nodes=fold([*own, *spares, *free]),
            job=None if request.plan else request.job,
            fabric=request.fabric,
            cluster=request.cluster,
            gpus_per_node=request.gpus_per_node or (job.gpus_per_node if job and job.nodes else None),
            routes=request.routes,
            node_files=request.node_files,
            work=work_of_job(job) if job is not None and request.plan is None else None,
        ),
        slurm,
    )
    if seats is None:
        seats, spares = _seated(asked, job, own, spares, assumed)
    order = RankOrder(request.rank_order) if request.rank_order else placed.rank_order if placed else None
    topologies = on_fabric(read_node_files(request.node_files), asked.rails) if request.node_files else {}
    hosts = _hosts(asked, job, records, seats, spares, free, topologies, assumed)
    situation = _situation(asked, seats, hosts, order)
    known = asked.hb_domains or {}
    members = {name: [node for node in known if known[node] == name] for name in dict.fromkeys(known.values())}
    domains, _ = hb_domains(asked.rails.attachments, members, topologies)
    machine = Machine(
        fabric=asked.fabric,
        rails=asked.rails,
        domains=domains,
        nodes=[*own, *spares, *free, *records],
        node_gpus=hosts.node_gpus,
        topologies=topologies,
    )
    release, said = _release(request, asked)
    return Gathered(
        asked=asked,
        situation=situation,
        machine=machine,
        job=job,
        records=records,
        site=SlurmSite(release=release, topology=_topology(slurm) if job is not None else None),
        release_is=said,
        is_running=job is None or job.is_active,
        assumed=(*asked.assumed, *assumed),
        cluster=cluster,
    )


def _job(
    request: RemapRequest, slurm: SlurmClient, assumed: list[Assumption], *, is_complete: bool
) -> JobRecord | None:
    """Return what Slurm says of the job; nothing when none is named, or when it is not needed and does not answer."""
    if request.job in {None, NO_JOB}:
        return None
    try:
        return slurm.job(request.job or "")
    except SlurmError as error:
        if not is_complete:
            raise
        why = f"Slurm was not asked: {error.message}"
        assumed.append(Assumption(field="job.state", value="RUNNING", why=why))
        return None


def _launched_seats(
    request: RemapRequest, job: JobRecord | None, cluster: str, assumed: list[Assumption]
) -> list[tuple[str, int]] | None:
    """Return where the job's own launcher (``opsk launch``) says that its ranks are; ``None`` where it has none."""
    launcher = launcher_of(job, cluster) if request.nodes is None else None
    if launcher is None or not launcher.said.ranks:
        return None
    ranks = sorted(launcher.said.ranks, key=lambda seat: seat.rank)
    if [seat.rank for seat in ranks] != list(range(len(ranks))):
        return None
    why = f"{launcher.files['launched']}: the job's launcher says so"
    assumed.append(Assumption(field="placement", value="launcher", why=why))
    return [(seat.node, seat.gpu) for seat in ranks]


def _read_placement(path: Path) -> _Placed:
    """Return a placement as ``opsk place --json`` prints it.

    Raises
    ------
    InputError
        It cannot be read, or is none.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise InputError(escape(f"{path}: larger than {_MAX_BYTES} bytes"), hint=_PLACEMENT_HINT)
        return _Placed.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise InputError(escape(f"{path}: {error.strerror}"), hint=_PLACEMENT_HINT) from error
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()[:4])
        raise InputError(escape(f"{path}: {wrong}"), hint=_PLACEMENT_HINT) from error
    except (ValueError, RecursionError) as error:
        raise InputError(escape(f"{path}: no JSON ({error})"), hint=_PLACEMENT_HINT) from error


def _own_nodes(
    request: RemapRequest, job: JobRecord | None, seats: Sequence[tuple[str, int]] | None
) -> tuple[list[str], list[str]]:
    """Return the nodes that the job's ranks may use, and its spares."""
    spares = list(expand(request.spares)) if request.spares else []
    if seats is not None:
        own = list(dict.fromkeys(node for node, _ in seats))
        held = [node for node in (job.nodes if job else ()) if node not in own]
        return own, list(dict.fromkeys([*spares, *held]))
    nodes = expand(request.nodes) if request.nodes else job.nodes if job is not None else ()
    own = [node for node in nodes if node not in set(spares)]
    if not own:
        state = f"job {job.label} is {job.state} and has no nodes" if job is not None else "--nodes names no node"
        raise InputError(state, hint="name those that it ran on with --nodes")
    if request.nodes and job is not None:
        spares += [node for node in job.nodes if node not in set(own) | set(spares)]
    return own, spares


def _node_records(slurm: SlurmClient) -> dict[str, NodeRecord]:
    """Return the nodes that Slurm knows; none when it does not answer any more."""
    try:
        return {node.name: node for node in slurm.nodes()}
    except OpskError:
        return {}


def _free_nodes(
    request: RemapRequest, job: JobRecord | None, records: Mapping[str, NodeRecord], own: Sequence[str]
) -> list[str]:
    """Return the nodes that the job could get: those named, else the idle ones of its partition."""
    if request.free is not None:
        return [node for node in expand(request.free) if node not in set(own)]
    if job is None:
        return []
    excluded = {*own, *job.excluded_nodes, *request.avoid}
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


def _seated(
    asked: Asked, job: JobRecord | None, own: Sequence[str], spares: Sequence[str], assumed: list[Assumption]
) -> tuple[list[tuple[str, int]], list[str]]:
    """Return the seats that Slurm gives by default, node after node, and the spares with what is left over."""
    each = asked.gpus_per_node
    needed = math.ceil(asked.plan.gpus / each)
    if len(own) < needed:
        raise InputError(
            f"the plan has {asked.plan.gpus} ranks, {len(own)} nodes of {each} GPUs have {len(own) * each}",
            hint="name all nodes of the job, or check --gpus-per-node",
        )
    used = own[:needed]
    seats = []
    for number in range(asked.plan.gpus):
        node, local = used[number // each], number % each
        held = sorted(job.gpu_indices.get(node, ())) if job is not None else []
        seats.append((node, held[local] if len(held) >= each else local))
    why = "no --placement was given: ranks are taken to fill node after node, as Slurm does by default"
    assumed.append(Assumption(field="placement", value="block", why=why))
    return seats, [*spares, *own[needed:]]


def _hosts(
    asked: Asked,
    job: JobRecord | None,
    records: Mapping[str, NodeRecord],
    seats: Sequence[tuple[str, int]],
    spares: Sequence[str],
    free: Sequence[str],
    topologies: Mapping[str, NodeTopology],
    assumed: list[Assumption],
) -> Hosts:
    """Return the nodes around the job."""
    mine = [*dict.fromkeys(node for node, _ in seats), *spares]
    sizes = [asked.gpus_per_node, 1 + max(gpu for _, gpu in seats)]
    sizes += [asked.cluster.node.gpus] if asked.cluster else []
    sizes += [records[node].gpus for node in mine if node in records]
    sizes += [len(topologies[node].gpus) for node in mine if node in topologies]
    node_gpus = max(sizes)
    held = job.gpu_indices if job is not None and job.gpu_indices else None
    if held is None and node_gpus > asked.gpus_per_node:
        why = "nothing tells which GPUs of its nodes the job holds"
        assumed.append(Assumption(field="held_gpus", value="all", why=why))
    batch_host = job.nodes[0] if job is not None and job.nodes else slurm_order(mine)[0]
    if job is None or not job.nodes:
        why = "the batch script runs on the first node of a job"
        assumed.append(Assumption(field="batch_host", value=batch_host, why=why))
    return Hosts(
        node_gpus=node_gpus,
        spares=spares,
        free=free,
        batch_host=batch_host,
        hb_domains=asked.hb_domains,
        held_gpus={node: held[node] for node in mine if node in held} if held is not None else None,
        affinity=asked.affinity,
    )


def _situation(asked: Asked, seats: Sequence[tuple[str, int]], hosts: Hosts, order: RankOrder | None) -> Situation:
    """Judge the job as it runs."""
    return prepare(
        asked.model,
        asked.plan,
        asked.rails,
        seats,
        hosts,
        routes=routes_of(asked.fabric, asked.rails, asked.tables, adaptive=asked.adaptive),
        step=asked.step,
        order=order or RankOrder.TP_CP_EP_DP_PP,
        cluster=as_cabled(asked.cluster, asked.rails) if asked.cluster else None,
        efficiency=load_efficiency(load_site().efficiency),
    )


def _release(request: RemapRequest, asked: Asked) -> tuple[tuple[int, int], str]:
    """Return the release to write commands for, and where it was taken from."""
    if request.release is not None:
        return request.release, "asked"
    if asked.release is not None:
        return asked.release, "installed"
    return NEWEST, "newest"


def _topology(slurm: SlurmClient) -> str | None:
    """Return what Slurm's topology plugin is: ``tree``, ``block``, ...; ``None`` when it does not say."""
    try:
        plugin = slurm.config().get("TopologyPlugin", "")
    except OpskError:
        return None
    return plugin.rpartition("/")[2] or None

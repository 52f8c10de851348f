"""Builds the ``interference`` document of a placed job, for ``opsk place``, advice and the TUI."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from opsk.app.inputs.named_inputs import load_efficiency
from opsk.app.inputs.placement import PlacementInputs
from opsk.app.interference.jobs import ActiveTraffic, Site, compute_active_traffic
from opsk.app.interference.rates import read_rates
from opsk.config import load_site
from opsk.fabric.cabling import shorten_name
from opsk.fabric.fabric import Fabric
from opsk.hostlist import fold
from opsk.planning.interference.contention import AxisShare, Interference, Neighbour, SharedLink, interference
from opsk.planning.interference.links import FabricLinks, build_links
from opsk.planning.interference.load import JobShape, Load, LoadKind, job_shape, placed_load
from opsk.planning.interference.node_choice import NodeChoice, NodeSet, choose_nodes
from opsk.planning.placement.placement import Placement
from opsk.planning.placement.step_model import as_cabled
from opsk.planning.routing.routes import Routes
from opsk.slurm.client import SlurmClient
from opsk.slurm.records import JobRecord
from opsk.workload.completion import Assumption

CANDIDATE = "candidate"


def query_interference(
    inputs: PlacementInputs, placement: Placement, routes: Routes, slurm: SlurmClient | None, rates: Path | None
) -> dict[str, Any]:
    """Return the ``interference`` of a placed job with the jobs that run now.

    Parameters
    ----------
    slurm
        Source of running jobs and free nodes; ``None`` uses none.
    rates
        A file of measured rates, as `opsk.app.interference.rates` reads it.

    Raises
    ------
    SlurmError
        Slurm did not answer.
    InputError
        The file cannot be used.
    """
    site_config = load_site()
    read = read_rates(rates, inputs.fabric) if rates is not None else None
    fabric_links = build_links(inputs.fabric, inputs.rails, routes)
    site = Site(
        fabric_links=fabric_links,
        fabric=inputs.fabric,
        cluster=as_cabled(inputs.cluster, inputs.rails) if inputs.cluster is not None else None,
        efficiency=load_efficiency(site_config.find_efficiency_file()),
        storage=site_config.storage,
        rates=read.rates if read is not None else None,
    )
    jobs = slurm.jobs(details=True) if slurm is not None else ()
    traffic = compute_active_traffic(site, jobs, excluding=inputs.job.label if inputs.job else "")
    document = build_interference_document(
        inputs, placement, fabric_links, traffic, find_free_nodes(inputs, jobs, slurm)
    )
    if slurm is None:
        why = "Slurm was not asked for running jobs (--running)"
        document["assumed"].append(Assumption(field="running", value="none", why=why))
    document["problems"] = read.problems if read is not None else ()
    return document


def find_free_nodes(inputs: PlacementInputs, jobs: Sequence[JobRecord], slurm: SlurmClient | None) -> tuple[str, ...]:
    """Return the free, usable nodes of the fabric; all candidates without Slurm."""
    if slurm is None:
        return inputs.nodes
    held = {node for job in jobs if job.is_active for node in job.nodes}
    usable = {node.name for node in slurm.nodes() if node.is_usable}
    return tuple(node for node in inputs.rails.attachments if node in usable and node not in held)


def build_job_shape(inputs: PlacementInputs, placement: Placement) -> JobShape:
    """Return the job that was placed, without its nodes."""
    node_gpus = max(inputs.gpus_per_node, inputs.cluster.node.gpus) if inputs.cluster else None
    shape = job_shape(
        inputs.model, inputs.plan, inputs.gpus_per_node, step=inputs.step, node_gpus=node_gpus, order=placement.order
    )
    return replace(shape, hb_domains=inputs.hb_domains, affinity=inputs.affinity)


def build_interference_document(
    inputs: PlacementInputs,
    placement: Placement,
    fabric_links: FabricLinks,
    traffic: ActiveTraffic,
    free: Sequence[str],
) -> dict[str, Any]:
    """Return the document of a job that `opsk place` placed; see `build_load_document`."""
    shape = build_job_shape(inputs, placement)
    load = placed_load(inputs.job.label if inputs.job else CANDIDATE, fabric_links, shape, placement)
    return build_load_document(load, shape, inputs.fabric, fabric_links, traffic, free)


def build_load_document(
    load: Load, shape: JobShape, fabric: Fabric, fabric_links: FabricLinks, traffic: ActiveTraffic, free: Sequence[str]
) -> dict[str, Any]:
    """Return the document of any candidate; keys are a contract: new ones may be added, none are changed.

    Parameters
    ----------
    traffic
        Traffic of running jobs; it can be reused for many candidates.
    free
        Nodes to choose the best and worst among; none are chosen when empty.
    """
    choice = choose_nodes(fabric_links, shape, free, traffic.running) if free else None
    return build_result_document(
        interference(load, traffic.running), choice, shape, fabric, fabric_links, traffic, len(free)
    )


def build_result_document(
    result: Interference,
    choice: NodeChoice | None,
    shape: JobShape,
    fabric: Fabric,
    fabric_links: FabricLinks,
    traffic: ActiveTraffic,
    free: int,
) -> dict[str, Any]:
    """Return the same document from a computed interference; ``free`` is the number of candidate nodes."""
    names = LinkNames(fabric, fabric_links)
    assumed = [*traffic.assumed]
    if not shape.step.is_whole:
        why = "the cluster's GPUs are not known: steps are their communication alone, none of it hidden"
        assumed.append(Assumption(field="step", value="communication", why=why))
    return {
        "predicted": {
            "what": "step" if shape.step.is_whole else "communication",
            "alone_step_s": result.alone_s,
            "step_s": result.step_s,
            "slowdown": result.slowdown,
            "axes": {axis: _build_axis(share, names) for axis, share in result.axes.items()},
        },
        "shared_link_count": result.shared_links,
        "shared_links": [_build_link(link, traffic, names) for link in result.shared],
        "jobs": [_build_job(item, traffic, names) for item in result.neighbours],
        "storage": _build_storage(traffic, result),
        "running": {"jobs": len(traffic.jobs), "known_as": dict(traffic.known_as)},
        "free_nodes": free,
        "best_nodes": [_build_node_set(item) for item in choice.best] if choice else [],
        "worst_nodes": [_build_node_set(item) for item in choice.worst] if choice else [],
        "node_sets_considered": choice.considered if choice else 0,
        "assumed": assumed,
    }


class LinkNames:
    """Formats the ends of a link for people."""

    def __init__(self, fabric: Fabric, fabric_links: FabricLinks) -> None:
        self._fabric = fabric
        self._fabric_links = fabric_links

    def link(self, number: int) -> dict[str, Any]:
        """Return both ends of a link by guid and name."""
        ends = self._fabric_links.ends(number)
        kind = "hca" if self._fabric_links.is_hca(number) else "switch"
        return {"from": ends[0], "to": ends[1], "names": [self._name(guid) for guid in ends], "kind": kind}

    def _name(self, guid: str) -> str:
        """Return the name of a switch or HCA; anything above a leaf has none."""
        if guid in self._fabric.switches:
            return shorten_name(self._fabric.switches[guid].description)
        return self._fabric.hcas[guid].description if guid in self._fabric.hcas else guid or "above"


def _build_axis(share: AxisShare, names: LinkNames) -> dict[str, Any]:
    """Return the bandwidth share of one axis."""
    return {
        "alone_s": share.alone_s,
        "shared_s": share.shared_s,
        "share": share.share,
        "link": names.link(share.link) if share.link >= 0 else None,
    }


def _build_link(link: SharedLink, traffic: ActiveTraffic, names: LinkNames) -> dict[str, Any]:
    """Return one shared link and its users."""
    loads = traffic.running.loads
    return {
        **names.link(link.link),
        "utilisation": {"candidate": link.candidate, "others": link.total - link.candidate, "total": link.total},
        "burst": link.burst,
        "jobs": [
            {"job": loads[number].name, "kind": loads[number].kind, "utilisation": part} for number, part in link.others
        ],
    }


def _build_job(neighbour: Neighbour, traffic: ActiveTraffic, names: LinkNames) -> dict[str, Any]:
    """Return one job, or storage, that shares links, and both slow-downs."""
    record = traffic.jobs.get(neighbour.load.name)
    has_steps = neighbour.load.has_steps
    return {
        "job": neighbour.load.name,
        "kind": neighbour.load.kind,
        "user": record.user if record else None,
        "name": record.name if record else None,
        "nodes": fold(neighbour.load.nodes),
        "shared_links": neighbour.links,
        "busiest": names.link(neighbour.busiest),
        "slowdown_of_candidate": neighbour.slowdown_of_candidate,
        "slowdown_of_job": neighbour.slowdown_of_job,
        "step_s": neighbour.step_s if has_steps else None,
        "step_with_candidate_s": neighbour.step_with_candidate_s if has_steps else None,
    }


def _build_storage(traffic: ActiveTraffic, result: Interference) -> dict[str, Any] | None:
    """Return storage traffic and its slow-down; ``None`` where no server is on the fabric."""
    if not traffic.servers and traffic.storage is None:
        return None
    neighbours = [neighbour for neighbour in result.neighbours if neighbour.load.kind is LoadKind.STORAGE]
    return {
        "servers": traffic.servers,
        "from": traffic.storage_from or None,
        "read_bytes_per_s": traffic.storage.read_bytes_per_s if traffic.storage else None,
        "write_bytes_per_s": traffic.storage.write_bytes_per_s if traffic.storage else None,
        "shared_links": max((neighbour.links for neighbour in neighbours), default=0),
        "slowdown_of_candidate": max((neighbour.slowdown_of_candidate for neighbour in neighbours), default=0.0),
        "slowdown_of_storage": max((neighbour.slowdown_of_job for neighbour in neighbours), default=0.0),
    }


def _build_node_set(node_set: NodeSet) -> dict[str, Any]:
    """Return one set of nodes to request, or to avoid."""
    return {
        "nodes": node_set.nodes,
        "hostlist": fold(node_set.nodes),
        "units": node_set.units,
        "step_s": node_set.step_s,
        "alone_step_s": node_set.alone_s,
        "slowdown": node_set.step_s / node_set.alone_s - 1.0 if node_set.alone_s else 0.0,
    }

"""Who else is on the links of a placed job, as JSON: ``interference`` of ``opsk place``, of advice and of the TUI."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from opsk.app.inputs.efficiency import load_efficiency
from opsk.app.inputs.placement import Asked
from opsk.app.interference.jobs import Site, Wire, on_the_wire
from opsk.app.interference.rates import read_rates
from opsk.config import load_site
from opsk.fabric.cabling import short_name
from opsk.fabric.fabric import Fabric
from opsk.hostlist import fold
from opsk.planning.interference.contention import AxisShare, Interference, Neighbour, SharedLink, interference
from opsk.planning.interference.load import JobShape, Load, LoadKind, job_shape, placed_load
from opsk.planning.interference.node_choice import NodeChoice, NodeSet, choose_nodes
from opsk.planning.interference.wires import Wires, wires_of
from opsk.planning.placement.placement import Placement
from opsk.planning.placement.step_model import as_cabled
from opsk.planning.routing.routes import Routes
from opsk.slurm.client import SlurmClient
from opsk.slurm.records import JobRecord
from opsk.workload.completion import Assumption

CANDIDATE = "candidate"


def ask_interference(
    asked: Asked, placement: Placement, routes: Routes, slurm: SlurmClient | None, rates: Path | None
) -> dict[str, Any]:
    """Return the ``interference`` of a placed job with what runs now.

    Parameters
    ----------
    slurm
        Who is asked for running jobs and free nodes; nobody when not given.
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
    read = read_rates(rates, asked.fabric) if rates is not None else None
    wires = wires_of(asked.fabric, asked.rails, routes)
    site = Site(
        wires=wires,
        fabric=asked.fabric,
        cluster=as_cabled(asked.cluster, asked.rails) if asked.cluster is not None else None,
        efficiency=load_efficiency(site_config.efficiency),
        storage=site_config.storage,
        rates=read.rates if read is not None else None,
    )
    jobs = slurm.jobs(details=True) if slurm is not None else ()
    wire = on_the_wire(site, jobs, but=asked.job.label if asked.job else "")
    document = interference_document(asked, placement, wires, wire, free_nodes(asked, jobs, slurm))
    if slurm is None:
        why = "Slurm was not asked for running jobs (--running)"
        document["assumed"].append(Assumption(field="running", value="none", why=why))
    document["problems"] = read.problems if read is not None else ()
    return document


def free_nodes(asked: Asked, jobs: Sequence[JobRecord], slurm: SlurmClient | None) -> tuple[str, ...]:
    """Return the nodes of the fabric that hold no job and take one; all candidates where nobody knows."""
    if slurm is None:
        return asked.nodes
    held = {node for job in jobs if job.is_active for node in job.nodes}
    usable = {node.name for node in slurm.nodes() if node.is_usable}
    return tuple(node for node in asked.rails.attachments if node in usable and node not in held)


def shape_of_asked(asked: Asked, placement: Placement) -> JobShape:
    """Return the job that was placed, without its nodes."""
    node_gpus = max(asked.gpus_per_node, asked.cluster.node.gpus) if asked.cluster else None
    shape = job_shape(
        asked.model, asked.plan, asked.gpus_per_node, step=asked.step, node_gpus=node_gpus, order=placement.order
    )
    return replace(shape, hb_domains=asked.hb_domains, affinity=asked.affinity)


def interference_document(
    asked: Asked, placement: Placement, wires: Wires, wire: Wire, free: Sequence[str]
) -> dict[str, Any]:
    """Return the document of a job that `opsk place` placed; see ``document_of_load``."""
    shape = shape_of_asked(asked, placement)
    load = placed_load(asked.job.label if asked.job else CANDIDATE, wires, shape, placement)
    return document_of_load(load, shape, asked.fabric, wires, wire, free)


def document_of_load(
    load: Load, shape: JobShape, fabric: Fabric, wires: Wires, wire: Wire, free: Sequence[str]
) -> dict[str, Any]:
    """Return the document of any candidate; keys are a contract: they are added to, never changed.

    Parameters
    ----------
    wire
        What runs now; prepared once, it serves many candidates.
    free
        Nodes to choose the best and worst among; none are chosen when empty.
    """
    choice = choose_nodes(wires, shape, free, wire.running) if free else None
    return found_document(interference(load, wire.running), choice, shape, fabric, wires, wire, len(free))


def found_document(
    found: Interference, choice: NodeChoice | None, shape: JobShape, fabric: Fabric, wires: Wires, wire: Wire, free: int
) -> dict[str, Any]:
    """Return the same document of what was found already; ``free`` nodes there were to choose among."""
    show = LinkNames(fabric, wires)
    assumed = [*wire.assumed]
    if not shape.step.is_whole:
        why = "the cluster's GPUs are not known: steps are their communication alone, none of it hidden"
        assumed.append(Assumption(field="step", value="communication", why=why))
    return {
        "predicted": {
            "what": "step" if shape.step.is_whole else "communication",
            "alone_step_s": found.alone_s,
            "step_s": found.step_s,
            "slowdown": found.slowdown,
            "axes": {axis: _axis(share, show) for axis, share in found.axes.items()},
        },
        "shared_link_count": found.shared_links,
        "shared_links": [_link(link, wire, show) for link in found.shared],
        "jobs": [_job(one, wire, show) for one in found.neighbours],
        "storage": _storage(wire, found),
        "running": {"jobs": len(wire.jobs), "known_as": dict(wire.known_as)},
        "free_nodes": free,
        "best_nodes": [_nodes(one) for one in choice.best] if choice else [],
        "worst_nodes": [_nodes(one) for one in choice.worst] if choice else [],
        "node_sets_considered": choice.considered if choice else 0,
        "assumed": assumed,
    }


class LinkNames:
    """What people call the ends of a link."""

    def __init__(self, fabric: Fabric, wires: Wires) -> None:
        self._fabric = fabric
        self._wires = wires

    def link(self, number: int) -> dict[str, Any]:
        """Return both ends of a link by guid and name."""
        ends = self._wires.ends(number)
        kind = "hca" if self._wires.is_hca(number) else "switch"
        return {"from": ends[0], "to": ends[1], "names": [self._name(guid) for guid in ends], "kind": kind}

    def _name(self, guid: str) -> str:
        """Return the name of a switch or HCA; what is above a leaf has none."""
        if guid in self._fabric.switches:
            return short_name(self._fabric.switches[guid].description)
        return self._fabric.hcas[guid].description if guid in self._fabric.hcas else guid or "above"


def _axis(share: AxisShare, show: LinkNames) -> dict[str, Any]:
    """Return what is left for one axis."""
    return {
        "alone_s": share.alone_s,
        "shared_s": share.shared_s,
        "share": share.share,
        "link": show.link(share.link) if share.link >= 0 else None,
    }


def _link(link: SharedLink, wire: Wire, show: LinkNames) -> dict[str, Any]:
    """Return one shared link and who uses it."""
    loads = wire.running.loads
    return {
        **show.link(link.link),
        "utilisation": {"candidate": link.candidate, "others": link.total - link.candidate, "total": link.total},
        "burst": link.burst,
        "jobs": [
            {"job": loads[number].name, "kind": loads[number].kind, "utilisation": part} for number, part in link.others
        ],
    }


def _job(one: Neighbour, wire: Wire, show: LinkNames) -> dict[str, Any]:
    """Return one job, or storage, that shares links, and what both lose."""
    record = wire.jobs.get(one.load.name)
    has_steps = one.load.has_steps
    return {
        "job": one.load.name,
        "kind": one.load.kind,
        "user": record.user if record else None,
        "name": record.name if record else None,
        "nodes": fold(one.load.nodes),
        "shared_links": one.links,
        "busiest": show.link(one.busiest),
        "slowdown_of_candidate": one.slowdown_of_candidate,
        "slowdown_of_job": one.slowdown_of_job,
        "step_s": one.step_s if has_steps else None,
        "step_with_candidate_s": one.step_with_candidate_s if has_steps else None,
    }


def _storage(wire: Wire, found: Interference) -> dict[str, Any] | None:
    """Return what is known of storage traffic and what it costs; ``None`` where no server is on the fabric."""
    if not wire.servers and wire.storage is None:
        return None
    met = [one for one in found.neighbours if one.load.kind is LoadKind.STORAGE]
    return {
        "servers": wire.servers,
        "from": wire.storage_from or None,
        "read_bytes_per_s": wire.storage.read_bytes_per_s if wire.storage else None,
        "write_bytes_per_s": wire.storage.write_bytes_per_s if wire.storage else None,
        "shared_links": max((one.links for one in met), default=0),
        "slowdown_of_candidate": max((one.slowdown_of_candidate for one in met), default=0.0),
        "slowdown_of_storage": max((one.slowdown_of_job for one in met), default=0.0),
    }


def _nodes(one: NodeSet) -> dict[str, Any]:
    """Return one set of nodes to ask for, or to avoid."""
    return {
        "nodes": one.nodes,
        "hostlist": fold(one.nodes),
        "units": one.units,
        "step_s": one.step_s,
        "alone_step_s": one.alone_s,
        "slowdown": one.step_s / one.alone_s - 1.0 if one.alone_s else 0.0,
    }

"""The answer of ``opsk place`` with the keys that programs rely on."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from typing import Any

from opsk.app.inputs.placement import Asked
from opsk.fabric.cabling import short_name
from opsk.fabric.fabric import Fabric, Fault
from opsk.fabric.hb_domains import HbDomain
from opsk.planning.placement.launch import launch_of
from opsk.planning.placement.nccl_settings import sharp_switches
from opsk.planning.placement.placement import AxisLoad, Placement, TrafficShare

_NUMBERS = ("rail_local_fraction", "leaf_local_fraction", "max_link_load", "inter_node_bytes", "tp_inter_node_bytes")


def place_document(asked: Asked, placement: Placement) -> dict[str, Any]:
    """Return ranks, traffic, comparison with Slurm's default order, and what a launcher needs."""
    launch = launch_of(
        placement,
        asked.rails,
        devices_known=not asked.is_designed,
        domains=_domains(asked),
        sharp=sharp_switches(asked.fabric),
        release=asked.release,
    )
    return {
        "model": asked.model.name,
        "plan": asked.plan,
        "job": asked.job.label if asked.job else None,
        "fabric": asked.fabric.source,
        "rank_order": placement.order,
        "gpus_per_node": asked.gpus_per_node,
        "nodes": placement.nodes,
        "spare_nodes": placement.spare_nodes,
        **traffic_document(asked.fabric, placement),
        "needs_rank_file": placement.needs_rank_file,
        "rank_file": launch.rank_file,
        "host_file": launch.rank_file,
        "mpi_rank_file": launch.mpi_rank_file,
        "torchrun": launch.torchrun,
        "gpu_order": launch.gpu_order,
        "nccl_env": launch.nccl_env,
        "slurm_flags": launch.slurm_flags,
        "notes": launch.notes,
        "assumed": asked.assumed,
        "problems": _problems(placement),
        "faults": _faults(asked, placement),
        "ranks": placement.ranks,
    }


def traffic_document(fabric: Fabric, placement: Placement) -> dict[str, Any]:
    """Return how the traffic travels, what that makes of the step, and what Slurm's default order would."""
    return {
        **_numbers(placement.traffic),
        "busiest_cable": _cable(fabric, placement.traffic),
        "predicted": _predicted(fabric, placement),
        "versus_default": {
            **_numbers(placement.default_traffic),
            "difference": _difference(placement.traffic, placement.default_traffic),
            "is_kept": placement.is_default,
        },
    }


def _predicted(fabric: Fabric, placement: Placement) -> dict[str, Any]:
    """Return the predicted step, or its communication alone, against Slurm's order and against what is possible."""
    ours, default = placement.traffic.step_s, placement.default_traffic.step_s
    return {
        "what": "step" if placement.is_whole_step else "communication",
        "step_s": ours,
        "default_step_s": default,
        "default_is_slower_by": default / ours - 1.0 if ours and math.isfinite(ours) else 0.0,
        "lower_bound_s": placement.least_step_s,
        "gap": placement.gap,
        "is_optimal": placement.is_optimal,
        "axes": {axis: _axis(fabric, load) for axis, load in placement.traffic.axes.items()},
        "default_axes": {axis: _axis(fabric, load) for axis, load in placement.default_traffic.axes.items()},
    }


def _axis(fabric: Fabric, load: AxisLoad) -> dict[str, Any]:
    """Return how long the link that decides an axis is busy, and which it is."""
    names = [
        short_name(fabric.switches[guid].description) if guid in fabric.switches
        else fabric.hcas[guid].description if guid in fabric.hcas else guid
        for guid in load.link
    ]  # fmt: skip
    return {"busy_s": load.busy_s, "link": load.link, "names": names}


def _domains(asked: Asked) -> list[HbDomain]:
    """Return the HB domains of several nodes, as far as node files tell them."""
    members: defaultdict[str, list[str]] = defaultdict(list)
    for node, name in (asked.hb_domains or {}).items():
        members[name].append(node)
    return [HbDomain(name=name, nodes=tuple(nodes)) for name, nodes in members.items()]


def _numbers(traffic: TrafficShare) -> dict[str, float]:
    """Return the numbers of one order; a load without end (leaves without a path) becomes ``null``."""
    return {name: getattr(traffic, name) for name in _NUMBERS}


def _difference(ours: TrafficShare, default: TrafficShare) -> dict[str, float]:
    """Return ours minus the default's; ``null`` where one of them has no end."""
    return {
        name: getattr(ours, name) - getattr(default, name)
        if math.isfinite(getattr(ours, name)) and math.isfinite(getattr(default, name))
        else math.nan
        for name in _NUMBERS
    }


def _cable(fabric: Fabric, traffic: TrafficShare) -> dict[str, Any] | None:
    """Return the busiest cable by guid and by name."""
    if traffic.busiest_cable is None:
        return None
    names = [short_name(fabric.switches[guid].description) for guid in traffic.busiest_cable]
    return {"from": traffic.busiest_cable[0], "to": traffic.busiest_cable[1], "names": names}


def _problems(placement: Placement) -> list[dict[str, str]]:
    """Return what makes the numbers worse than they may be."""
    problems = []
    if placement.unknown_nodes:
        some = ", ".join(placement.unknown_nodes[:4])
        problems.append(
            {
                "what": f"{len(placement.unknown_nodes)} nodes are not on the fabric ({some})",
                "hint": "their traffic counts as not local; record the fabric again while they are up",
            }
        )
    if not math.isfinite(placement.traffic.max_link_load):
        problems.append(
            {"what": "some leaves have no path to each other", "hint": "see `opsk fabric`, or use nodes of one unit"}
        )
    return problems


def _faults(asked: Asked, placement: Placement) -> list[Fault]:
    """Return the cabling faults of the job's own nodes and leaves; HCAs without a name there belong to others."""
    names = set(placement.nodes) | {rank.leaf for rank in placement.ranks if rank.leaf}
    return [
        fault
        for fault in asked.rails.faults
        if fault.kind != "unnamed_hca" and names.intersection(re.findall(r"[\w.-]+", fault.where))
    ]
